package scheduler

// When a host that refused a user for a quota is asked again.

import (
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// quotaAgain is when a host that has not said that a user holds less is asked again, then after twice as long, up
	// to quotaAgainMost: a host of an older version does not say it.
	quotaAgain     = 5 * time.Minute
	quotaAgainMost = 40 * time.Minute
)

// refusedQuota remembers that the host refused the need to the user.
func (c *Core) refusedQuota(w *worker, user string, need job.Resources, why string) {
	times, forgotten := w.Quotas.Refuse(user, need, why)
	if forgotten != "" {
		c.forgetQuota(w, forgotten)
	}
	c.setQuotaTimer(w, user, doubled(quotaAgain, times, quotaAgainMost), c.reopenQuota)
}

// setQuotaTimer replaces the timer of the user's quota at the host.
func (c *Core) setQuotaTimer(w *worker, user string, d time.Duration, do func(*worker, string)) {
	c.stop(w.quotaTimers[user])
	w.quotaTimers[user] = c.after(d, func() { do(w, user) })
}

// easeQuota hears from the host that the user holds less there.
func (c *Core) easeQuota(w *worker, user string) {
	w.Quotas.Ease(user)
	c.reopenQuota(w, user)
}

// reopenQuota lets one task of the user ask the host again: the user may hold less there now.
func (c *Core) reopenQuota(w *worker, user string) {
	if w.Quotas.Open(user) {
		c.setQuotaTimer(w, user, quotaAgainMost, c.forgetQuota)
		c.offerToFreed(w)
	}
}

// forgetQuota drops a refusal that nobody has asked about again.
func (c *Core) forgetQuota(w *worker, user string) {
	c.stop(w.quotaTimers[user])
	delete(w.quotaTimers, user)
	w.Quotas.Forget(user)
	c.offerToFreed(w)
}

// forgetQuotas drops all refusals of a host: its session is over.
func (c *Core) forgetQuotas(w *worker) {
	for _, t := range w.quotaTimers {
		c.stop(t)
	}
	clear(w.quotaTimers)
	w.Quotas.Clear()
}

// probed ends a probe. One that was committed lets the next task ask.
func (c *Core) probed(o *offer) {
	if o.worker.Quotas.Probed(&o.claim) {
		c.offerToFreed(o.worker)
	}
}
