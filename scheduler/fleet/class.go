package fleet

// Classes: in which class of hosts, as hosts advertise them, a request is looked for.

import (
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ClassFor is the class of hosts that a request is looked for in: that of the one
// name that it lists, which a search of a wider class may not turn up among many.
func ClassFor(s job.Spec) string {
	if len(s.NodeList) == 1 && job.CheckLabel(nameLabel, s.NodeList[0]) == nil {
		return lease.NameClass(s.NodeList[0])
	}
	return lease.ClassOf(s.Resources, demanded(s.Constraint))
}

// demanded are the labels that a constraint demands with their values, if it
// is nothing but such demands.
func demanded(constraint string) map[string]string {
	c, err := job.ParseConstraint(constraint)
	if err != nil || strings.ContainsAny(constraint, "|!") {
		return nil
	}
	out := map[string]string{}
	for _, term := range c.Terms() {
		if k, v, ok := strings.Cut(term, "="); ok && k != nameLabel {
			out[k] = v
		}
	}
	return out
}
