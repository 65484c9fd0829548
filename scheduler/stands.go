package scheduler

// Stands: for which waiting tasks hosts keep what is free, and which hosts do. See docs/adr, ADR 107.

import (
	"math/bits"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// standsPart bounds the hosts that keep what is free for single tasks of this daemon: one host in standsPart.
	standsPart = 8
	// standsLeast is how many hosts may do so in any case. In a small cluster the tasks of many users wait at the same
	// few hosts.
	standsLeast = 4
	// standsEvery is how often the tasks that stand are looked at.
	standsEvery = 10 * time.Second
	// standsVain is how long a task waits before one more host may keep what is free. Each time that the wait has
	// doubled, another host may: the first hosts may run tasks that never end. Few tasks run for longer than standsVain.
	standsVain = 24 * time.Hour
)

// stands chooses the tasks that stand: those that queue at full hosts and rank first. If no time limits show when such a
// task fits, the hosts where it stands set aside for it what is free, in turns. At other hosts it gets what others
// leave. So the capacity that lies idle for waiting tasks does not grow with the number of hosts where they queue.
type stands struct {
	*step.Turn
	hosts   *hosts
	pending *pending
	offers  *offers

	most  int  // hosts that may keep something
	short bool // no more hosts may keep anything, so a queued task does not stand; then no task behind it may stand
	armed bool
}

// may reports whether a task may stand at the host. others counts hosts that were chosen just before and keep nothing
// yet.
func (ss *stands) may(w *worker, others int) bool {
	return ss.offers.kept[w] > 0 || len(ss.offers.kept)+others < ss.most
}

// choose returns at which of these hosts a task stands that begins to queue there.
func (ss *stands) choose(hosts []*fleet.Host) (out []*fleet.Host) {
	if !ss.armed {
		ss.armed = true
		ss.After(standsEvery, ss.look)
		ss.count()
	}
	if ss.short {
		return nil
	}
	fresh := 0
	for _, h := range hosts {
		if w := ss.hosts.workers[h.Peer]; ss.may(w, fresh) {
			out = append(out, h)
			if ss.offers.kept[w] == 0 {
				fresh++
			}
		}
	}
	ss.short = len(out) == 0
	return out
}

// resume makes a task stand at a host again, if the host may keep something. The task has lost its booking.
func (ss *stands) resume(o *offer) {
	if !o.keeps && !ss.short && !ss.Now.Before(o.from) && ss.may(o.worker, 0) {
		ss.offers.keep(o)
	}
}

// count works out how many hosts may keep something.
func (ss *stands) count() {
	n := 0
	for _, w := range ss.hosts.workers {
		if w.Open() {
			n++
		}
	}
	ss.most, ss.short = max(standsLeast, n/standsPart), false
}

// look makes the tasks that rank first stand.
func (ss *stands) look() {
	ss.armed = ss.Lead && ss.pending.queued.count > 0
	if !ss.armed {
		return
	}
	ss.After(standsEvery, ss.look)
	ss.count()
	ss.findIdle()
	first := ss.first(ss.most + standsLook)
	most := ss.most
	for _, d := range first {
		most = max(most, ss.most+bits.Len64(uint64(max(0, ss.Now.Sub(d.since))/standsVain)))
	}
	ss.most = most
	for _, d := range first {
		for ss.short = d.gang == nil && !ss.stand(d); ss.short; ss.short = !ss.stand(d) {
			if !ss.yield(d) {
				return
			}
		}
	}
}

// idleAfter is how long capacity of a host stays free before any task may have what is not kept there. Tasks that queue
// at the host come first: the host has offered it to them at once. In this time, at most one task of an account passes
// older ones at a host, because then other capacity is free.
const idleAfter = time.Minute

// findIdle compares the waiting tasks with the hosts whose free capacity has stayed free.
func (ss *stands) findIdle() {
	for h := range fleet.All(&ss.hosts.fleet) {
		w := ss.hosts.workers[h.Peer]
		switch n := h.Changes(); {
		case n != w.changes || w.changedAt.IsZero():
			w.changes, w.changedAt = n, ss.Now
		case h.Claims.Queued() > 0 && ss.Now.Sub(w.changedAt) >= idleAfter && h.Idle():
			ss.hosts.offerToFreed(w)
		}
	}
}

// yield makes one task of a lower precedence than d stand no more: the one that ranks last. It returns false if there is
// none.
func (ss *stands) yield(d *dispatch) bool {
	var last *dispatch
	var lowest fleet.Rank
	for w := range ss.offers.kept {
		for _, o := range ss.offers.to(w) {
			if o.keeps && o.claim.Rank.Precedence() < d.task.precedence() && (last == nil || lowest.Compare(&o.claim.Rank) < 0) {
				last, lowest = o.dispatch, o.claim.Rank
			}
		}
	}
	if last == nil {
		return false
	}
	for _, o := range last.offers {
		if o.keeps {
			ss.offers.unkeep(o)
			ss.offers.sendOffer(o, queueWait)
		}
	}
	return true
}

// standsLook is how many tasks a look considers, in addition to one for each host that may keep something.
const standsLook = 64

// first returns tasks that queue at full hosts, the first ones by rank.
func (ss *stands) first(n int) []*dispatch {
	out := make([]*dispatch, 0, min(n, ss.pending.queued.count))
	for _, c := range ss.pending.queued.chunks {
		for i := range c.waits {
			if len(out) == n {
				return out
			}
			if d := c.waits[i].task.dispatch; d != nil {
				out = append(out, d)
			}
		}
	}
	return out
}

// stand makes a task stand at all hosts where it queues and that may keep something. It returns false if the task queues
// and no host keeps anything for it. A task that is booked need not stand.
func (ss *stands) stand(d *dispatch) bool {
	if d.election.silences() {
		return true
	}
	stands, queued := false, false
	for _, o := range d.offers {
		switch {
		case !o.queued():
			continue
		case !o.keeps && !ss.Now.Before(o.from) && ss.may(o.worker, 0):
			ss.offers.keep(o)
			ss.offers.sendOffer(o, queueWait)
		}
		queued, stands = true, stands || o.keeps
	}
	return stands || !queued
}
