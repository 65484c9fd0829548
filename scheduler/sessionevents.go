package scheduler

// What all parts do when a session begins or ends.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

const maxWorkers = 16384 // known hosts, with or without a session

// sessionUp notes a new session and tells the host which journal group this daemon owns.
func (c *Core) sessionUp(p job.Peer, path contract.Path) {
	if c.contact.sessions[p] != 0 {
		c.sessionDown(p)
	}
	c.contact.lastSession++
	c.contact.sessions[p] = c.contact.lastSession
	if path != (contract.Path{}) {
		c.contact.paths[p] = path
	}
	if c.turn.Lead {
		c.turn.Send(p, c.turn.Owns())
	}
}

// measured notes what the path to a host costs. Without a session the measurement is ignored.
func measured(c *Core, p job.Peer, roundTrip time.Duration) {
	if c.contact.sessions[p] == 0 {
		return
	}
	c.contact.distances[p] = fleet.DistanceOf(roundTrip)
	if w := c.hosts.workers[p]; w != nil && w.Up {
		fleet.SetDistance(&c.hosts.fleet, w.Host, c.contact.distances[p])
	}
}

// sessionDown ends the offers to the host, and plans a check of the attempts that may be running there.
func (c *Core) sessionDown(p job.Peer) {
	delete(c.contact.sessions, p)
	delete(c.contact.paths, p)
	delete(c.contact.distances, p)
	c.contact.down(p)
	w := c.hosts.workers[p]
	if w == nil || !w.Up {
		return
	}
	w.Down(c.turn.Now)
	fleet.SetDistance(&c.hosts.fleet, w.Host, 0)
	if len(c.assigned.byNode[p]) > 0 {
		c.turn.Notify(step.Notice{Kind: step.WorkerLost, Peer: p, Node: w.Name(), Detail: fmt.Sprintf("%d tasks run there", len(c.assigned.byNode[p]))})
	} else {
		c.turn.Notify(step.Notice{Kind: step.WorkerGone, Peer: p, Node: w.Name()})
	}
	for _, o := range c.offers.to(w) {
		c.dispatches.offerGone(o, place.Avoidance{})
	}
	for _, d := range w.waiting {
		c.dispatches.over(d)
	}
	c.hosts.setWaitingForLease(w, nil)
	c.hosts.forgetQuotas(w)
	for _, t := range c.assigned.at(p) {
		c.entries.changed(t)
		c.attempts.watch(t, c.attempts.writeOffAt(t))
	}
}

// revoked forgets a host that is no member any more. If it may be running our tasks, it stays known until they are given
// up, but it does not count.
func revoked(c *Core, p job.Peer) {
	c.sessionDown(p)
	w := c.hosts.workers[p]
	switch {
	case w == nil:
	case c.assigned.busy(p):
		fleet.Expel(&c.hosts.fleet, w.Host, c.turn.Now)
		c.hosts.profiles++
	default:
		c.pending.forgetHost(w)
	}
	if c.contact.wanted[p] != nil && !c.contact.useful(p) {
		c.contact.unwant(p)
	}
}

// hello handles the first message of a host in a session: its profile, and what is free.
func (c *Core) hello(p job.Peer, m contract.Hello) {
	w := c.hosts.workers[p]
	if w == nil {
		if len(c.hosts.workers) >= maxWorkers && !c.forgetOne() {
			return
		}
		w = &worker{Host: c.hosts.fleet.Add(p, p == c.turn.Config.Self), quotaTimers: map[string]*step.Timer{}}
		c.hosts.workers[p] = w
	}
	if !w.Up {
		c.turn.Notify(step.Notice{Kind: step.WorkerFound, Peer: p, Node: m.Profile.Name})
	}
	w.Address = c.contact.paths[p].Remote
	if before := &w.Profile; before.Name != "" && (before.Version != m.Profile.Version || before.Format != m.Profile.Format) {
		defer c.records.reset.changed(p)
	}
	c.hosts.fleet.Hello(w.Host, m, c.turn.Now)
	fleet.SetDistance(&c.hosts.fleet, w.Host, c.contact.distances[p])
	c.hosts.profiles++
	if !c.hosts.timed && m.Profile.Limits.Limits(contract.LimitTime) {
		splitByTime(c.pending, c.entries)
	}
	c.hosts.offerToFreed(w)
	for _, t := range c.assigned.at(p) {
		c.entries.changed(t)
		switch {
		case t.sameStore(w):
			c.attempts.watch(t, c.turn.Now.Add(reportWait))
		case c.attempts.restarted(t):
			c.dispatches.takeBack(t)
			c.attempts.watch(t, c.turn.Now)
		default:
			c.attempts.watch(t, c.attempts.writeOffAt(t))
		}
	}
	c.requests.retryMatches()
}
