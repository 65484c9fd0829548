package scheduler

// Estimates: when waiting tasks should start, by what hosts expect of their offers.
// See docs/adr, ADR 91 and ADR 168.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// expect takes in when the host expects to start its queued offers. The host may be wrong: elections stop relying on it
// if its forecasts do not come true.
func (os *offers) expect(w *worker, all []contract.Forecast) {
	for _, f := range all {
		if o := os.byID[f.Offer]; o != nil && o.worker == w && o.queued() {
			o.expected = expectation{f, os.Now}
			o.showsStart = f.Start > 0 || o.showsStart && o.elsewhere
			os.hear(o.dispatch)
		}
	}
}

// soonest returns the offer by which to estimate when a waiting task starts. If hosts are elected, it is the one of
// them with the latest start. For another gang it is that of lastSeat. For another task it is the offer with the
// earliest start, or else one about which its host has said something. It is nil if there is none.
func soonest(t *task) (best *offer) {
	if t.dispatch == nil {
		return nil
	}
	if booked := t.dispatch.election.booked; len(booked) > 0 {
		return slices.MaxFunc(booked, func(a, b *offer) int { return a.expected.start().Compare(b.expected.start()) })
	}
	if t.dispatch.gang != nil {
		return lastSeat(t.dispatch)
	}
	for _, o := range t.dispatch.offers {
		switch at := o.expected.start(); {
		case o.expected.heard.IsZero() || !o.queued():
		case best == nil, !at.IsZero() && (best.expected.start().IsZero() || at.Before(best.expected.start())):
			best = o
		}
	}
	return best
}

// lastSeat returns the queued offer with which the last member of a gang should get its place, if the members without a
// place get the earliest ones. It is nil if too few hosts expect a start.
func lastSeat(d *dispatch) *offer {
	n := d.seats()
	lack := d.gang.size - n[promised] - n[seated]
	starts := slices.DeleteFunc(slices.Clone(d.offers), func(o *offer) bool { return !o.queued() || o.expected.start().IsZero() })
	if lack < 1 || len(starts) < lack {
		return nil
	}
	slices.SortStableFunc(starts, func(a, b *offer) int { return a.expected.start().Compare(b.expected.start()) })
	return starts[lack-1]
}

// estimate returns when a waiting task should start at the latest, by the wall clock; zero if that is not known.
func estimate(es *entries, t *task) time.Time {
	o := soonest(t)
	if o == nil || o.expected.Start <= 0 {
		return time.Time{}
	}
	return es.wall().Add(max(0, o.expected.start().Sub(es.Now))).Round(time.Second)
}

// addEstimate adds to the reason of a waiting task what is known of its start.
func addEstimate(es *entries, t *task, why job.Reason) job.Reason {
	o := soonest(t)
	if o == nil || !slices.Contains([]string{job.ReasonResources, job.ReasonPriority, job.ReasonGangWaiting}, why.Word) {
		return why
	}
	host, text := o.worker.Name(), ""
	left := func(d time.Duration) time.Duration {
		return max(0, o.expected.heard.Add(d).Sub(es.Now)).Round(time.Second)
	}
	switch x := &o.expected; {
	case x.Start > 0 && left(x.Start) > 0:
		text = fmt.Sprintf("starts within %s on %s, by the time limits of the tasks there", left(x.Start), host)
	case x.Start > 0:
		text = fmt.Sprintf("a task on %s runs past its time limit", host)
	case x.Kept > 0:
		text = fmt.Sprintf("%s keeps what is free for it for %s more; its start is unknown, because tasks there have no time limit", host, left(x.Kept))
	case x.Shared > 0:
		text = fmt.Sprintf("%s lets others have what is free for %s more; its start is unknown, because tasks there have no time limit", host, left(x.Shared))
	default:
		return why
	}
	why.Detail = contract.Clip(cmp.Or(why.Detail, host) + "; " + text)
	return why
}

// earliest returns the earlier of two times; a zero time stands for none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// estimatedTasks is how many tasks of a job are looked at for the estimate of its start.
const estimatedTasks = 64

// estimateOf returns when the first of the waiting tasks of a job should start. It looks only at the first
// estimatedTasks tasks.
func estimateOf(es *entries, e *entry) (first time.Time) {
	for _, t := range e.tasks[:min(len(e.tasks), estimatedTasks)] {
		if t.dispatch != nil && !t.durable().Assigned {
			first = earliest(first, estimate(es, t))
		}
	}
	return first
}
