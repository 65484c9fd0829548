package session

// Which sessions are given up: the unused sessions that this side opened and no longer wants, and, if there are too many
// sessions, the least useful ones.
// See docs/adr, ADR 58.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
)

const (
	// displaceIdle is how long a session that its peer opened must have been idle before the session of another peer may
	// displace it. The displaced peer dials again, so this bounds how often sessions are displaced.
	displaceIdle = 5 * time.Minute
	// displaceEvery is the minimum time between two displacements. Without it, each displaced peer would return and
	// displace the next one at once. It also bounds how often all links are scanned.
	displaceEvery = 10 * time.Second
	// greetRoom bounds the peers beyond Config.MaxPeers that may send Open before the manager knows whether there is
	// room.
	greetRoom = 256
)

// inUse reports whether a message shows that somebody needs the session. Messages to everybody do not: a busy host
// reports its free resources many times a minute, and renews its lease with every scheduler that it has a session with.
func inUse(msg any) bool {
	switch m := msg.(type) {
	case contract.Hello, contract.Availability, contract.Owns:
		return false
	case contract.Renew:
		return len(m.Live) > 0
	case contract.Renewed:
		return len(m.Verdicts) > 0
	}
	return true
}

// settle plans the next check of a link, or removes a link that is no longer needed. Call it after every change of a
// link.
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

// due returns the time of a link's next check, zero for none, and whether the link is still needed.
func (l *loop) due(k *link, now time.Time) (at time.Time, needed bool) {
	switch {
	case k.cur != nil && k.cur.over():
		return time.Time{}, true // ended is called later
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

// idleSince returns the time since which the session has been neither wanted nor used.
func (k *link) idleSince() time.Time {
	used := k.cur.lastUse()
	if k.unwanted.After(used) {
		return k.unwanted
	}
	return used
}

// giveUp ends a session that nobody here needs. The peer reads the end of the stream, and dials if it needs a
// session.
func (l *loop) giveUp(k *link) {
	if !k.left.IsZero() || k.cur.over() {
		return
	}
	k.left = time.Now()
	l.leaving++
	k.cur.giveUp()
	l.settle(k)
}

// excess returns the number of links above Config.MaxPeers.
func (l *loop) excess() int { return len(l.links) - l.leaving - l.cfg.MaxPeers }

// makeRoom gives up at most n unwanted sessions, the least useful first, and returns how many it gave up. Sessions that
// this side opened go before sessions that the peer opened, then the longest idle go first. Sessions that the peer
// opened must have been idle for at least the given time.
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

// admit reports whether a peer that has sent Open gets a session. A wanted peer always does.
func (l *loop) admit(k *link, now time.Time) bool {
	switch {
	case k.wanted, k.cur != nil, l.excess() <= 0:
		return true
	case now.Before(l.displaceFrom):
		return false
	}
	l.displaceFrom = now.Add(displaceEvery)
	return l.makeRoom(1, displaceIdle) > 0
}
