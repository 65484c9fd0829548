// Package admission decides which offers of schedulers get what is free on this host, in which order, and what is kept for those
// that do not fit. It knows neither attempts nor journal groups: the core tells it what attempts give back, and carries out what
// it decides.
package admission

// The queue of offers: its order, renewals, and its bounds.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// Queue holds the offers of all schedulers.
type Queue struct {
	turn     *step.Turn
	meter    *resources.Meter
	offers   map[Key]*Offer         // offers that are queued, reserved or lapsed
	ranked   []*Offer               // queued offers in the order of precede; removed ones stay until the next sweep
	waiting  int                    // number of queued offers
	unsorted bool                   // ranked is to be sorted
	turns    uint64                 // counts the turns that offers got
	perPeer  map[job.Peer]int       // number of queued offers by scheduler
	lapsed   map[job.Attempt]*Offer // offers whose reservation has lapsed, for a Start that comes late
	Gangs    gangs
}

// NewQueue returns an empty queue.
func NewQueue(t *step.Turn, m *resources.Meter) *Queue {
	return &Queue{
		turn: t, meter: m, offers: map[Key]*Offer{}, perPeer: map[job.Peer]int{}, lapsed: map[job.Attempt]*Offer{}, Gangs: newGangs(),
	}
}

// Add queues an offer.
func (q *Queue) Add(now leaseclock.Moment, key Key, m contract.Offer) {
	o := &Offer{
		Key: key, Msg: m,
		submitted: now.Boot.Add(-min(max(m.Age, 0), MaxAge)), until: now.Boot.Add(waitOf(m)),
	}
	o.standing = q.meter.Standing(o.account())
	if m.Gang > 0 {
		q.Gangs.add(o)
		q.unsorted = true
	}
	i, _ := slices.BinarySearchFunc(q.ranked, o, precede)
	q.ranked = slices.Insert(q.ranked, i, o)
	q.offers[key] = o
	q.perPeer[key.Peer]++
	q.waiting++
	q.turn.Arbitrate()
}

func waitOf(m contract.Offer) time.Duration { return min(max(m.Wait, 0), contract.MaxOfferWait) }

// Same reports whether a message repeats this offer.
func (o *Offer) Same(m contract.Offer) bool {
	return m.Need == o.Msg.Need && m.Attempt == o.Msg.Attempt && m.User == o.Msg.User && m.Project == o.Msg.Project && m.Priority == o.Msg.Priority &&
		m.Gang == o.Msg.Gang && m.Order == o.Msg.Order && m.Limit == o.Msg.Limit && m.Level == o.Msg.Level && m.Work == o.Msg.Work
}

// Renew lets a queued offer wait longer, in the same place. The scheduler sends the same offer again for that. A message
// with another content is ignored.
func (q *Queue) Renew(now leaseclock.Moment, o *Offer, m contract.Offer) {
	if !o.Same(m) {
		return
	}
	o.Msg.Epoch = m.Epoch // the owner may have been elected again meanwhile
	if m.Preempt && !o.Msg.Preempt {
		o.Msg.Preempt = true
		q.turn.Arbitrate()
	}
	if m.Firm && o.Conditional && !o.Firm {
		o.Firm = true
		q.turn.Arbitrate()
	}
	if m.Spare != o.Msg.Spare || m.Elsewhere != o.Msg.Elsewhere {
		if m.Elsewhere != o.Msg.Elsewhere {
			o.sentForecast.elsewhere = !m.Elsewhere // its scheduler waits for the answer, even if it has changed its mind twice
		}
		o.Msg.Spare, o.Msg.Elsewhere = m.Spare, m.Elsewhere
		q.turn.Arbitrate()
	}
	o.Msg.Hold = m.Hold
	q.waitUntil(o, now.Boot.Add(waitOf(m)))
	if o.Conditional {
		q.waitUntil(o, o.HeldUntil(now))
	}
}

// waitUntil lets a queued offer wait until then, if it does not wait longer already.
func (q *Queue) waitUntil(o *Offer, until leaseclock.BootTime) {
	if o.Conditional {
		until = min(until, o.Since.Add(MaxGather))
	}
	if until <= o.until {
		return
	}
	o.until = until
	if o.Timer != nil {
		q.turn.Timers.Stop(o.Timer)
		q.EndWait(o)
	}
}

// EndWait sets a timer that causes an arbitration when the wait of an offer is over.
func (q *Queue) EndWait(o *Offer) {
	o.Timer = q.turn.Timers.Set(o.until, func(leaseclock.Moment) {
		if o.State == Queued {
			q.turn.Arbitrate()
		}
	})
}

// Remove removes an offer from the queue. The next sweep removes it from ranked. What its conditional Commit promised is
// free for others, because the offer is not queued any more.
func (q *Queue) Remove(o *Offer) {
	if o.State != Queued {
		return
	}
	if o.Msg.Gang > 0 {
		q.Gangs.remove(o)
		q.unsorted = true
	}
	o.State, o.Conditional, o.Promised = Gone, false, nil
	q.waiting--
	q.turn.Timers.Stop(o.Timer)
	delete(q.offers, o.Key)
	if q.perPeer[o.Key.Peer]--; q.perPeer[o.Key.Peer] == 0 {
		delete(q.perPeer, o.Key.Peer)
	}
	q.turn.Arbitrate()
}

// order sorts the offers by what their accounts have used by now. While all are of one account there is nothing to do.
func (q *Queue) order() {
	several := slices.ContainsFunc(q.ranked, func(o *Offer) bool { return o.account() != q.ranked[0].account() })
	if several && q.meter.Refresh() {
		q.unsorted = true
	}
	if !q.unsorted {
		return
	}
	q.unsorted = false
	q.sweep()
	for _, all := range [][]*Offer{q.ranked, q.Gangs.ranked} {
		for _, o := range all {
			o.standing = q.meter.Standing(o.account())
		}
	}
	q.Gangs.settle()
	slices.SortFunc(q.ranked, precede)
}

// Find returns an offer that is queued, reserved or lapsed; nil if there is none.
func (q *Queue) Find(key Key) *Offer { return q.offers[key] }

// LapsedOf returns the offer of an attempt whose reservation has lapsed; nil if there is none.
func (q *Queue) LapsedOf(id job.Attempt) *Offer { return q.lapsed[id] }

// All returns the queued offers in their order. Some may not be queued any more.
func (q *Queue) All() []*Offer { return q.ranked }

// Size returns how many offers are queued.
func (q *Queue) Size() int { return q.waiting }

// SizeOf returns how many offers of a scheduler are queued, and how many hold a place for gangs.
func (q *Queue) SizeOf(p job.Peer) (queued, gangs int) { return q.perPeer[p], q.Gangs.held[p] }

// Resort makes the next arbitration sort the queue, because the weights of accounts have changed.
func (q *Queue) Resort() { q.unsorted = true }

// PreemptAgain lets more tasks end for an offer.
func (q *Queue) PreemptAgain(o *Offer) {
	o.Preempted = false
	q.turn.Arbitrate()
}

// Gather notes the first Commit to a gang. When single tasks may revoke it, there is another arbitration.
func (q *Queue) Gather(now leaseclock.Moment, o *Offer) {
	if o.Since == 0 {
		o.Since = now.Boot
		q.takeTurn(o)
		q.turn.Timers.Set(now.Boot.Add(contract.ReserveFor), func(leaseclock.Moment) {
			if o.State == Reserved || o.State == Queued {
				q.turn.Arbitrate()
			}
		})
	}
}

// Promised notes that a conditional Commit is sent for an offer.
func (q *Queue) Promised(now leaseclock.Moment, o *Offer) {
	o.Conditional = true
	q.Gather(now, o)
	q.waitUntil(o, o.HeldUntil(now))
}

// takeTurn gives an offer its turn: it is the first of its priority and waits while resources are held back for it, or it
// is of a gang and gets a place.
func (q *Queue) takeTurn(o *Offer) {
	if o.turn == 0 && q.meter.On() {
		q.turns++
		o.turn, q.unsorted = q.turns, true
	}
}

// loseTurn takes the turn from an offer for which nothing can be held back.
func (q *Queue) loseTurn(o *Offer) {
	if o.turn != 0 {
		o.turn, q.unsorted = 0, true
	}
}

// sweep removes from ranked the offers that are not queued any more.
func (q *Queue) sweep() {
	q.ranked = slices.DeleteFunc(q.ranked, func(o *Offer) bool { return o.State != Queued })
}

// DropPeer removes the offers of a scheduler whose session has ended.
func (q *Queue) DropPeer(p job.Peer) {
	if q.perPeer[p] == 0 {
		return
	}
	for _, o := range q.ranked {
		if o.Key.Peer == p {
			q.Remove(o)
		}
	}
}

// MakeRoom removes and returns the last offer of the scheduler that has the most. So a scheduler with few offers always
// finds room. It returns nil if no other scheduler has more offers than this one would have.
func (q *Queue) MakeRoom(from job.Peer) *Offer {
	most := 0
	for _, n := range q.perPeer {
		most = max(most, n)
	}
	if q.perPeer[from]+1 >= most {
		return nil
	}
	for _, o := range slices.Backward(q.ranked) {
		if o.State == Queued && q.perPeer[o.Key.Peer] == most {
			q.Remove(o)
			return o
		}
	}
	return nil
}

// Reserve records that an attempt holds what an offer asks for.
func (q *Queue) Reserve(o *Offer) {
	q.Remove(o)
	o.State = Reserved
	q.offers[o.Key] = o
	if o.Msg.Gang > 0 {
		q.Gangs.add(o)
		q.Gangs.hold(o, 1)
	}
}

// Lapse remembers, for a while, an offer whose reservation has lapsed.
func (q *Queue) Lapse(now leaseclock.Moment, o *Offer) {
	if len(q.lapsed) >= contract.MaxLive {
		return
	}
	o.State = Lapsed
	q.offers[o.Key] = o
	q.lapsed[o.Msg.Attempt] = o
	q.turn.Timers.Set(now.Boot.Add(lapsedFor), func(leaseclock.Moment) { q.Forget(o) })
}

// Forget drops an offer that has a reservation or had one.
func (q *Queue) Forget(o *Offer) {
	if q.offers[o.Key] == o {
		delete(q.offers, o.Key)
	}
	if q.lapsed[o.Msg.Attempt] == o {
		delete(q.lapsed, o.Msg.Attempt)
	}
	if o.State == Reserved && o.Msg.Gang > 0 {
		q.Gangs.remove(o)
		q.Gangs.hold(o, -1)
		q.unsorted = true
	}
	if o.State != Queued {
		o.State = Gone
	}
}
