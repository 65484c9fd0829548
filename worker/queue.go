package worker

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

// queue holds the offers of all schedulers.
type queue struct {
	turn     *step.Turn
	meter    *resources.Meter
	offers   map[offerKey]*offer    // offers that are queued, reserved or lapsed
	ranked   []*offer               // queued offers in the order of precede; removed ones stay until the next sweep
	waiting  int                    // number of queued offers
	unsorted bool                   // ranked is to be sorted
	turns    uint64                 // counts the turns that offers got
	perPeer  map[job.Peer]int       // number of queued offers by scheduler
	lapsed   map[job.Attempt]*offer // offers whose reservation has lapsed, for a Start that comes late
	gangs    gangs
}

func newQueue(t *step.Turn, m *resources.Meter) *queue {
	return &queue{
		turn: t, meter: m, offers: map[offerKey]*offer{}, perPeer: map[job.Peer]int{}, lapsed: map[job.Attempt]*offer{}, gangs: newGangs(),
	}
}

// add queues an offer.
func (q *queue) add(now leaseclock.Moment, key offerKey, m contract.Offer, g *group) {
	o := &offer{
		key: key, msg: m, group: g,
		submitted: now.Boot.Add(-min(max(m.Age, 0), maxAge)), until: now.Boot.Add(waitOf(m)),
	}
	o.standing = q.meter.Standing(o.account())
	if m.Gang > 0 {
		q.gangs.add(o)
		q.unsorted = true
	}
	i, _ := slices.BinarySearchFunc(q.ranked, o, precede)
	q.ranked = slices.Insert(q.ranked, i, o)
	q.offers[key] = o
	q.perPeer[key.peer]++
	q.waiting++
	q.turn.Arbitrate()
}

func waitOf(m contract.Offer) time.Duration { return min(max(m.Wait, 0), contract.MaxOfferWait) }

// same reports whether a message repeats this offer.
func (o *offer) same(m contract.Offer) bool {
	return m.Need == o.msg.Need && m.Attempt == o.msg.Attempt && m.User == o.msg.User && m.Project == o.msg.Project && m.Priority == o.msg.Priority &&
		m.Gang == o.msg.Gang && m.Order == o.msg.Order && m.Limit == o.msg.Limit && m.Level == o.msg.Level && m.Work == o.msg.Work
}

// renew lets a queued offer wait longer, in the same place. The scheduler sends the same offer again for that. A message
// with another content is ignored.
func (q *queue) renew(now leaseclock.Moment, o *offer, m contract.Offer) {
	if !o.same(m) {
		return
	}
	o.msg.Epoch = m.Epoch // the owner may have been elected again meanwhile
	if m.Preempt && !o.msg.Preempt {
		o.msg.Preempt = true
		q.turn.Arbitrate()
	}
	if m.Firm && o.conditional && !o.firm {
		o.firm = true
		q.turn.Arbitrate()
	}
	if m.Spare != o.msg.Spare || m.Elsewhere != o.msg.Elsewhere {
		if m.Elsewhere != o.msg.Elsewhere {
			o.told.elsewhere = !m.Elsewhere // its scheduler waits for the answer, even if it has changed its mind twice
		}
		o.msg.Spare, o.msg.Elsewhere = m.Spare, m.Elsewhere
		q.turn.Arbitrate()
	}
	o.msg.Hold = m.Hold
	q.waitUntil(o, now.Boot.Add(waitOf(m)))
	if o.conditional {
		q.waitUntil(o, o.heldUntil(now))
	}
}

// waitUntil lets a queued offer wait until then, if it does not wait longer already.
func (q *queue) waitUntil(o *offer, until leaseclock.BootTime) {
	if o.conditional {
		until = min(until, o.since.Add(maxGather))
	}
	if until <= o.until {
		return
	}
	o.until = until
	if o.timer != nil {
		q.turn.Timers.Stop(o.timer)
		q.endWait(o)
	}
}

// endWait sets a timer that causes an arbitration when the wait of an offer is over.
func (q *queue) endWait(o *offer) {
	o.timer = q.turn.Timers.Set(o.until, func(leaseclock.Moment) {
		if o.state == offerQueued {
			q.turn.Arbitrate()
		}
	})
}

// remove removes an offer from the queue. The next sweep removes it from ranked. What its conditional Commit promised is
// free for others, because the offer is not queued any more.
func (q *queue) remove(o *offer) {
	if o.state != offerQueued {
		return
	}
	if o.msg.Gang > 0 {
		q.gangs.remove(o)
		q.unsorted = true
	}
	o.state, o.conditional, o.promised = offerGone, false, nil
	q.waiting--
	q.turn.Timers.Stop(o.timer)
	delete(q.offers, o.key)
	if q.perPeer[o.key.peer]--; q.perPeer[o.key.peer] == 0 {
		delete(q.perPeer, o.key.peer)
	}
	q.turn.Arbitrate()
}

// order sorts the offers by what their accounts have used by now. While all are of one account there is nothing to do.
func (q *queue) order() {
	several := slices.ContainsFunc(q.ranked, func(o *offer) bool { return o.account() != q.ranked[0].account() })
	if several && q.meter.Refresh() {
		q.unsorted = true
	}
	if !q.unsorted {
		return
	}
	q.unsorted = false
	q.sweep()
	for _, all := range [][]*offer{q.ranked, q.gangs.ranked} {
		for _, o := range all {
			o.standing = q.meter.Standing(o.account())
		}
	}
	q.gangs.settle()
	slices.SortFunc(q.ranked, precede)
}

// takeTurn gives an offer its turn: it is the first of its priority and waits while resources are held back for it, or it
// is of a gang and gets a place.
func (q *queue) takeTurn(o *offer) {
	if o.turn == 0 && q.meter.On() {
		q.turns++
		o.turn, q.unsorted = q.turns, true
	}
}

// loseTurn takes the turn from an offer for which nothing can be held back.
func (q *queue) loseTurn(o *offer) {
	if o.turn != 0 {
		o.turn, q.unsorted = 0, true
	}
}

// sweep removes from ranked the offers that are not queued any more.
func (q *queue) sweep() {
	q.ranked = slices.DeleteFunc(q.ranked, func(o *offer) bool { return o.state != offerQueued })
}

// dropPeer removes the offers of a scheduler whose session has ended.
func (q *queue) dropPeer(p job.Peer) {
	if q.perPeer[p] == 0 {
		return
	}
	for _, o := range q.ranked {
		if o.key.peer == p {
			q.remove(o)
		}
	}
}

// makeRoom removes and returns the last offer of the scheduler that has the most. So a scheduler with few offers always
// finds room. It returns nil if no other scheduler has more offers than this one would have.
func (q *queue) makeRoom(from job.Peer) *offer {
	most := 0
	for _, n := range q.perPeer {
		most = max(most, n)
	}
	if q.perPeer[from]+1 >= most {
		return nil
	}
	for _, o := range slices.Backward(q.ranked) {
		if o.state == offerQueued && q.perPeer[o.key.peer] == most {
			q.remove(o)
			return o
		}
	}
	return nil
}

// reserve records that an attempt holds what an offer asks for.
func (q *queue) reserve(o *offer) {
	q.remove(o)
	o.state = offerReserved
	q.offers[o.key] = o
	if o.msg.Gang > 0 {
		q.gangs.add(o)
		q.gangs.hold(o, 1)
	}
}

// lapse remembers, for a while, an offer whose reservation has lapsed.
func (q *queue) lapse(now leaseclock.Moment, o *offer) {
	if len(q.lapsed) >= MaxRecords {
		return
	}
	o.state = offerLapsed
	q.offers[o.key] = o
	q.lapsed[o.msg.Attempt] = o
	q.turn.Timers.Set(now.Boot.Add(lapsedFor), func(leaseclock.Moment) { q.forget(o) })
}

// forget drops an offer that has a reservation or had one.
func (q *queue) forget(o *offer) {
	if q.offers[o.key] == o {
		delete(q.offers, o.key)
	}
	if q.lapsed[o.msg.Attempt] == o {
		delete(q.lapsed, o.msg.Attempt)
	}
	if o.state == offerReserved && o.msg.Gang > 0 {
		q.gangs.remove(o)
		q.gangs.hold(o, -1)
		q.unsorted = true
	}
	if o.state != offerQueued {
		o.state = offerGone
	}
}
