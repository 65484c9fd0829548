package fleet

// Classes: which of the classes that hosts advertise is searched for a request.

import (
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ClassFor returns the class that is searched for hosts of a job. If the job names one host, it is the class of that
// name: a search of a wider class may not find the one host among many.
func ClassFor(s job.Spec) string {
	if len(s.NodeList) == 1 && job.CheckLabel(nameLabel, s.NodeList[0]) == nil {
		return lease.NameClass(s.NodeList[0])
	}
	return lease.ClassOf(s.Resources, demanded(s.Constraint))
}

// demanded returns the labels, with their values, that a host must have to meet the constraint. It is empty if the
// constraint is more than a list of labels that must all be there.
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
