package job

// Preferences: expressions that a host should meet. They never make a job wait.

import (
	"fmt"
	"strconv"
	"strings"
)

// Preference is a constraint that a host should meet, and how much it counts.
type Preference struct {
	Text    string // without the weight
	Weight  int
	Trusted bool // only signed labels count
	Constraint
}

// Bounds of preferences.
const (
	MaxPreferences = 8
	maxWeight      = 100
)

// Preferences returns what a valid job prefers. If the preferences cannot be parsed, it returns none.
func (s Spec) Preferences() []Preference {
	prefers, err := ParsePrefer(s.Prefer)
	if err != nil {
		return nil
	}
	for i := range prefers {
		prefers[i].Trusted = s.TrustedLabels
	}
	return prefers
}

// ParsePrefer parses preferences, with commas between them: EXPR[:WEIGHT],... Without a weight one counts 1. A number
// after the last colon is always the weight, so a label whose value ends in such a number needs a weight or parentheses.
func ParsePrefer(text string) ([]Preference, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if n := strings.Count(text, ",") + 1; n > MaxPreferences {
		return nil, fmt.Errorf("prefer: %d expressions; at most %d", n, MaxPreferences)
	}
	var out []Preference
	for part := range strings.SplitSeq(text, ",") {
		p := Preference{Text: strings.TrimSpace(part), Weight: 1}
		if i := strings.LastIndexByte(p.Text, ':'); i >= 0 {
			if n, err := strconv.ParseUint(p.Text[i+1:], 10, 31); err == nil {
				if n < 1 || n > maxWeight {
					return nil, fmt.Errorf("prefer %.60q: the weight %d is not between 1 and %d", p.Text, n, maxWeight)
				}
				p.Text, p.Weight = strings.TrimSpace(p.Text[:i]), int(n)
			}
		}
		if p.Text == "" {
			return nil, fmt.Errorf("prefer %.60q: an expression is missing; write it like rack=r1:2,nvlink", text)
		}
		var err error
		if p.Constraint, err = ParseConstraint(p.Text); err != nil {
			return nil, fmt.Errorf("prefer: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}
