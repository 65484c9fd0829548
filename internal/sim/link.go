package sim

// Links: the session between an owner's daemon and a host's daemon. It may break, which loses what is under way, and it
// is opened again if a side wants it.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
)

type link struct {
	w     *World
	o     *owner
	h     *host
	local bool // both are of one daemon

	purpose

	dialling, open bool
	oUp, hUp       bool // what each side believes
	session        int  // the number of the newest session
	cutUntil       time.Duration
	badUntil       time.Duration // until then, neither side can be expected to reach the other
	cost           time.Duration // of the path, as the owner was last told in this session; 0: not yet told
	told           time.Duration // when the host sent what the owner last heard of its free resources
	said

	carried []job.Digest // job files that the session remembers
	toHost  direction[contract.ToWorker]
	toOwner direction[contract.ToScheduler]
}

// purpose is what a session is for.
type purpose struct {
	standing              bool // kept even when nothing needs it
	ownerWants, hostWants bool
	called                bool // the host has answered an announcement of the owner
}

// link returns the link between an owner and a host. It makes the link when it is first needed.
func (w *World) link(o *owner, h *host) *link {
	if l := o.links[h.peer]; l != nil {
		return l
	}
	l := &link{w: w, o: o, h: h, local: o.local == h}
	l.toHost = direction[contract.ToWorker]{link: l, toHost: true}
	l.toOwner = direction[contract.ToScheduler]{link: l}
	o.links[h.peer] = l
	o.order = append(o.order, l)
	h.links[o.peer] = l
	h.order = append(h.order, l)
	return l
}

// openStanding opens the sessions that the owner keeps even when nothing needs them: with its own worker, and with some
// random hosts.
func openStanding(o *owner) {
	w := o.w
	if o.local != nil {
		w.link(o, o.local).tend()
	}
	n, want := len(w.hosts), min(w.cfg.Standing, len(w.hosts))
	chosen := map[int]bool{}
	for len(chosen) < want {
		i := len(chosen)
		if want < n {
			i = w.chance.IntN(n)
		}
		if chosen[i] {
			continue
		}
		chosen[i] = true
		l := w.link(o, w.hosts[i])
		l.standing = true
		l.tend()
	}
}

const (
	// backOff bounds the pause before a session that broke is dialled again.
	backOff = 5 * time.Second
	// badFor is how long after the end of a break the sides still cannot be expected to reach each other.
	badFor = 600 * time.Millisecond
)

// ends returns the addresses of the host and of the owner. Both are empty if they are the same daemon.
func (l *link) ends() (host, owner string) {
	if l.local {
		return "", ""
	}
	if local := l.o.local; local != nil {
		return l.h.address(), local.address()
	}
	return l.h.address(), fmt.Sprintf("10.255.%d.%d", l.o.index/250, l.o.index%250+1)
}

func (l *link) wanted() bool {
	return l.local || l.standing || l.ownerWants || l.hostWants || l.called
}

// reachable reports whether the network has a path.
func (l *link) reachable() bool { return l.local || l.w.net.Reachable(l.o.at, l.h.index) }

// tend opens the session if it is wanted and possible, and closes it if it is not wanted.
func (l *link) tend() {
	w := l.w
	switch {
	case l.open && !l.wanted():
		l.close()
	case l.open || l.dialling || !l.wanted() || !l.o.up || !l.h.up:
	case w.now < l.cutUntil, !l.reachable(): // tend is called again when the cut is over
	default:
		l.dialling = true
		pause := time.Duration(0)
		if !l.local {
			pause = 4*w.net.Cost(l.o.at, l.h.index) + w.draw(w.cfg.Costs.Dial)
		}
		w.after(pause, func() {
			l.dialling = false
			if !l.open && l.wanted() && l.o.up && l.h.up && w.now >= l.cutUntil && l.reachable() {
				l.connect()
			}
		})
	}
}

// connect begins a session. A side that still believes in an older session hears first that this has ended.
func (l *link) connect() {
	l.ownerDown()
	l.hostDown()
	l.open = true
	l.session++
	l.carried, l.said = nil, said{}
	l.toHost.begin()
	l.toOwner.begin()
	l.hUp, l.oUp = true, true
	if !l.local {
		l.w.counts.Sessions++
	}
	at, from := l.ends()
	l.h.tell(worker.Up{Peer: l.o.peer, Path: contract.Path{Local: at, Remote: from}})
	l.o.tell(step.SessionUp{Peer: l.h.peer, Path: contract.Path{Local: from, Remote: at}})
	l.cost = 0
	l.measure()
	l.w.logf("session %s %s opens", l.o.peer, l.h.peer)
}

// measure tells the owner the cost of the path to the host, if it has changed since the owner was last told in this
// session. In real daemons the session's pings measure it.
func (l *link) measure() {
	if l.local || !l.open {
		return
	}
	if cost := l.w.net.Cost(l.o.at, l.h.index); cost != l.cost && cost <= mostCost {
		l.cost = cost
		l.o.tell(step.Measured{Peer: l.h.peer, RoundTrip: 2 * cost})
	}
}

const (
	// mostCost is more than any path costs.
	mostCost = time.Hour
	// pingAgain is how often the pings of a session measure its path.
	pingAgain = 30 * time.Second
)

func (l *link) ownerDown() {
	if l.oUp && l.o.up {
		l.o.tell(step.SessionDown{Peer: l.h.peer})
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

// sever breaks the session, if there is one, and keeps another from opening for a while. What is under way is lost, and
// each side notices the break later by itself.
func (l *link) sever(notice Range, cut time.Duration) {
	w := l.w
	if l.local {
		return
	}
	l.cutUntil = max(l.cutUntil, w.now+cut)
	hears := w.now
	if l.open {
		l.open = false
		l.session++
		w.counts.Broken++
		session := l.session
		w.logf("session %s %s breaks for %v", l.o.peer, l.h.peer, cut)
		first, second := w.draw(notice), w.draw(notice)
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
	again := max(hears, l.cutUntil) + between(w.chance, 0, min(cut/2, backOff))
	l.cutUntil = again // dialled again with a back-off
	l.badUntil = max(l.badUntil, again+badFor)
	w.at(again, l.tend)
}

// died ends the session because the daemon of one side has ended. The other side notices that later.
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
	if !l.local {
		l.w.counts.Broken++
	}
	session := l.session
	l.w.after(between(l.w.chance, 20*time.Millisecond, l.w.cfg.Costs.Notice.Most), func() {
		if l.session == session {
			l.ownerDown()
			l.hostDown()
			l.tend()
		}
	})
}

// dropWants forgets which sessions an ended daemon wanted.
func (l *link) dropWants(host bool) {
	if host {
		l.hostWants = false
		l.hangUp()
	} else {
		l.ownerWants = false
	}
}

// hangUp forgets that the host has answered an announcement.
func (l *link) hangUp() {
	if l.called {
		l.called = false
		if i := slices.Index(l.o.called, l); i >= 0 {
			l.o.called = slices.Delete(l.o.called, i, i+1)
		}
	}
}

// want notes whether the owner's core wants a session with a host.
func (o *owner) want(p job.Peer, wants bool) {
	if h := o.w.hostOf[p]; h != nil && (wants || o.links[p] != nil) {
		l := o.w.link(o, h)
		l.ownerWants = wants
		l.tend()
	}
}

func (h *host) wantOwner(p job.Peer, wants bool) {
	if o := h.w.ownerOf[p]; o != nil && (wants || h.links[p] != nil) {
		l := h.w.link(o, h)
		l.hostWants = wants
		l.tend()
	}
}
