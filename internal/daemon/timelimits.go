package daemon

// The time limit of jobs without one, and the limits of users that are checked when a job is submitted.

import (
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/resources"
)

// jobLimits returns the limits of users that the daemon which accepts a job enforces: the longest time limit, and what the
// user's tasks may hold in the cluster. It is nil if there are none.
func jobLimits(l resources.Limits) *contract.UserLimits {
	of := func(l contract.Limit) contract.Limit {
		out := contract.Limit{}
		for _, q := range append([]contract.Quantity{contract.LimitTime}, contract.ClusterQuantities...) {
			if most, set := l[q]; set {
				out[q] = most
			}
		}
		return out
	}
	out := &contract.UserLimits{PerUser: of(l.PerUser), Users: map[string]contract.Limit{}}
	for user, own := range l.Users {
		if own = of(own); len(own) > 0 {
			out.Users[user] = own
		}
	}
	if len(out.PerUser)+len(out.Users) == 0 {
		return nil
	}
	return out
}

// timeLimits says which time limit a job without one gets. It is safe for concurrent use.
type timeLimits struct {
	usual  job.Duration // 0: none
	limits atomic.Pointer[contract.UserLimits]
}

func newTimeLimits(cfg Config, l resources.Limits) *timeLimits {
	t := &timeLimits{usual: cfg.DefaultTime}
	t.set(l)
	return t
}

// set replaces the limits for the jobs that are submitted from now on.
func (t *timeLimits) set(l resources.Limits) { t.limits.Store(jobLimits(l)) }

// of returns the time limit for a user's job without one: that of the setting or the longest that the user may have,
// whichever is shorter. 0: none.
func (t *timeLimits) of(user string) job.Duration {
	seconds, _, limited := t.limits.Load().Most(user, contract.LimitTime)
	most := job.Duration(time.Duration(seconds) * time.Second)
	if !limited || t.usual > 0 && t.usual < most {
		return t.usual
	}
	return most
}
