package joint

// Links: the session between an owner's daemon and a host's, which breaks,
// loses what is under way, and comes back where somebody wants it.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/worker"
)

type link struct {
	w       *world
	o       *owner
	h       *host
	local   bool // both are of one daemon
	latency time.Duration

	standing              bool // kept without need
	ownerWants, hostWants bool
	called                bool // the host has answered a call of the owner

	dialling, open bool
	oUp, hUp       bool // what each side believes
	session        int  // the number of the newest session
	cutUntil       time.Duration
	badUntil       time.Duration // before it, one could not be expected to reach the other

	toHost  direction[lease.ToWorker]
	toOwner direction[lease.ToScheduler]
}

// direction is one way of a link.
type direction[M any] struct {
	link     *link
	from, to job.Peer
	newest   *batch[M]     // nil once it has arrived or was lost
	last     time.Duration // when the last message arrives
	deliver  func([]M)     // to the core, if its daemon is up
}

// batch is the messages of one side that arrive at one moment.
type batch[M any] struct {
	at   time.Duration
	msgs []M
}

// newLink makes a link between two daemons, which has no session yet.
func newLink(o *owner, h *host, standing bool) *link {
	l := &link{w: o.w, o: o, h: h, local: o.local == h, standing: standing}
	l.toHost = direction[lease.ToWorker]{link: l, from: o.peer, to: h.peer, deliver: func(msgs []lease.ToWorker) {
		for _, m := range msgs {
			if h.up {
				h.tell(worker.Message{From: o.peer, Msg: m})
			}
		}
	}}
	l.toOwner = direction[lease.ToScheduler]{link: l, from: h.peer, to: o.peer, deliver: func(msgs []lease.ToScheduler) {
		for _, m := range msgs {
			if o.up {
				o.tell(scheduler.FromWorker{Peer: h.peer, Msg: m})
			}
		}
	}}
	return l
}

const (
	// noticeMost is how long a side may believe in a session that is gone: a ping
	// every 2 s, and silence of 6 s.
	noticeMost = 8 * time.Second
	dialLeast  = 5 * time.Millisecond
	dialMost   = 400 * time.Millisecond
)

func (l *link) wanted() bool {
	return l.local || l.standing || l.ownerWants || l.hostWants || l.called
}

// tend opens or closes the session, as it is wanted and possible.
func (l *link) tend() {
	w := l.w
	switch {
	case l.open && !l.wanted():
		l.close()
	case l.open || l.dialling || !l.wanted() || !l.o.up || !l.h.up:
	case w.now < l.cutUntil: // tend comes again when the cut is over
	default:
		l.dialling = true
		pause := time.Duration(0)
		if !l.local {
			pause = 2*l.latency + between(w.chance, dialLeast, dialMost)
		}
		w.after(pause, func() {
			l.dialling = false
			if !l.open && l.wanted() && l.o.up && l.h.up && w.now >= l.cutUntil {
				l.connect()
			}
		})
	}
}

// connect begins a session. A side that still believes in an older one hears of
// that one's end first.
func (l *link) connect() {
	l.ownerDown()
	l.hostDown()
	l.open = true
	l.session++
	l.toHost.newest, l.toOwner.newest = nil, nil
	l.hUp, l.oUp = true, true
	at, from := l.ends()
	l.h.tell(worker.Up{Peer: l.o.peer, Path: lease.Path{Local: at, Remote: from}})
	l.o.tell(scheduler.SessionUp{Peer: l.h.peer, Path: lease.Path{Local: from, Remote: at}})
	l.w.logf("session %s %s opens", l.o.peer, l.h.peer)
}

func (l *link) ownerDown() {
	if l.oUp && l.o.up {
		l.o.tell(scheduler.SessionDown{Peer: l.h.peer})
	}
	l.oUp = false
}

func (l *link) hostDown() {
	if l.hUp && l.h.up {
		l.h.tell(worker.Down{Peer: l.o.peer})
	}
	l.hUp = false
}

// close ends a session in order: both sides know at once.
func (l *link) close() {
	l.open = false
	l.session++
	l.ownerDown()
	l.hostDown()
	l.w.logf("session %s %s is closed", l.o.peer, l.h.peer)
}

// sever breaks the session, if there is one, and keeps another from opening for
// a while. What is under way is lost, and each side finds out in its own time.
func (l *link) sever(notice, cut time.Duration) {
	w := l.w
	if l.local {
		return
	}
	l.cutUntil = max(l.cutUntil, w.now+cut)
	hears := w.now
	if l.open {
		l.open = false
		l.session++
		session := l.session
		w.logf("session %s %s breaks for %v", l.o.peer, l.h.peer, cut)
		first, second := between(w.chance, 0, notice), between(w.chance, 0, notice)
		w.after(first, func() {
			if l.session == session {
				l.ownerDown()
			}
		})
		w.after(second, func() {
			if l.session == session {
				l.hostDown()
			}
		})
		hears += max(first, second)
	}
	again := max(hears, l.cutUntil) + between(w.chance, 0, min(cut/2, 5*time.Second))
	l.cutUntil = again // dialled again with a back-off
	l.badUntil = max(l.badUntil, again+dialMost+4*l.latency)
	w.at(again, l.tend)
}

// died ends the session because one side's daemon has. The other side finds out
// in its own time.
func (l *link) died(host bool) {
	if host {
		l.hUp = false
	} else {
		l.oUp = false
	}
	l.dropWants(host)
	if !l.open {
		return
	}
	l.open = false
	l.session++
	session := l.session
	l.w.after(between(l.w.chance, 20*time.Millisecond, noticeMost), func() {
		if l.session == session {
			l.ownerDown()
			l.hostDown()
			l.tend()
		}
	})
}

// dropWants forgets what a daemon wanted that has ended.
func (l *link) dropWants(host bool) {
	if host {
		l.hostWants, l.called = false, false
	} else {
		l.ownerWants = false
	}
}

// usable says for how long the two could have reached each other by now: both
// daemons up, the way between them open.
func (l *link) usable() time.Duration {
	if !l.o.up || !l.h.up || !l.o.leads || l.w.now < l.badUntil {
		return 0
	}
	return l.w.now - max(l.badUntil, l.o.leadAt, l.h.upAt, l.o.stalledUntil, l.h.stalledUntil, 0)
}

// send carries a message to the host's core.
func (o *owner) send(to job.Peer, m lease.ToWorker) {
	l := o.links[to]
	if l == nil {
		return
	}
	if x, ok := m.(lease.Offer); ok {
		o.w.offered(o, l.h, x)
	}
	if x, ok := m.(lease.Start); ok {
		o.checkStart(to, x)
	}
	l.toHost.send(l.oUp, m)
}

// send carries a message to the owner's core.
func (h *host) send(to job.Peer, m lease.ToScheduler) {
	l := h.linkTo(to)
	if l == nil {
		return
	}
	if a, ok := m.(lease.Availability); ok {
		for _, f := range a.Forecasts {
			h.w.expects(h, f)
		}
	}
	l.toOwner.send(l.hUp, m)
}

// send puts a message on its way, if the sender believes that the session is up.
func (d *direction[M]) send(up bool, m M) {
	l := d.link
	w := l.w
	if !l.local {
		if why := wireRefuses(m); why != "" {
			w.fail("%s sends %s a %T that no session takes: %s", d.from, d.to, m, why)
			return
		}
	}
	if !l.open || !up {
		return
	}
	if w.trace != nil {
		w.logf("%s to %s: %s", d.from, d.to, brief(m))
	}
	w.stats.messages++
	at := max(w.now+l.latency+w.late(w.opt.slow.message), d.last)
	d.last = at
	if d.newest != nil && d.newest.at == at {
		d.newest.msgs = append(d.newest.msgs, m)
		return
	}
	b := &batch[M]{at: at, msgs: []M{m}}
	d.newest = b
	session := l.session
	w.at(at, func() {
		if d.newest == b {
			d.newest = nil
		}
		if l.session == session {
			d.deliver(b.msgs)
		}
	})
}

// linkTo is the host's link to an owner.
func (h *host) linkTo(p job.Peer) *link {
	for _, l := range h.links {
		if l.o.peer == p {
			return l
		}
	}
	return nil
}
