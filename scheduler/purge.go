package scheduler

// Forgetting: jobs that ended long ago, or beyond the number that is kept.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// ending is the end of a job, by the drawn bits of its id.
type ending struct {
	number uint64
	at     int64 // ns since 1970, by this daemon's clock
}

const (
	purgeEvery = time.Hour
	purgeBatch = 256 // proposed at a time
)

// purgeOld proposes to forget what ended too long ago; the timer renews itself.
// An end that lies in the future, as a wall clock that was set back leaves it,
// counts from now.
func (c *Core) purgeOld() {
	now, n := c.steady().UnixNano(), 0
	for i := range c.ended {
		x := &c.ended[i]
		x.at = min(x.at, now)
		if n < purgeBatch && now-x.at >= int64(c.cfg.KeepFor) && c.purge(*x) {
			n++
		}
	}
	pause := purgeEvery
	if n >= purgeBatch {
		pause = retryWait
	}
	c.after(pause, c.purgeOld)
}

// steady is the wall clock at this daemon's start and the time since: one that
// nobody sets.
func (c *Core) steady() time.Time { return c.started.Add(c.now.Sub(c.started)) }

// purgeSurplus proposes to forget the oldest beyond the number that is kept.
func (c *Core) purgeSurplus() {
	surplus := len(c.ended) - c.cfg.KeepEnded
	for i := 0; i < min(surplus, purgeBatch); i++ {
		c.purge(c.ended[i])
	}
}

func (c *Core) purge(x ending) bool {
	if c.purging[x.number] || !c.lead {
		return false
	}
	c.purging[x.number] = true
	c.propose(job.PurgeRecord{Job: job.NewID(c.cfg.Group, x.number)})
	return true
}

// purged forgets what is known of a job beyond the journal, which has forgotten it.
func (c *Core) purged(id job.ID) {
	delete(c.jobs, id)
	number := id.Drawn()
	delete(c.purging, number)
	if i := slices.IndexFunc(c.ended, func(x ending) bool { return x.number == number }); i == 0 {
		c.ended = c.ended[1:] // as nearly always
	} else if i > 0 {
		c.ended = slices.Delete(c.ended, i, i+1)
	}
	c.fx.Gone = append(c.fx.Gone, id)
}

// endOf is when the job ended, as well as this daemon can tell.
func (c *Core) endOf(e *entry) time.Time {
	if at := e.job.ClosedAt(); !at.IsZero() {
		return at
	}
	return e.ended
}
