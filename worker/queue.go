package worker

// The queue of offers: their one order, how they are renewed, and its bounds.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// queue holds the offers of all schedulers.
type queue struct {
	turn    *turn
	offers  map[offerKey]*offer    // queued, reserved or lapsed
	ranked  []*offer               // by rank; those that wait no longer stay until the next sweep
	waiting int                    // queued offers
	perPeer map[job.Peer]int       // of them, by scheduler
	lapsed  map[job.Attempt]*offer // a late Start may find its place again
}

func newQueue(t *turn) *queue {
	return &queue{turn: t, offers: map[offerKey]*offer{}, perPeer: map[job.Peer]int{}, lapsed: map[job.Attempt]*offer{}}
}

// add queues an offer.
func (q *queue) add(now Moment, key offerKey, m lease.Offer, g *group) {
	o := &offer{
		key: key, msg: m, group: g,
		submitted: now.Boot.Add(-min(max(m.Age, 0), maxAge)), until: now.Boot.Add(waitOf(m)),
	}
	i, _ := slices.BinarySearchFunc(q.ranked, o, rank)
	q.ranked = slices.Insert(q.ranked, i, o)
	q.offers[key] = o
	q.perPeer[key.peer]++
	q.waiting++
	q.turn.arbitrate = true
}

func waitOf(m lease.Offer) time.Duration { return min(max(m.Wait, 0), lease.MaxOfferWait) }

// renew lets an offer wait on in its place. Its scheduler says the same again; a message that says something else renews
// nothing.
func (q *queue) renew(now Moment, o *offer, m lease.Offer) {
	if m.Need != o.msg.Need || m.Attempt != o.msg.Attempt || m.User != o.msg.User || m.Priority != o.msg.Priority {
		return
	}
	o.msg.Epoch = m.Epoch // its owner may have been elected anew
	until := now.Boot.Add(waitOf(m))
	if until <= o.until {
		return
	}
	o.until = until
	if o.timer != nil {
		q.turn.timers.stop(o.timer)
		q.endWait(o)
	}
}

// endWait has an arbitration look at an offer when its wait is over.
func (q *queue) endWait(o *offer) {
	o.timer = q.turn.timers.set(o.until, func(Moment) { q.turn.arbitrate = q.turn.arbitrate || o.state == offerQueued })
}

// remove ends the wait of an offer; the next sweep takes it off the order.
func (q *queue) remove(o *offer) {
	if o.state != offerQueued {
		return
	}
	o.state = offerGone
	q.waiting--
	q.turn.timers.stop(o.timer)
	delete(q.offers, o.key)
	if q.perPeer[o.key.peer]--; q.perPeer[o.key.peer] == 0 {
		delete(q.perPeer, o.key.peer)
	}
	q.turn.arbitrate = true
}

// sweep takes the offers off the order that wait no longer.
func (q *queue) sweep() {
	q.ranked = slices.DeleteFunc(q.ranked, func(o *offer) bool { return o.state != offerQueued })
}

// leave takes back the offers of a scheduler whose session has ended.
func (q *queue) leave(p job.Peer) {
	if q.perPeer[p] == 0 {
		return
	}
	for _, o := range q.ranked {
		if o.key.peer == p {
			q.remove(o)
		}
	}
}

// makeRoom takes the last offer out of the scheduler that has most, so that a full queue keeps nobody out who has fewer.
// It returns nil if this scheduler has most itself.
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

// reserve says that an attempt holds what an offer asks for.
func (q *queue) reserve(o *offer) {
	q.remove(o)
	o.state = offerReserved
	q.offers[o.key] = o
}

// lapse remembers for a while an offer whose reservation has lapsed.
func (q *queue) lapse(now Moment, o *offer) {
	if len(q.lapsed) >= MaxRecords {
		return
	}
	o.state = offerLapsed
	q.offers[o.key] = o
	q.lapsed[o.msg.Attempt] = o
	q.turn.timers.set(now.Boot.Add(lapsedFor), func(Moment) { q.forget(o) })
}

// forget forgets an offer that holds a reservation, or held one.
func (q *queue) forget(o *offer) {
	if q.offers[o.key] == o {
		delete(q.offers, o.key)
	}
	if q.lapsed[o.msg.Attempt] == o {
		delete(q.lapsed, o.msg.Attempt)
	}
	if o.state != offerQueued {
		o.state = offerGone
	}
}
