package worker

// The queue of offers: their one order, how they are renewed, and its bounds.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// offerKey names an offer among those of all schedulers.
type offerKey struct {
	peer job.Peer
	id   uint64
}

// offer is one that waits, holds a reservation, or held one that lapsed.
type offer struct {
	key    offerKey
	msg    lease.Offer
	group  *group
	born   BootTime // when its job was submitted, as its age said on arrival
	until  BootTime // how long it may wait
	timer  *timer   // ends the wait, once it has begun
	queued bool
	taken  *attempt // its reservation
	lapsed bool     // the reservation has lapsed
}

// rank is the one order of offers, the same on all hosts but for how long each
// offer travelled: priority, then the age of the job, then names.
func rank(a, b *offer) int {
	if n := cmp.Or(cmp.Compare(b.msg.Priority, a.msg.Priority), cmp.Compare(a.born, b.born)); n != 0 {
		return n
	}
	return cmp.Or(
		compareAttempts(a.msg.Attempt, b.msg.Attempt),
		cmp.Compare(a.key.peer, b.key.peer), cmp.Compare(a.key.id, b.key.id),
	)
}

// offer takes one in, renews it, or declines what could never be.
func (c *Core) offer(now Moment, from job.Peer, m lease.Offer) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	key := offerKey{from, m.ID}
	switch o := c.offers[key]; {
	case o == nil:
	case o.queued:
		c.renewOffer(now, o, m)
		return
	case o.lapsed: // asked for anew
		c.forgetLapsed(o)
	default:
		if !o.taken.dirty {
			c.sendCommit(now, o.taken)
		}
		return
	}
	if r := c.closed(); r.Word != "" {
		c.decline(from, m, r, !c.cfg.Profile.Worker)
		return
	}
	if why := c.room.never(m.Need); why != "" {
		c.decline(from, m, job.Reason{Word: job.ReasonNoMatch, Detail: lease.Clip(why)}, true)
		return
	}
	if c.perPeer[from] >= lease.MaxOffers || c.queued >= maxQueued && !c.makeRoom(from) {
		detail := fmt.Sprintf("%d offers of this scheduler wait here, %d of all", c.perPeer[from], c.queued)
		c.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
		return
	}
	o := &offer{
		key: key, msg: m, group: g, queued: true,
		born: now.Boot.Add(-min(max(m.Age, 0), maxAge)), until: now.Boot.Add(waitOf(m)),
	}
	i, _ := slices.BinarySearchFunc(c.queue, o, rank)
	c.queue = slices.Insert(c.queue, i, o)
	c.offers[key] = o
	c.perPeer[from]++
	c.queued++
	c.look = true
}

func waitOf(m lease.Offer) time.Duration { return min(max(m.Wait, 0), lease.MaxOfferWait) }

// renewOffer lets an offer wait on in its place. Its scheduler says the same
// again; whatever says something else renews nothing.
func (c *Core) renewOffer(now Moment, o *offer, m lease.Offer) {
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
		c.timers.stop(o.timer)
		c.endWait(o)
	}
}

// endWait has an arbitration look at an offer when its wait is over.
func (c *Core) endWait(o *offer) {
	o.timer = c.timers.set(o.until, func(Moment) { c.look = c.look || o.queued })
}

// dequeue ends the wait of an offer; the next arbitration takes it off the queue.
func (c *Core) dequeue(o *offer) {
	if !o.queued {
		return
	}
	o.queued = false
	c.queued--
	c.timers.stop(o.timer)
	delete(c.offers, o.key)
	if c.perPeer[o.key.peer]--; c.perPeer[o.key.peer] == 0 {
		delete(c.perPeer, o.key.peer)
	}
	c.look = true
}

// makeRoom declines the last in line of the scheduler with most offers, so that
// a full queue keeps nobody out who has fewer. It says whether there is room.
func (c *Core) makeRoom(from job.Peer) bool {
	most := 0
	for _, n := range c.perPeer {
		most = max(most, n)
	}
	if c.perPeer[from]+1 >= most {
		return false
	}
	for _, o := range slices.Backward(c.queue) {
		if o.queued && c.perPeer[o.key.peer] == most {
			c.dequeue(o)
			detail := fmt.Sprintf("%d offers wait here, most of them from this scheduler: the last gave way to another's", maxQueued)
			c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
			return true
		}
	}
	return false
}

// declineImpossible answers those that wait for what this host no longer has.
func (c *Core) declineImpossible() {
	for _, o := range c.queue {
		if !o.queued {
			continue
		}
		if why := c.room.never(o.msg.Need); why != "" {
			c.dequeue(o)
			c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonNoMatch, Detail: lease.Clip(why)}, true)
		}
	}
}
