package scheduler

// Forgetting: jobs that ended long ago, or beyond the number that is kept.

import (
	"time"

	"github.com/musterhq/muster/job"
)

const (
	purgeEvery = time.Hour
	purgeBatch = 256 // proposed at a time
)

// purgeOld proposes to forget what ended too long ago; the timer renews itself.
func (c *Core) purgeOld() {
	n := 0
	for _, e := range c.ended {
		if n >= purgeBatch || c.now.Sub(c.endOf(e)) < c.cfg.KeepFor {
			break
		}
		if c.purge(e) {
			n++
		}
	}
	pause := purgeEvery
	if n >= purgeBatch {
		pause = retryWait
	}
	c.after(pause, c.purgeOld)
}

// purgeSurplus proposes to forget the oldest beyond the number that is kept.
func (c *Core) purgeSurplus() {
	surplus := len(c.ended) - c.cfg.KeepEnded
	for i := 0; i < min(surplus, purgeBatch); i++ {
		c.purge(c.ended[i])
	}
}

func (c *Core) purge(e *entry) bool {
	if e.purging || !c.lead {
		return false
	}
	e.purging = true
	c.propose(job.Record{Purge: &job.PurgeRecord{Job: e.job.ID}})
	return true
}

// endOf is when the job ended, as well as this daemon can tell.
func (c *Core) endOf(e *entry) time.Time {
	if at := endedAt(&e.job); !at.IsZero() {
		return at
	}
	return e.ended
}
