package sim

// How owners find hosts: the table of classes, and announcements that hosts answer.

import (
	"math"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	maxFinding = 8  // searches at a time, as in the loop
	findPeers  = 64 // hosts per search
	staleFor   = 10 * time.Minute
	// cutPart is the part of searches that run out of time.
	cutPart = 0.1
)

// find looks for hosts of a class in the table of classes, or among the hosts that the owner has heard of. The table
// knows the hosts of a class that are up, and those that have died lately.
func (o *owner) find(class string) {
	if o.finding[class] || len(o.finding) >= maxFinding {
		return
	}
	o.finding[class] = true
	w, life := o.w, o.life
	w.counts.Finds++
	took := time.Duration(0)
	if w.cfg.News == nil {
		took = w.draw(w.cfg.Costs.Find)
	}
	w.after(took, func() {
		if o.life != life || !o.up {
			return
		}
		delete(o.finding, class)
		all := known(o, class, findPeers)
		peers := make([]job.Peer, len(all))
		for i, h := range all {
			peers[i] = h.peer
		}
		if len(peers) > 0 {
			o.tell(step.Found{Class: class, Peers: peers})
		}
		o.tell(step.Found{Class: class, Cut: !w.steady && w.chance.Float64() < cutPart})
	})
}

// isListed reports whether the table still names the host.
func isListed(h *host) bool {
	return h.up || !h.gone && h.w.now-h.downAt < staleFor || h.gone && h.w.now-h.powerAt < staleFor
}

// ofClass returns up to most hosts of a class. If there are more, it picks them at random.
func (w *World) ofClass(class string, most int) []*host {
	all := w.classes[class]
	out := make([]*host, 0, min(len(all), most))
	if len(all) <= most {
		for _, h := range all {
			if isListed(h) {
				out = append(out, h)
			}
		}
		return out
	}
	// Every host has the same chance: the walk starts at a random host, with a step that visits each host once.
	step := 1 + w.chance.IntN(len(all)-1)
	for gcd(step, len(all)) != 1 {
		step = step%(len(all)-1) + 1
	}
	for i, at := 0, w.chance.IntN(len(all)); i < len(all) && len(out) < most; i, at = i+1, (at+step)%len(all) {
		if isListed(all[at]) {
			out = append(out, all[at])
		}
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

const (
	// callEvery is how often an announcement is repeated.
	callEvery = 10 * time.Second
	// callHolds is how long a host keeps the session after the last announcement.
	callHolds = 5 * time.Minute
	// callAsked is how many hosts an announcement asks to open a session.
	callAsked = 64
	// maxCallers bounds the schedulers that one host answers.
	maxCallers = 256
	// callSlow bounds the time until an announcement has arrived and a host has answered.
	callSlow = 2 * time.Second
)

// announce calls the hosts of the wanted classes, again and again as long as they are wanted. A part of these hosts
// opens a session: a few more than callAsked if all hosts of the cluster have a wanted class.
func (o *owner) announce(wants []step.Want) {
	if o.w.cfg.Quiet {
		return
	}
	o.wants = wants
	o.calls++
	o.w.after(between(o.w.chance, 100*time.Millisecond, callSlow), o.call(o.calls, o.life))
}

// call returns the function that makes an announcement, and plans the next.
func (o *owner) call(number, life int) func() {
	return func() {
		if o.life != life || !o.up || o.calls != number {
			return
		}
		w := o.w
		if len(o.wants) == 0 {
			callsEnd(o)
			return
		}
		o.callAt = w.now
		w.counts.Announcements++
		for _, x := range o.wants {
			matching := len(w.classes[x.Class])
			part := (callAsked + math.Sqrt(callAsked)) / float64(max(len(w.hosts), 1))
			for _, h := range known(o, x.Class, int(math.Ceil(part*float64(matching)))) {
				if l := w.link(o, h); h.up && !l.called && callersOf(h) < maxCallers {
					l.called = true
					o.called = append(o.called, l)
					l.tend()
				}
			}
		}
		w.after(callEvery, o.call(number, life))
	}
}

// callersOf counts the schedulers that the host has answered.
func callersOf(h *host) int {
	if len(h.order) < maxCallers {
		return 0
	}
	n := 0
	for _, l := range h.order {
		if l.called {
			n++
		}
	}
	return n
}

// callsEnd makes the hosts that have answered give up their sessions, a while after the last announcement.
func callsEnd(o *owner) {
	if len(o.called) == 0 {
		return
	}
	last, life := o.callAt, o.life
	o.w.at(last+callHolds, func() {
		if o.life != life || !o.up || o.callAt != last {
			return
		}
		called := o.called
		o.called = nil
		for _, l := range called {
			l.called = false
			l.tend()
		}
	})
}
