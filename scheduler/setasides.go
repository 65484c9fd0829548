package scheduler

// Set-asides: for which waiting tasks hosts keep what is free, and which hosts do. See docs/adr, ADR 107.

import (
	"math/bits"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// setAsidePart bounds the hosts that keep what is free for single tasks of this daemon: one host in setAsidePart.
	setAsidePart = 8
	// setAsideLeast is how many hosts may do so in any case. In a small cluster the tasks of many users wait at the same
	// few hosts.
	setAsideLeast = 4
	// setAsideEvery is how often the tasks are chosen for which hosts keep something.
	setAsideEvery = 10 * time.Second
	// setAsideWait is how long a task waits before one more host may keep what is free. Each time that the wait has
	// doubled, another host may: the first hosts may run tasks that never end. Few tasks run for longer than setAsideWait.
	setAsideWait = 24 * time.Hour
)

// setAsides chooses for which tasks hosts set aside what is free: those that queue at full hosts and rank first. If no
// time limits show when such a task fits, the chosen hosts set aside for it what is free, in turns. At other hosts it gets
// what others leave. So the capacity that lies idle for waiting tasks does not grow with the number of hosts where they
// queue.
type setAsides struct {
	*step.Turn
	hosts   *hosts
	pending *pending
	offers  *offers

	mostHosts int  // hosts that may keep something
	short     bool // no more hosts may keep anything for a queued task; then none may for a task behind it
	armed     bool
}

// mayKeep reports whether the host may keep something for a task. others counts hosts that were chosen just before and keep nothing
// yet.
func (sa *setAsides) mayKeep(w *worker, others int) bool {
	return sa.offers.kept[w] > 0 || len(sa.offers.kept)+others < sa.mostHosts
}

// choose returns which of these hosts keep something for a task that begins to queue there.
func (sa *setAsides) choose(hosts []*fleet.Host) (out []*fleet.Host) {
	if !sa.armed {
		sa.armed = true
		sa.After(setAsideEvery, sa.review)
		sa.count()
	}
	if sa.short {
		return nil
	}
	fresh := 0
	for _, h := range hosts {
		if w := sa.hosts.workers[h.Peer]; sa.mayKeep(w, fresh) {
			out = append(out, h)
			if sa.offers.kept[w] == 0 {
				fresh++
			}
		}
	}
	sa.short = len(out) == 0
	return out
}

// resume makes a task stand at a host again, if the host may keep something. The task has lost its booking.
func (sa *setAsides) resume(o *offer) {
	if !o.keeps && !sa.short && !sa.Now.Before(o.from) && sa.mayKeep(o.worker, 0) {
		sa.offers.keep(o)
	}
}

// count works out how many hosts may keep something.
func (sa *setAsides) count() {
	n := 0
	for _, w := range sa.hosts.workers {
		if w.Open() {
			n++
		}
	}
	sa.mostHosts, sa.short = max(setAsideLeast, n/setAsidePart), false
}

// review has hosts keep something for the tasks that rank first.
func (sa *setAsides) review() {
	sa.armed = sa.Lead && sa.pending.queued.count > 0
	if !sa.armed {
		return
	}
	sa.After(setAsideEvery, sa.review)
	sa.count()
	sa.findIdle()
	first := sa.ranksFirst(sa.mostHosts + reviewMost)
	most := sa.mostHosts
	for _, d := range first {
		most = max(most, sa.mostHosts+bits.Len64(uint64(max(0, sa.Now.Sub(d.since))/setAsideWait)))
	}
	sa.mostHosts = most
	for _, d := range first {
		for sa.short = d.gang == nil && !sa.setAside(d); sa.short; sa.short = !sa.setAside(d) {
			if !sa.yield(d) {
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
func (sa *setAsides) findIdle() {
	for h := range fleet.All(&sa.hosts.fleet) {
		w := sa.hosts.workers[h.Peer]
		switch n := h.Changes(); {
		case n != w.changes || w.changedAt.IsZero():
			w.changes, w.changedAt = n, sa.Now
		case h.Claims.Queued() > 0 && sa.Now.Sub(w.changedAt) >= idleAfter && h.Idle():
			sa.hosts.offerToFreed(w)
		}
	}
}

// yield makes one task of a lower precedence than d stand no more: the one that ranks last. It returns false if there is
// none.
func (sa *setAsides) yield(d *dispatch) bool {
	var last *dispatch
	var lowest fleet.Rank
	for w := range sa.offers.kept {
		for _, o := range sa.offers.to(w) {
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
			sa.offers.unkeep(o)
			sa.offers.sendOffer(o, queueWait)
		}
	}
	return true
}

// reviewMost is how many tasks a review considers, in addition to one for each host that may keep something.
const reviewMost = 64

// ranksFirst returns tasks that queue at full hosts, the first ones by rank.
func (sa *setAsides) ranksFirst(n int) []*dispatch {
	out := make([]*dispatch, 0, min(n, sa.pending.queued.count))
	for _, c := range sa.pending.queued.chunks {
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

// setAside has all hosts that may, and where the task queues, keep something for it. It returns false if the task queues
// and no host keeps anything for it. A task that is booked needs none of it.
func (sa *setAsides) setAside(d *dispatch) bool {
	if d.election.silences() {
		return true
	}
	kept, queued := false, false
	for _, o := range d.offers {
		switch {
		case !o.queued():
			continue
		case !o.keeps && !sa.Now.Before(o.from) && sa.mayKeep(o.worker, 0):
			sa.offers.keep(o)
			sa.offers.sendOffer(o, queueWait)
		}
		queued, kept = true, kept || o.keeps
	}
	return kept || !queued
}
