package scheduler

// Elections: the owner of a task chooses which of the hosts where the task waits keep for it what it needs.
// See docs/adr, ADR 168.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/step"
)

// elections choose the hosts at which tasks are booked: those that can show the earliest start, by the time limits of
// the tasks there. The elected hosts keep what the task needs, and all other hosts are told that they need not. If
// another host becomes better than an elected one by more than a margin, or an elected one is silent, the owner elects
// again.
type elections struct {
	*step.Turn
	hosts     *hosts
	offers    *offers
	setAsides *setAsides
}

const (
	// electionMargin and electionPart say how much earlier the start at another host must be for it to replace an elected
	// host: a time, and besides an eighth of what is left until the start at the elected host. Hosts report only changes
	// of a sixteenth.
	electionMargin = 10 * time.Second
	electionPart   = 8
	// electionSlack is how much later a task may start than its host had shown when it was elected. An eighth of the time
	// that was left until that start is added.
	electionSlack = 30 * time.Second
	// electionTrust is how often a host may miss the start that it has shown for an offer. After that it is no longer
	// elected for the offer. A host may miss a start only because tasks have come that go first.
	electionTrust = 4
	// electionNear bounds the time until the elected start within which hosts that show no start let go. If the start is
	// further away, they do not, because the task may start there sooner.
	electionNear = time.Hour
)

// lookAll holds elections for the tasks about which hosts have said something, and for those that have lost offers.
func (es *elections) lookAll() {
	for len(es.offers.news) > 0 {
		all := es.offers.news
		es.offers.news = nil
		for _, d := range all {
			d.news = false
			es.look(d)
		}
	}
}

// look elects the hosts of a task that waits, and tells the others whether they need to keep something for it.
//
// A host that is elected in place of another first has to say that it keeps what the task needs. Until then the other
// host keeps it, too. Otherwise later tasks could start at both in the meantime.
func (es *elections) look(d *dispatch) {
	if d.winner != nil || d.task.dispatch != d {
		return
	}
	e := &d.election
	booked := es.choose(d)
	if !sameOffers(booked, e.booked) {
		e.from = es.Now
	}
	e.far = es.far(e, booked)
	e.booked = booked
	e.agreed = len(booked) > 0 && !slices.ContainsFunc(booked, func(o *offer) bool { return o.expected.Elsewhere })
	wait := e.from.Add(e.patience(es.Now)).Sub(es.Now)
	flipped := false
	for _, o := range d.offers {
		if !o.queued() {
			continue
		}
		others := len(booked) > 0 && !slices.Contains(booked, o) && !o.preempts() && (o.showsStart || !e.far)
		before := o.elsewhere
		es.tell(o, others && (before || e.agreed && wait <= 0))
		flipped = flipped || before && !o.elsewhere
	}
	if flipped {
		e.flips, e.flipped = e.flips+1, es.Now
	}
	es.Stop(e.timer)
	if e.agreed && wait > 0 {
		e.timer = es.After(wait, func() { es.look(d) })
	}
}

// far reports whether the task starts so late that hosts that show no start need not let go. A small change of the
// start does not change the answer.
func (es *elections) far(e *election, booked []*offer) bool {
	near := electionNear
	if len(e.booked) > 0 && !e.far {
		near += near / electionPart
	}
	return slices.ContainsFunc(booked, func(o *offer) bool { return o.expected.start().Sub(es.Now) > near })
}

// sameOffers reports whether two lists have the same offers.
func sameOffers(a, b []*offer) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(o *offer) bool { return !slices.Contains(b, o) })
}

// choose returns the offers to the hosts that show the earliest starts; none if too few hosts show one.
func (es *elections) choose(d *dispatch) []*offer {
	lack := 1
	if d.gang != nil {
		n := d.seats()
		lack = d.gang.size - n[promised] - n[seated]
	}
	known := slices.DeleteFunc(slices.Clone(d.offers), func(o *offer) bool { return !o.queued() || o.expected.Start <= 0 || es.late(o) })
	if lack < 1 || len(known) < lack {
		return nil
	}
	slices.SortStableFunc(known, func(a, b *offer) int { return es.start(a).Compare(es.start(b)) })
	known = known[:lack]
	for _, o := range known {
		es.trust(o)
	}
	return known
}

// trust notes by when the task of an elected offer should have started, from the start that its host shows now. It does
// so when the offer is elected, and again whenever the noted time has passed.
func (es *elections) trust(o *offer) {
	if !o.due.IsZero() && !es.Now.After(o.due) {
		return
	}
	left := max(0, o.expected.start().Sub(es.Now))
	o.due = es.Now.Add(left + left/electionPart + electionSlack)
	o.dueTimes++
}

// late reports whether the task of an offer has failed to start at the time that its host had shown, electionTrust
// times. The host may be wrong, or lie, so it is no longer elected for this offer.
func (es *elections) late(o *offer) bool { return o.dueTimes >= electionTrust && es.Now.After(o.due) }

// start returns when the task of an offer should start, which is now if that time has passed. The start at an elected
// host counts as earlier, by the margin.
func (es *elections) start(o *offer) time.Time {
	at := o.expected.start()
	if at.Before(es.Now) {
		at = es.Now
	}
	if slices.Contains(o.dispatch.election.booked, o) {
		at = at.Add(-electionMargin - at.Sub(es.Now)/electionPart)
	}
	return at
}

// tell tells a host whether other hosts keep what the task needs, unless the host knows that already.
func (es *elections) tell(o *offer, elsewhere bool) {
	if o.elsewhere == elsewhere {
		return
	}
	o.markElsewhere(elsewhere)
	if elsewhere {
		o.expected.Elsewhere = o.expected.Start > 0 // it lets go now, and says later that it keeps it again
		if o.keeps {
			es.offers.unkeep(o)
		}
		es.hosts.offerToFreed(o.worker)
	} else if e := &o.dispatch.election; o.seat == nil && (e.far || len(e.booked) == 0) {
		es.setAsides.resume(o)
	}
	es.offers.sendOffer(o, queueWait)
}

// markElsewhere notes whether the host need not keep anything for the offer. The host learns that when the offer is
// sent.
func (o *offer) markElsewhere(elsewhere bool) {
	o.elsewhere, o.claim.Elsewhere = elsewhere, elsewhere
	o.worker.Touch()
}

// preempts reports whether preemptible tasks are to make room for the offer at its host.
func (o *offer) preempts() bool {
	return o.dispatch.preempt == o.worker.Host || o.seat != nil && o.seat.preempt
}
