package session

// State and decisions of the manager's goroutine. For each peer it decides whether to dial, which of two streams to
// keep, and when to retry.

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

// maxGreeting bounds the streams of one peer that have not sent Open yet.
const maxGreeting = 2

type loop struct {
	*Manager
	links   map[job.Peer]*link
	agenda  *timers.Heap[time.Time, *link] // when to check each link again
	mine    count                          // streams that this daemon has opened
	timer   *time.Timer
	busy    int // goroutines that have yet to post their result
	leaving int // sessions that were given up and are not over yet
	// displaceFrom is the earliest time at which the next session may be given up to make room for another peer.
	displaceFrom time.Time
	bans         bans
	rates        rates
	trials       trials
	side         sync.WaitGroup
	ends         bool // stopping: no more sessions
}

// link is the state of one peer.
type link struct {
	peer     job.Peer
	look     timers.Timer[time.Time, *link]
	wanted   bool               // by the last change that was handled
	id       peer.ID            // libp2p ID to dial if the peer is wanted
	unwanted time.Time          // since when the peer has not been wanted
	left     time.Time          // when cur was given up; zero: cur was not given up
	cur      *conn              // the current session, up or ending
	next     *open              // the stream that replaces cur once cur has ended
	cancel   context.CancelFunc // cancels the dial in progress; nil: none
	offered  bool               // the dial was allowed to send Open, and its stream was counted
	greeting int                // streams from the peer that are in the greeting
	tries    int                // failed dials since the last stable session
	retry    time.Time          // no dial before this time
	banned   time.Time          // refused until this time, because of what the peer sent
	theirs   count              // the peer's count when cur was agreed
}

func (l *loop) link(p job.Peer) *link {
	k := l.links[p]
	if k == nil {
		k = &link{peer: p, unwanted: time.Now()}
		k.look.Value = k
		k.id, k.wanted = l.table.wants(p)
		k.banned = l.bans.until(p)
		l.links[p] = k
	}
	return k
}

// wanted handles changes of the set of wanted peers.
func (l *loop) wanted() {
	for _, p := range l.table.takeChanged() {
		k := l.link(p)
		was := k.wanted
		k.id, k.wanted = l.table.wants(p)
		if was && !k.wanted {
			k.unwanted = time.Now()
			if k.cancel != nil && !k.offered {
				k.cancel()
			}
		}
		l.settle(k)
	}
	if n := l.excess(); n > 0 {
		l.makeRoom(n, 0)
	}
}

// lookDue checks every link whose time has come, and sets the timer for the next.
func (l *loop) lookDue(ctx context.Context) {
	now := time.Now()
	for k, ok := l.agenda.Take(now); ok; k, ok = l.agenda.Take(now) {
		switch {
		case k.cur != nil && !k.left.IsZero():
			k.cur.cut(ErrUnused) // the peer does not end the stream
		case k.cur != nil && !now.Before(k.idleSince().Add(l.cfg.IdleAfter)):
			l.giveUp(k)
		case k.cur == nil && k.wanted:
			dialing, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
			k.cancel = cancel
			l.busy++
			go l.dial(dialing, k, k.id)
		}
		l.settle(k)
	}
	if at, ok := l.agenda.Next(); ok {
		l.timer.Reset(at.Sub(now))
	}
}

// mayOffer returns whether a dial that has a stream may send Open, and the count to send.
func (l *loop) mayOffer(k *link) (count, bool) {
	if k.cur != nil || l.ends {
		return count{}, false
	}
	k.offered = true
	l.mine.n++
	return l.mine, true
}

// dialled handles the end of a dial.
func (l *loop) dialled(k *link, o *open, err error) {
	k.cancel()
	k.cancel, k.offered = nil, false
	l.busy--
	switch {
	case err == nil && k.cur == nil && !l.ends:
		k.theirs = o.theirs
		l.start(k, *o, true)
		return
	case err == nil:
		_ = o.stream.Reset()
	case errors.Is(err, ErrInvalid):
		l.ban(k)
		l.log.Warn("session not opened", "peer", string(k.peer), "error", err)
	case k.cur == nil && !l.ends:
		l.log.Debug("session not opened", "peer", string(k.peer), "error", err, "try", k.tries)
	}
	if k.cur == nil {
		l.backOff(k)
	}
	l.settle(k)
}

// backOff delays the next dial by a random time from zero to the limit, so that peers that lost the same host do not all
// return at once.
func (l *loop) backOff(k *link) {
	limit := min(l.cfg.BackoffMax, l.cfg.BackoffMin<<min(k.tries, 16))
	k.tries++
	k.retry = time.Now().Add(rand.N(limit))
	if k.retry.Before(k.banned) {
		k.retry = k.banned
	}
}

// ban refuses sessions with the peer for a while.
func (l *loop) ban(k *link) {
	d := l.bans.add(k.peer, time.Now())
	k.banned = l.bans.until(k.peer)
	l.log.Debug("peer refused for a while", "peer", string(k.peer), "for", d)
}

// arrived handles a stream that a peer has opened.
func (l *loop) arrived(ctx context.Context, s network.Stream) {
	k := l.link(job.Peer(s.Conn().RemotePeer().String()))
	if l.ends || !k.wanted && l.excess() > greetRoom || k.greeting >= maxGreeting || time.Now().Before(k.banned) {
		l.log.DebugContext(ctx, "session refused", "peer", string(k.peer), "peers", len(l.links), "banned", time.Now().Before(k.banned))
		_ = s.Reset()
		l.settle(k)
		return
	}
	k.greeting++
	l.busy++
	go l.greet(ctx, k, s)
}

// greeted handles a stream on which the greeting has succeeded or failed.
func (l *loop) greeted(k *link, o *open, err error) {
	k.greeting--
	l.busy--
	defer l.settle(k)
	now := time.Now()
	switch {
	case errors.Is(err, ErrInvalid):
		l.ban(k)
		l.log.Warn("session not accepted", "peer", string(k.peer), "error", err)
		return
	case err != nil:
		l.log.Debug("session not accepted", "peer", string(k.peer), "error", err)
		return
	case l.ends, k.offered && l.self < k.peer, k.cur != nil && !o.theirs.after(k.theirs), now.Before(k.banned):
		_ = o.stream.Reset()
		return
	case !l.admit(k, now):
		l.log.Debug("session refused", "peer", string(k.peer), "peers", len(l.links))
		_ = o.stream.Reset()
		return
	}
	k.theirs = o.theirs
	if k.cancel != nil {
		k.cancel()
	}
	if k.cur == nil {
		l.start(k, *o, false)
		return
	}
	if k.next != nil {
		_ = k.next.stream.Reset()
	}
	k.next = o
	k.cur.cut(ErrReplaced)
}

// after reports whether the stream with count c was opened after the stream with count known.
func (c count) after(known count) bool {
	return c.incarnation != known.incarnation || c.n > known.n
}

// start turns a stream into a session.
func (l *loop) start(k *link, o open, opened bool) {
	c := newConn(l.cfg, k.peer, o, opened)
	c.out.underWay.suspects = l.trials.of(k.peer, o.knows)
	c.source.done = c.done
	c.source.limiter = l.rates.of(k.peer, c.since)
	c.source.owed += sessionCost
	id := o.stream.Conn().RemotePeer()
	c.checks = checks{profiles: newProfiles(), roles: roleCheck{
		roles: func() p2p.Roles { return l.host.RolesOf(id) }, knows: o.knows.roles,
		denied: func(err error) {
			l.denied.Add(1)
			if l.cfg.Denied != nil {
				l.cfg.Denied(k.peer, err)
			}
		},
		first: func(err error) {
			l.log.Warn("messages ignored of a peer of an earlier version", "peer", string(k.peer), "error", err)
		},
	}}
	if !opened {
		_ = c.out.put(acceptFrame(l.mine)) // the first frame of a new queue
	}
	k.cur = c
	l.settle(k)
	l.busy++
	l.side.Go(c.write)
	l.side.Go(c.watch)
	go func() {
		l.serve(c)
		l.post(func() { l.ended(k, c) })
	}()
}

// ended handles a session whose handler has returned for the last time.
func (l *loop) ended(k *link, c *conn) {
	l.busy--
	k.cur = nil
	if !k.left.IsZero() {
		k.left = time.Time{}
		l.leaving--
	}
	if deserved(c.cause) {
		l.ban(k)
	}
	l.trials.ended(c, time.Now())
	if time.Since(c.since) >= stableAfter {
		k.tries = 0
	}
	next := k.next
	k.next = nil
	switch {
	case next != nil && !l.ends:
		l.start(k, *next, false)
		return
	case next != nil:
		_ = next.stream.Reset()
	}
	l.backOff(k)
	l.settle(k)
}

// stop says goodbye on all sessions and waits for them.
func (l *loop) stop() {
	l.ends = true
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for _, k := range l.links {
		if k.cancel != nil {
			k.cancel()
		}
		if k.cur != nil {
			k.cur.leave()
		}
	}
	for l.busy > 0 {
		select {
		case f := <-l.do:
			f()
		case <-grace.C:
			for _, k := range l.links {
				if k.cur != nil {
					k.cur.cut(ErrStopped)
				}
			}
		}
	}
	l.side.Wait()
}

// dial opens a stream to the peer and sends Open on it.
func (l *loop) dial(ctx context.Context, k *link, id peer.ID) {
	o, err := l.offer(ctx, k, id)
	l.post(func() { l.dialled(k, o, err) })
}
