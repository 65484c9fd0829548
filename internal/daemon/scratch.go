package daemon

// How much of this host's disk the tasks of one user may hold.

import (
	"fmt"
	"sync/atomic"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/resources"
)

// scratchQuota holds the quotas of users. Its methods are safe for concurrent use.
type scratchQuota struct {
	half   job.Size // half of the file system: the quota of users for whom no limit is set
	limits atomic.Pointer[resources.Limits]
}

func newScratchQuota(cfg Config, disk job.Size) (*scratchQuota, error) {
	limits, err := resources.ParseLimits(cfg.Limits)
	if err != nil {
		return nil, err
	}
	q := &scratchQuota{half: disk / 2}
	q.limits.Store(&limits)
	return q, nil
}

// set replaces the limits for the tasks that start from now on.
func (q *scratchQuota) set(l resources.Limits) { q.limits.Store(&l) }

// of returns the quota of a user; 0: none.
func (q *scratchQuota) of(user string) job.Size {
	if most, limited := q.limits.Load().Scratch(user); limited {
		return most
	}
	return q.half
}

// scratchFact describes the quotas for muster doctor.
func scratchFact(cfg Config) api.Fact {
	each := "half of the file system"
	if l, err := resources.ParseLimits(cfg.Limits); err == nil {
		if most, limited := l.Scratch(""); limited {
			each = most.String()
		}
	}
	text := each + " for all tasks of a user"
	if cfg.Scratch > 0 {
		text += fmt.Sprintf(", %s for each task", cfg.Scratch)
	}
	return api.Fact{Name: "scratch", State: api.FactOK, Detail: text + "; running tasks that exceed it are ended, the largest first"}
}
