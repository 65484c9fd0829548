package scheduler

// The known hosts: what follows when something is freed there, when one declines, and when a quota may be tried again.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
)

// hosts are the known hosts.
type hosts struct {
	*turn

	workers  map[job.Peer]*worker
	fleet    fleet.Table // the same, as a table to search
	freed    []*worker   // may take more than when the waiting tasks were last compared with them
	profiles uint64      // rises when the known hosts change
}

// askAgain has the waiting tasks compared with the host again at that time.
func (hs *hosts) askAgain(w *worker, when time.Time) {
	if w.askAt.After(hs.now) && !when.Before(w.askAt) {
		return // an earlier time is set; whatever must wait longer sets its own then
	}
	w.askAt = when
	hs.at(when, func() {
		if w.askAt.Equal(when) {
			w.askAt = time.Time{}
			w.Touch()
			hs.offerToFreed(w)
			if until := w.PausedUntil(); until.After(hs.now) { // the host has declined more since
				hs.askAgain(w, until)
			}
		}
	})
}

// missesMost is how often in a row a host may decline for lack of what it had reported as free: other schedulers may
// have been faster. After that it gets a pause.
const missesMost = 16

// missed notes that a host declined for lack of what it had reported as free, or that it did not let an offer queue.
// The host then gets a growing pause: at once if it lets nothing queue, else after missesMost times.
func (hs *hosts) missed(w *worker, o *offer) {
	times := w.Missed(&o.claim)
	if !o.queued() {
		times -= missesMost
	}
	if times <= 0 {
		return
	}
	until := hs.now.Add(backoff(times))
	w.Pause(until)
	hs.askAgain(w, until)
}

// anySlot draws where a search of the hosts begins: at a random slot if there are more of them than a search compares,
// so that schedulers do not all choose the same ones.
func (hs *hosts) anySlot() int {
	if n := hs.fleet.Slots(); n > place.SampleSize {
		return hs.rng.IntN(n)
	}
	return 0
}

func (hs *hosts) nameOf(p job.Peer) string {
	if w := hs.workers[p]; w != nil {
		return w.Name()
	}
	return p.Short()
}

// setWaitingForLease says which dispatches wait until the host has a lease.
func (hs *hosts) setWaitingForLease(w *worker, waiting []*dispatch) {
	w.waiting = waiting
	w.SetUnleased(len(waiting))
}

func (hs *hosts) availability(w *worker, m lease.Availability) {
	if !w.Availability(m) {
		return
	}
	hs.offerToFreed(w)
	for _, user := range m.UnderQuota {
		hs.easeQuota(w, user)
	}
}

// offerToFreed has the waiting tasks compared with a host where something was freed: it may take more than before.
func (hs *hosts) offerToFreed(w *worker) {
	if w.freed {
		w.again = true
		return
	}
	w.freed = true
	hs.freed = append(hs.freed, w)
}

// trusted has a host offered tasks again that had no lease.
func (hs *hosts) trusted(w *worker) {
	if w.Leased() {
		hs.offerToFreed(w)
	}
}

const (
	// quotaAgain is when a host that has not said that a user holds less is asked again, then after twice as long, up
	// to quotaAgainMost: a host of an older version does not say it.
	quotaAgain     = 5 * time.Minute
	quotaAgainMost = 40 * time.Minute
)

// refusedQuota remembers that the host refused the need to the user.
func (hs *hosts) refusedQuota(w *worker, user string, need job.Resources, why string) {
	times, forgotten := w.Quotas.Refuse(user, need, why)
	if forgotten != "" {
		hs.forgetQuota(w, forgotten)
	}
	hs.setQuotaTimer(w, user, doubled(quotaAgain, times, quotaAgainMost), hs.reopenQuota)
}

// setQuotaTimer replaces the timer of the user's quota at the host.
func (hs *hosts) setQuotaTimer(w *worker, user string, d time.Duration, do func(*worker, string)) {
	hs.stop(w.quotaTimers[user])
	w.quotaTimers[user] = hs.after(d, func() { do(w, user) })
}

// easeQuota hears from the host that the user holds less there.
func (hs *hosts) easeQuota(w *worker, user string) {
	w.Quotas.Ease(user)
	hs.reopenQuota(w, user)
}

// reopenQuota lets one task of the user ask the host again: the user may hold less there now.
func (hs *hosts) reopenQuota(w *worker, user string) {
	if w.Quotas.Open(user) {
		hs.setQuotaTimer(w, user, quotaAgainMost, hs.forgetQuota)
		hs.offerToFreed(w)
	}
}

// forgetQuota drops a refusal that nobody has asked about again.
func (hs *hosts) forgetQuota(w *worker, user string) {
	hs.stop(w.quotaTimers[user])
	delete(w.quotaTimers, user)
	w.Quotas.Forget(user)
	hs.offerToFreed(w)
}

// forgetQuotas drops all refusals of a host: its session is over.
func (hs *hosts) forgetQuotas(w *worker) {
	for _, t := range w.quotaTimers {
		hs.stop(t)
	}
	clear(w.quotaTimers)
	w.Quotas.Clear()
}

// probed ends a probe. One that was committed lets the next task ask.
func (hs *hosts) probed(o *offer) {
	if o.worker.Quotas.Probed(&o.claim) {
		hs.offerToFreed(o.worker)
	}
}
