package job

// Constraint is a parsed --constraint expression over labels.
type Constraint struct{}

// ParseConstraint reads an expression such as rack=r1&nvlink.
func ParseConstraint(text string) (Constraint, error) { return Constraint{}, nil }
