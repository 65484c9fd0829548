package worker

// Wound-wait: an offer takes back the reservations of gangs that rank after it, so that gangs do not wait for each other.
// See docs/adr, ADR 89.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// wounds revokes reservations of gangs.
type wounds struct {
	account      *resources.Account
	queue        *admission.Queue
	attempts     *attempts
	reservations *reservations
}

// revoke takes back as few reservations of gangs as the offer needs to fit, the last by rank first. It takes back none if
// all would not be enough. enough is true if only the quota of the offer's user might be missing.
func (w *wounds) revoke(now leaseclock.Moment, o *admission.Offer) (done, enough bool) {
	held := w.held(now, o)
	if len(held) == 0 || !w.fits(o, held) {
		return false, false
	}
	if !w.allowed(o, held) {
		return false, true
	}
	w.take(o, fewest(held, func(some []*attempt) bool { return w.fits(o, some) && w.allowed(o, some) }))
	return true, true
}

// fewest returns a part of the attempts with which a condition is still met; it must be met with all of them. No attempt
// of the part could be left out. fewest tries to leave out the last ones first.
func fewest(all []*attempt, met func([]*attempt) bool) []*attempt {
	some := all
	for i := range slices.Backward(all) {
		if rest := slices.Delete(slices.Clone(some), i, i+1); met(rest) {
			some = rest
		}
	}
	return some
}

// held returns the reservations that an offer may take back, the last by rank first.
func (w *wounds) held(now leaseclock.Moment, o *admission.Offer) (out []*attempt) {
	for _, p := range w.queue.Gangs.After(o) {
		if p.State != admission.Reserved || !admission.MayRevoke(now, o, p) {
			continue
		}
		if a := w.attempts.by[p.Msg.Attempt]; a.phase == reserving || a.phase == reserved {
			out = append(out, a)
		}
		if len(out) == maxVictims {
			break
		}
	}
	return out
}

// fits reports whether the offer would fit without these attempts.
func (w *wounds) fits(o *admission.Offer, without []*attempt) bool {
	letGo(w.account, without)
	defer takeBack(w.account, without)
	_, fits := w.account.Capacity.Choose(o.Msg.Need, o.Msg.Device)
	return fits
}

// allowed reports whether the offer would be within its user's quota without these attempts.
func (w *wounds) allowed(o *admission.Offer, without []*attempt) bool {
	held := make([]*contract.Record, len(without))
	for i, a := range without {
		held[i] = &a.rec
	}
	return w.account.Allows(o.Msg.User, o.Msg.Need, held)
}

// take revokes reservations for an offer.
func (w *wounds) take(o *admission.Offer, held []*attempt) {
	for _, a := range held {
		w.reservations.revoke(a, contract.Clip(fmt.Sprintf(
			"task %s of %s, priority %d, goes first and got the place of this gang", o.Msg.Attempt, o.Msg.User, o.Msg.Priority)))
	}
}

// letGo frees what attempts hold, until takeBack. The usage of users stays.
func letGo(from *resources.Account, as []*attempt) {
	for _, x := range as {
		from.SetAside(&x.rec)
	}
}

func takeBack(to *resources.Account, as []*attempt) {
	for _, x := range as {
		to.TakeBack(&x.rec)
	}
}
