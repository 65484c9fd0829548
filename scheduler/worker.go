package scheduler

// Hosts come and go: what follows when a session begins or ends, and when a host says what is free.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// worker is a known host, and what of this scheduler's work waits for it.
type worker struct {
	*fleet.Host
	renewing    int               // its renewals that wait for a round
	waiting     []*flight         // committed there once, and waiting until the host has a lease
	askAt       time.Time         // when a timer compares the waiting tasks with the host
	quotaTimers map[string]*timer // by user: each opens or forgets the user's quota

	freed  bool   // in Core.freedHosts
	again  bool   // something was freed since resume began
	resume resume // of the first of Core.freedHosts
}

// offersAt are the offers in flight to the host, oldest first.
func (c *Core) offersAt(w *worker) []*offer {
	ids := w.Claims.IDs()
	out := make([]*offer, len(ids))
	for i, id := range ids {
		out[i] = c.offers[id]
	}
	return out
}

// policyHost is the host in the words of a policy.
func policyHost(h *fleet.Host, free *lease.Free) policy.Host {
	return policy.Host{
		Peer: h.Peer, Name: h.Name(), Local: h.Local, Profile: &h.Profile, Free: *free, Alike: h.Devices.Alike(),
	}
}

func (c *Core) sessionUp(p job.Peer) {
	if c.sessions[p] != 0 {
		c.sessionDown(p)
	}
	c.sessionSeq++
	c.sessions[p] = c.sessionSeq
	if c.lead {
		c.send(p, c.owns())
	}
}

func (c *Core) owns() lease.Owns {
	return lease.Owns{Groups: []lease.GroupEpoch{{Group: c.cfg.Group, Epoch: c.epoch}}}
}

func (c *Core) sessionDown(p job.Peer) {
	delete(c.sessions, p)
	c.lostTouch(p)
	w := c.workers[p]
	if w == nil || !w.Up {
		return
	}
	w.Down(c.now)
	if len(c.byNode[p]) > 0 {
		c.tell(Told{Kind: WorkerLost, Peer: p, Node: w.Name(), Detail: fmt.Sprintf("%d tasks run there", len(c.byNode[p]))})
	} else {
		c.tell(Told{Kind: WorkerGone, Peer: p, Node: w.Name()})
	}
	for _, o := range c.offersAt(w) {
		c.offerGone(o, avoidance{})
	}
	for _, f := range w.waiting {
		c.over(f)
	}
	c.setWaitingForLease(w, nil)
	c.forgetQuotas(w)
	for _, t := range c.tasksAt(p) {
		t.reported, t.cancelSent = false, false
		c.changed(t.e)
		c.watch(t, c.writeOffAt(t))
	}
}

// setWaitingForLease says which flights wait until the host has a lease.
func (c *Core) setWaitingForLease(w *worker, waiting []*flight) {
	w.waiting = waiting
	w.SetUnleased(len(waiting))
}

func (c *Core) hello(p job.Peer, m lease.Hello) {
	w := c.workers[p]
	if w == nil {
		if len(c.workers) >= maxWorkers && !c.forgetOne() {
			return
		}
		w = &worker{Host: c.fleet.Add(p, p == c.cfg.Self), quotaTimers: map[string]*timer{}}
		c.workers[p] = w
	}
	if !w.Up {
		c.tell(Told{Kind: WorkerFound, Peer: p, Node: m.Profile.Name})
	}
	c.fleet.Hello(w.Host, m, c.now)
	c.profiles++
	c.offerToFreed(w)
	for _, t := range c.tasksAt(p) {
		c.changed(t.e)
		if c.sameStore(t, w) {
			c.watch(t, c.now.Add(reportWait))
		} else {
			c.watch(t, c.writeOffAt(t))
		}
	}
	c.retryMatches()
}

// busy says whether a task is assigned to the host.
func (c *Core) busy(p job.Peer) bool { return len(c.byNode[p]) > 0 }

// forgetOne forgets the host that has been away longest; false if there is none that may be forgotten.
func (c *Core) forgetOne() bool {
	oldest := c.fleet.LongestAway(c.busy)
	if oldest != nil {
		c.forgetHost(c.workers[oldest.Peer])
	}
	return oldest != nil
}

func (c *Core) forgetHost(w *worker) {
	delete(c.workers, w.Peer)
	c.fleet.Remove(w.Host)
	c.forgetQuotas(w)
	for _, g := range c.groups {
		g.Forget(w.Host)
	}
	c.profiles++
}

func (c *Core) availability(w *worker, m lease.Availability) {
	if !w.Availability(m) {
		return
	}
	c.offerToFreed(w)
	for _, user := range m.UnderQuota {
		c.easeQuota(w, user)
	}
}

// offerToFreed has the waiting tasks compared with a host where something was freed: it may take more than before.
func (c *Core) offerToFreed(w *worker) {
	if w.freed {
		w.again = true
		return
	}
	w.freed = true
	c.freedHosts = append(c.freedHosts, w)
}

// forgetWorkers drops hosts that have been away for long; the timer renews itself.
func (c *Core) forgetWorkers() {
	for _, h := range c.fleet.AwaySince(c.now.Add(-forgetWorker)) {
		if !c.busy(h.Peer) {
			c.forgetHost(c.workers[h.Peer])
		}
	}
	for store, at := range c.renewed {
		if c.now.Sub(at) >= forgetWorker+job.MaxLease {
			delete(c.renewed, store)
		}
	}
	c.after(forgetWorker/4, c.forgetWorkers)
}
