package scheduler

// The known hosts: what follows when one gets room, when one declines an offer, and when a user's quota may be tried
// again.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/shares"
	"github.com/musterhq/muster/scheduler/step"
)

const sessionWait = 5 * time.Second // for the renewal after a commit without a session

// hosts holds the known hosts.
type hosts struct {
	*step.Turn

	workers  map[job.Peer]*worker
	fleet    fleet.Table // the same hosts, for searches
	freed    []*worker   // hosts that may take more than when the waiting tasks were last compared with them
	profiles uint64      // rises when known hosts have changed so that reasons need to be worked out again
	timed    bool        // a host has said how long tasks may run there
}

// askAgain lets the waiting tasks be compared with the host again at this time.
func (hs *hosts) askAgain(w *worker, when time.Time) {
	if w.askAt.After(hs.Now) && !when.Before(w.askAt) {
		return // an earlier time is set: the tasks that have to wait longer set a later one then
	}
	w.askAt = when
	hs.At(when, func() {
		if w.askAt.Equal(when) {
			w.askAt = time.Time{}
			w.Touch()
			hs.offerToFreed(w)
			if until := w.PausedUntil(); until.After(hs.Now) { // the host has declined more since
				hs.askAgain(w, until)
			}
		}
	})
}

// missesMost is how often in a row a host may decline for lack of resources that it had reported as free, because other
// schedulers may have been faster. After that nothing is offered to the host for a while.
const missesMost = 16

// missed notes that a host declined an offer for lack of resources that it had reported as free, or that it did not let
// an offer queue. Then nothing is offered to the host for a growing pause: in the first case after missesMost times in
// a row, in the second at once.
func (hs *hosts) missed(w *worker, o *offer) {
	times := w.Missed(&o.claim)
	if !o.queued() {
		times -= missesMost
	}
	if times <= 0 {
		return
	}
	until := hs.Now.Add(backoff(times))
	w.Pause(until)
	hs.askAgain(w, until)
}

// anySlot draws where a search of the hosts begins: at a random slot if there are more of them than a search compares,
// so that schedulers do not all choose the same ones.
func (hs *hosts) anySlot() int {
	if n := hs.fleet.Slots(); n > place.SampleSize {
		return hs.Rand.IntN(n)
	}
	return 0
}

// nameOf returns the name of a host for people. The host need not be known.
func (hs *hosts) nameOf(p job.Peer) string {
	if w := hs.workers[p]; w != nil {
		return w.Name()
	}
	return p.Short()
}

// setWaitingForLease sets the dispatches that wait until the host has a lease.
func (hs *hosts) setWaitingForLease(w *worker, waiting []*dispatch) {
	w.waiting = waiting
	w.SetUnleased(len(waiting))
}

// availability takes in what the host says is free, unless it is older than what is known.
func (hs *hosts) availability(w *worker, m contract.Availability) {
	if !w.Availability(m) {
		return
	}
	hs.offerToFreed(w)
	for _, user := range m.UnderQuota {
		hs.easeQuota(w, user)
	}
}

// offerToFreed notes that a host may take more than before, so that the waiting tasks are compared with it.
func (hs *hosts) offerToFreed(w *worker) {
	if hs.workers[w.Peer] != w {
		return // a timer of a host that was forgotten
	}
	if w.freed {
		w.freedAgain = true
		return
	}
	w.freed = true
	hs.freed = append(hs.freed, w)
}

// sessionless notes that the host of an offer has committed without a live lease. It reports whether an answer to a
// renewal was sent since the offer and crossed the Commit, so that the host may have a lease now. If the host commits
// to a newer offer without a lease, that answer did not help, and only the next one ends the wait.
func (hs *hosts) sessionless(o *offer) (crossed bool) {
	w := o.worker
	if crossed = w.Leases > max(o.leases, w.uselessRenewals); crossed {
		w.Leased()
	} else {
		w.uselessRenewals = max(w.uselessRenewals, o.leases)
		w.Leaseless()
	}
	hs.After(sessionWait, func() { hs.trusted(w) })
	return crossed
}

// trusted ends the pause of a host that had no lease, so that tasks are offered to it again.
func (hs *hosts) trusted(w *worker) {
	if w.Leased() {
		hs.offerToFreed(w)
	}
}

const (
	// quotaAgain is after how long a host that refused a user is asked again, although it has not said that the user
	// holds less: hosts of an older version do not say it. The wait doubles with each refusal, up to quotaAgainMost.
	quotaAgain     = 5 * time.Minute
	quotaAgainMost = 40 * time.Minute
	// userAgain is the same for a host that has no account of the user. An account may be made at any time.
	userAgain     = time.Minute
	userAgainMost = 5 * time.Minute
)

// refusedUser notes that the host has no account of the user.
func (hs *hosts) refusedUser(w *worker, user string) {
	times, forgotten := fleet.RefuseUser(w.Host, user)
	if forgotten != "" {
		hs.forgetQuota(w, forgotten)
	}
	hs.profiles++ // tasks that wait may have another reason now
	hs.setQuotaTimer(w, user, doubled(userAgain, times, userAgainMost), hs.reopenQuota)
}

// taken notes that the host has committed to the offer. If it had no account of the user before, it has one now.
func (hs *hosts) taken(o *offer) {
	hs.probed(o)
	if user := o.claim.User; o.worker.Quotas.Lacked(user) {
		hs.forgetQuota(o.worker, user)
	}
}

// refusedQuota notes that the host refused the need because of the user's quota.
func (hs *hosts) refusedQuota(w *worker, user string, need job.Resources, why string) {
	times, forgotten := w.RefuseQuota(user, need, why)
	if forgotten != "" {
		hs.forgetQuota(w, forgotten)
	}
	hs.setQuotaTimer(w, user, doubled(quotaAgain, times, quotaAgainMost), hs.reopenQuota)
}

// setQuotaTimer sets the timer of the user's quota at the host, in place of the one before.
func (hs *hosts) setQuotaTimer(w *worker, user string, d time.Duration, do func(*worker, string)) {
	hs.Stop(w.quotaTimers[user])
	w.quotaTimers[user] = hs.After(d, func() { do(w, user) })
}

// easeQuota notes the host's word that the user holds less there.
func (hs *hosts) easeQuota(w *worker, user string) {
	w.Quotas.Ease(user)
	hs.reopenQuota(w, user)
}

// reopenQuota lets one task of the user be offered to the host again. That offer finds out whether the quota allows
// more now.
func (hs *hosts) reopenQuota(w *worker, user string) {
	if w.Quotas.Open(user) {
		hs.profiles++
		hs.setQuotaTimer(w, user, quotaAgainMost, hs.forgetQuota)
		hs.offerToFreed(w)
	}
}

// forgetQuota forgets what the host refused to the user.
func (hs *hosts) forgetQuota(w *worker, user string) {
	hs.Stop(w.quotaTimers[user])
	delete(w.quotaTimers, user)
	w.Quotas.Forget(user)
	hs.profiles++
	hs.offerToFreed(w)
}

// forgetQuotas forgets all that the host refused, because its session is over.
func (hs *hosts) forgetQuotas(w *worker) {
	for _, t := range w.quotaTimers {
		hs.Stop(t)
	}
	clear(w.quotaTimers)
	w.Quotas.Clear()
}

// probed ends the probe of a quota if the offer is one. The next task of the user may be offered to the host then.
func (hs *hosts) probed(o *offer) {
	if o.worker.Quotas.Probed(&o.claim) {
		hs.offerToFreed(o.worker)
	}
}

// delivers returns the GPUs and CPUs of all known hosts.
func (hs *hosts) delivers() (all fairshare.Use) {
	for _, w := range hs.workers {
		all = all.Plus(shares.Deliver(&w.Profile), 1) // whole numbers, so that their order does not matter
	}
	return all
}
