package admission

// Gangs: the offers to members of gangs that are queued or hold a place here, in their order. When a gang has held a
// place in vain, single tasks go first for as long as it held the place, if their priority is not lower.
// See docs/adr, ADR 89, ADR 125 and ADR 167.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// gangs are the offers to members of gangs that wait, are reserved, or have a conditional Commit.
type gangs struct {
	ranked []*Offer         // in the order of rank
	held   map[job.Peer]int // number of reserved ones by scheduler
	others others
}

func newGangs() gangs { return gangs{held: map[job.Peer]int{}} }

// compareGangs is the order of gangs that is the same at all hosts, whenever their offers come: priority, Order, name.
func compareGangs(a, b *Offer) int {
	return cmp.Or(cmp.Compare(b.Msg.Precedence(), a.Msg.Precedence()), cmp.Compare(a.Msg.Order, b.Msg.Order), CompareAttempts(a.Msg.Attempt, b.Msg.Attempt))
}

// add adds an offer. Of two gangs with the same priority, the one that is first in order must go first at every host, or
// two gangs could wait for each other for ever, each with a reservation that the other needs. The ages alone do not
// ensure that, because the time for which an offer travels differs from host to host. So the time of submission is moved
// between those of the gangs before and after it.
func (s *gangs) add(o *Offer) {
	i, _ := slices.BinarySearchFunc(s.ranked, o, compareGangs)
	if i > 0 && s.ranked[i-1].Msg.Precedence() == o.Msg.Precedence() {
		o.submitted = max(o.submitted, s.ranked[i-1].submitted)
	}
	for ; i < len(s.ranked) && s.ranked[i].Msg.Precedence() == o.Msg.Precedence(); i++ {
		if compareGangs(s.ranked[i], o) > 0 {
			o.submitted = min(o.submitted, s.ranked[i].submitted)
			break
		}
	}
	i, _ = slices.BinarySearchFunc(s.ranked, o, rank)
	s.ranked = slices.Insert(s.ranked, i, o)
	s.settle()
}

// settle computes lead and last of all gangs. lead is the earliest turn of the gang and of those after it with the same
// precedence. last is the last one, by use, of the gang and of those before it with the same precedence.
func (s *gangs) settle() {
	for i, o := range slices.Backward(s.ranked) {
		o.lead = o.turn
		if i+1 == len(s.ranked) || s.ranked[i+1].Msg.Precedence() != o.Msg.Precedence() {
			continue
		}
		if next := s.ranked[i+1].lead; compareTurns(next, o.lead) < 0 {
			o.lead = next
		}
	}
	for i, o := range s.ranked {
		o.last = o
		if i > 0 && s.ranked[i-1].Msg.Precedence() == o.Msg.Precedence() && byUse(s.ranked[i-1].last, o) > 0 {
			o.last = s.ranked[i-1].last
		}
	}
}

// remove removes an offer that is answered or withdrawn.
func (s *gangs) remove(o *Offer) {
	if i, found := slices.BinarySearchFunc(s.ranked, o, rank); found {
		s.ranked = slices.Delete(s.ranked, i, i+1)
	}
	o.last = o // so that it keeps no others in memory
}

// hold counts an offer that gets a reservation, or with -1 loses it.
func (s *gangs) hold(o *Offer, sign int) {
	if s.held[o.Key.Peer] += sign; s.held[o.Key.Peer] == 0 {
		delete(s.held, o.Key.Peer)
	}
}

// After returns the offers that go after o, the last one first.
func (s *gangs) After(o *Offer) []*Offer {
	i, _ := slices.BinarySearchFunc(s.ranked, o, precede)
	out := slices.Clone(s.ranked[i:])
	slices.Reverse(out)
	return out
}

// Offers returns all of them, in the order of rank.
func (s *gangs) Offers() []*Offer { return slices.Clone(s.ranked) }

// HeldInVain notes that the reservation of an offer ends without a start. turn is the length of a first turn.
func (s *gangs) HeldInVain(now leaseclock.BootTime, o *Offer, turn time.Duration) {
	s.others.heldInVain(now, o, turn)
}

// Started notes that a gang starts here.
func (s *gangs) Started() { s.others.started() }

// firm returns the queued offers for which tasks are ended.
func (s *gangs) firm() (out []*Offer) {
	for _, o := range s.ranked {
		if o.Firm && o.State == Queued {
			out = append(out, o)
		}
	}
	return out
}

// sameGang reports whether two offers are to members of one gang.
func sameGang(a, b *Offer) bool {
	n := b.Msg.Gang
	return n > 0 && a.Msg.Gang == n && a.Msg.Attempt.Job == b.Msg.Attempt.Job && a.Msg.Attempt.Task/n == b.Msg.Attempt.Task/n
}

// MayRevoke reports whether an offer may take away what a gang's offer holds: a reservation without a Start, or the
// promise of a conditional Commit. Only an offer that goes before the gang's offer may. The offer of another gang may at
// once. So two gangs never wait for each other: the one that ranks first does not wait for what the other holds. A single
// task may once the gang has gathered for as long as a single task holds a reservation. So single tasks do not break up
// gangs that gather quickly, and do not starve behind a gang that renews its offers. After Firm no offer may: all members
// have committed, and tasks are being ended for them.
func MayRevoke(now leaseclock.Moment, o, gang *Offer) bool {
	switch {
	case gang.Msg.Gang == 0 || gang.Firm || sameGang(o, gang) || precede(o, gang) >= 0:
		return false
	case o.Msg.Gang > 0:
		return true
	}
	return gang.Since != 0 && now.Boot >= gang.Since.Add(contract.ReserveFor)
}

// HoldOf returns how long a Commit of an offer holds devices.
func HoldOf(m *contract.Offer) time.Duration {
	if m.Gang == 0 || m.Hold <= 0 {
		return contract.ReserveFor
	}
	return min(m.Hold, maxHold)
}

// HeldUntil returns when the reservation of an offer, or the promise of its conditional Commit, ends unless the offer
// comes again.
func (o *Offer) HeldUntil(now leaseclock.Moment) leaseclock.BootTime {
	until := now.Boot.Add(HoldOf(&o.Msg))
	if o.Msg.Gang > 0 && o.Since != 0 {
		until = min(until, o.Since.Add(MaxGather))
	}
	return until
}

// RankZero reports whether the offer is to the member of a gang on whose host all members meet.
func (o *Offer) RankZero() bool { return o.Msg.Gang > 0 && o.Msg.Attempt.Task%o.Msg.Gang == 0 }

// others is the time in which offers of single tasks go before those of gangs. It begins when a gang gives back a place
// without a start, and is as long as the gang held the place. Without it, gangs that all lack another host would hold
// what is free here by turns, and nothing would ever run on it.
type others struct {
	until      leaseclock.BootTime
	precedence int                 // gangs of a higher one need not wait
	turns      rota                // since a place was held in vain for the first time; see HeldInVain
	last       leaseclock.BootTime // when one was held in vain for the last time
}

// unstartedForgotten is how long no place must be held in vain for the turns to restart. If the turns have lasted longer, that
// time counts instead.
const unstartedForgotten = 24 * time.Hour

// heldInVain notes that the reservation of an offer ends without a start. If tasks are ordered by level, single tasks and
// gangs go first by turns from then on; turn is the length of the first turn.
func (t *others) heldInVain(now leaseclock.BootTime, o *Offer, turn time.Duration) {
	if o.Msg.Gang == 0 || o.Since == 0 || now.Sub(o.Since) < contract.ReserveFor {
		return
	}
	if t.until <= now {
		t.precedence = 0
	}
	if t.turns.since == 0 || now.Sub(t.last) > max(unstartedForgotten, t.last.Sub(t.turns.since)) {
		t.turns = rota{since: now, first: turn}
	}
	t.last = now
	t.until = max(t.until, now.Add(now.Sub(o.Since)))
	t.precedence = max(t.precedence, o.Msg.Precedence())
}

// started notes that a gang starts here, and resets everything.
func (t *others) started() { *t = others{} }

// before reports whether an offer to a gang's member is decided only after those of single tasks of its priority.
func (t *others) before(now leaseclock.BootTime, o *Offer) bool {
	if o.Msg.Gang == 0 || o.Preempted || o.Conditional || now >= t.until || o.Msg.Precedence() > t.precedence {
		return false
	}
	kept, _ := t.turns.at(now)
	return !kept || o.Msg.Work.By != contract.ByAge
}
