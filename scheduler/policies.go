package scheduler

// Policies: which one places a job, and what they know of the usual requests.
// See docs/adr, ADR 83.

import (
	"cmp"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/policy"
	"github.com/musterhq/muster/scheduler/step"
)

// policies holds the placement policies.
type policies struct {
	named   map[string]policy.Policy
	single  string // the policy of jobs that name none and whose tasks run on one host
	typical policy.Typical
}

// checkPolicy refuses a job that names a policy that does not exist. If the job is refused already, the reason stays.
func checkPolicy(s job.Spec, refused error) error {
	if err := policy.Check(s.Policy); err != nil && refused == nil {
		return fmt.Errorf("%w: %w", step.ErrInvalid, err)
	}
	return refused
}

func newPolicies(cfg *step.Config) *policies {
	return &policies{named: policy.Named(), single: cmp.Or(cfg.Policy, policy.Default)}
}

// of returns the name of the policy of the job. A job of a newer version of muster may name a policy that is not known
// here. It then has the default.
func (ps *policies) of(s *job.Spec) string {
	switch {
	case ps.named[s.Policy] != nil:
		return s.Policy
	case s.Nodes > 1:
		return policy.DefaultOfGangs
	}
	return ps.single
}

// asked counts the request of a job that was submitted.
func (ps *policies) asked(s *job.Spec, tasks int) {
	ps.typical.Asked(s.Resources, tasks)
	ps.typical.Settle()
}
