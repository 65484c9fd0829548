package session

// Which sessions are given up: those that this side opened and nobody here
// wants any more, and, where there are too many, the least useful.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/lease"
)

const (
	// sparedFor is how long a session that its peer opened must have been of no
	// use before a stranger's takes its place: who is put out dials again, and
	// so each place changes hands at most once in this time.
	sparedFor = 5 * time.Minute
	// crowdedFor is how long no other place changes hands: who was put out comes
	// again, and would put out the next, and so on through all of them. It also
	// bounds the looks through all links.
	crowdedFor = 10 * time.Second
	// greetRoom bounds the peers beyond Config.MaxPeers that may say Open before
	// it is known whether there is room: as many as come at once.
	greetRoom = 256
)

// inUse says whether a message shows that somebody needs the session. What a
// daemon tells to whoever is there does not: a busy host says many times a
// minute what it has free.
func inUse(msg any) bool {
	switch msg.(type) {
	case lease.Hello, lease.Availability, lease.Owns:
		return false
	}
	return true
}

// settle plans when to look at a link again, or drops one that nothing
// depends on. Whatever changes a link calls it afterwards.
func (l *loop) settle(k *link) {
	at, needed := l.due(k, time.Now())
	if at.IsZero() {
		l.agenda.Stop(&k.look)
	} else {
		l.agenda.Set(&k.look, at)
	}
	if !needed {
		delete(l.links, k.peer)
	}
}

// due is when to look at a link again, zero for not before it changes, and
// whether anything depends on it.
func (l *loop) due(k *link, now time.Time) (at time.Time, needed bool) {
	switch {
	case k.cur != nil && k.cur.over():
		return time.Time{}, true // ended comes
	case k.cur != nil && !k.left.IsZero():
		return k.left.Add(l.cfg.Silence), true
	case k.cur != nil && k.cur.opened && !k.wanted:
		return k.idleSince().Add(l.cfg.IdleAfter), true
	case k.cur != nil, k.cancel != nil:
		return time.Time{}, true
	case k.wanted && k.retry.IsZero():
		return now, true
	case k.wanted:
		return k.retry, true
	case now.Before(k.banned):
		return k.banned, true
	}
	return time.Time{}, k.greeting > 0
}

// idleSince is since when a session has been of no use: neither wanted nor used.
func (k *link) idleSince() time.Time {
	used := k.cur.lastUse()
	if k.unwanted.After(used) {
		return k.unwanted
	}
	return used
}

// giveUp ends a session that nobody here needs: the peer reads the end of the
// stream, and dials if it needs it.
func (l *loop) giveUp(k *link) {
	if !k.left.IsZero() || k.cur.over() {
		return
	}
	k.left = time.Now()
	l.leaving++
	k.cur.giveUp()
	l.settle(k)
}

// crowd is by how many the links are too many.
func (l *loop) crowd() int { return len(l.links) - l.leaving - l.cfg.MaxPeers }

// makeRoom gives up the least useful of the sessions that are not wanted: those
// that this side opened before others, and the longest idle first. It takes at
// most n, each idle for at least so long, and says how many it took.
func (l *loop) makeRoom(n int, idle time.Duration) int {
	var useless []*link
	now := time.Now()
	for _, k := range l.links {
		if !k.wanted && k.cur != nil && k.left.IsZero() && !k.cur.over() && (k.cur.opened || now.Sub(k.idleSince()) >= idle) {
			useless = append(useless, k)
		}
	}
	slices.SortFunc(useless, func(a, b *link) int {
		switch {
		case a.cur.opened != b.cur.opened && a.cur.opened:
			return -1
		case a.cur.opened != b.cur.opened:
			return 1
		}
		return cmp.Or(a.idleSince().Compare(b.idleSince()), cmp.Compare(a.peer, b.peer))
	})
	useless = useless[:min(n, len(useless))]
	for _, k := range useless {
		l.log.Debug("session given up for another", "peer", string(k.peer), "peers", len(l.links))
		l.giveUp(k)
	}
	return len(useless)
}

// admit says whether a peer that has said Open gets a session. One that this
// daemon wants always does.
func (l *loop) admit(k *link, now time.Time) bool {
	switch {
	case k.wanted, k.cur != nil, l.crowd() <= 0:
		return true
	case now.Before(l.crowded):
		return false
	}
	l.crowded = now.Add(crowdedFor)
	return l.makeRoom(1, sparedFor) > 0
}
