package scheduler

// Quotas: that a user may not hold more at a host is a fact about the two. It is
// kept at the host, so that all his tasks know it and one asks for all.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// quotaMost bounds the needs that are remembered as refused for one user at
	// one host.
	quotaMost = 8
	// quotaAgain is when a host that has not said that a user holds less is asked
	// again, then after twice as long, up to quotaAgainMost: one of an older version does
	// not say it.
	quotaAgain     = 5 * time.Minute
	quotaAgainMost = 40 * time.Minute
	// maxQuotas bounds the users of whom a host's refusals are remembered.
	maxQuotas = 1024
)

// quota is what a host refused to one user for the sum of what he holds there.
type quota struct {
	refused []job.Resources // he gets none of these, nor more
	probe   uint64          // the offer that finds out whether he does now; 0: none
	open    bool            // the host has said that he holds less: a probe may go
	why     string          // the host's own word, for people
	asked   int             // times in vain, since the host last said so
	timer   *timer
}

// covers says whether the host refused this need, or one that is no larger.
func (q *quota) covers(need job.Resources) bool {
	return slices.ContainsFunc(q.refused, func(r job.Resources) bool {
		return r.CPUs <= need.CPUs && r.Memory <= need.Memory && milliOf(r) <= milliOf(need)
	})
}

// milliOf is how many thousandths of devices the need holds.
func milliOf(need job.Resources) int { return gpusOf(need) * shareMilli(need) }

// overQuota is why the host would refuse the task for what its user holds there;
// empty if it is not known to, or if this task may find out.
func (w *worker) overQuota(t *task) string {
	q := w.quotas[t.e.job.User]
	if q == nil || !q.covers(t.group.need) || q.open && q.probe == 0 {
		return ""
	}
	return q.why
}

// refusedQuota remembers that the host refused the need to the user.
func (c *Core) refusedQuota(w *worker, user string, need job.Resources, why string) {
	q := w.quotas[user]
	if q == nil {
		if len(w.quotas) >= maxQuotas {
			c.easeOldest(w)
		}
		q = &quota{}
		w.quotas[user] = q
	}
	q.open, q.probe = false, 0
	if q.why = why; why == "" {
		q.why = "its user holds enough there"
	}
	if !q.covers(need) {
		q.refused = slices.DeleteFunc(q.refused, func(r job.Resources) bool {
			return need.CPUs <= r.CPUs && need.Memory <= r.Memory && milliOf(need) <= milliOf(r)
		})
		if len(q.refused) >= quotaMost { // one need that is no larger than two of them stands for both
			last := q.refused[len(q.refused)-1]
			need = smaller(last, need)
			q.refused = q.refused[:len(q.refused)-1]
		}
		q.refused = append(q.refused, need)
	}
	c.stop(q.timer)
	q.asked++
	q.timer = c.after(doubled(quotaAgain, q.asked, quotaAgainMost), func() { c.reopenQuota(w, user) })
}

func smaller(a, b job.Resources) job.Resources {
	if milliOf(b) < milliOf(a) {
		a.GPUs, a.GPUShare = b.GPUs, b.GPUShare
	}
	a.CPUs, a.Memory = min(a.CPUs, b.CPUs), min(a.Memory, b.Memory)
	return a
}

// easeQuota hears from the host that the user holds less there.
func (c *Core) easeQuota(w *worker, user string) {
	if q := w.quotas[user]; q != nil {
		q.asked = 0
		c.reopenQuota(w, user)
	}
}

// reopenQuota lets one task of the user ask the host again: he may hold less there
// now.
func (c *Core) reopenQuota(w *worker, user string) {
	q := w.quotas[user]
	if q == nil {
		return
	}
	q.open = true
	c.stop(q.timer)
	q.timer = c.after(quotaAgainMost, func() { c.forgetQuota(w, user) })
	c.freed(w)
}

// forgetQuota drops a refusal that nobody has asked about again.
func (c *Core) forgetQuota(w *worker, user string) {
	if q := w.quotas[user]; q != nil {
		c.stop(q.timer)
		delete(w.quotas, user)
		c.freed(w)
	}
}

// easeOldest makes room for another user: the one who was refused longest ago is
// forgotten.
func (c *Core) easeOldest(w *worker) {
	oldest := ""
	for user, q := range w.quotas {
		if o := w.quotas[oldest]; o == nil || q.timer.seq < o.timer.seq {
			oldest = user
		}
	}
	c.forgetQuota(w, oldest)
}

// forgetQuotas drops all refusals of a host: its session is over.
func (c *Core) forgetQuotas(w *worker) {
	for _, q := range w.quotas {
		c.stop(q.timer)
	}
	clear(w.quotas)
}

// probes notes that an offer finds out for its user's other tasks whether he may
// hold more there.
func (w *worker) probes(o *offer) {
	t := o.flight.task
	if q := w.quotas[t.e.job.User]; q != nil && q.open && q.covers(t.group.need) {
		q.probe = o.id
	}
}

// isProbe says whether the offer is the probe of its user's quota.
func (w *worker) isProbe(o *offer) bool {
	q := w.quotas[o.flight.task.e.job.User]
	return q != nil && q.probe == o.id
}

// probed ends a probe. One that was committed lets the next task ask.
func (c *Core) probed(w *worker, o *offer) {
	if w.isProbe(o) {
		w.quotas[o.flight.task.e.job.User].probe = 0
		c.freed(w)
	}
}
