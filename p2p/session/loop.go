package session

// What Run's goroutine knows and decides: for each peer whether to dial, which
// of two streams stays, and when to try again.

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
)

// maxGreeting bounds the streams of one peer that have not said Open yet.
const maxGreeting = 2

type loop struct {
	*Manager
	links map[job.Peer]*link
	mine  count // streams that this daemon has opened
	timer *time.Timer
	busy  int // goroutines that will still post
	side  sync.WaitGroup
	ends  bool // no more sessions
}

// link is what is known about one peer.
type link struct {
	peer     job.Peer
	cur      *conn              // up, or on its way down
	next     *open              // follows cur
	cancel   context.CancelFunc // of the dial under way, or nil
	offered  bool               // the dial has come to say Open: its stream counts
	greeting int                // of the peer's streams
	tries    int                // since a session was stable
	retry    time.Time          // not dialled before
	banned   time.Time          // refused until then: it sent what is invalid
	theirs   count              // newest stream of the peer when cur was agreed
}

func (l *loop) link(p job.Peer) *link {
	k := l.links[p]
	if k == nil {
		k = &link{peer: p}
		l.links[p] = k
	}
	return k
}

// forget drops a link that nothing depends on.
func (l *loop) forget(k *link) {
	_, wanted := l.table.wants(k.peer)
	if !wanted && k.cur == nil && k.cancel == nil && k.greeting == 0 && !time.Now().Before(k.banned) {
		delete(l.links, k.peer)
	}
}

// wanted follows changes of the set of wanted peers.
func (l *loop) wanted() {
	for _, p := range l.table.allWanted() {
		l.link(p)
	}
	for _, k := range l.links {
		if _, ok := l.table.wants(k.peer); !ok && k.cancel != nil && !k.offered {
			k.cancel()
		}
		l.forget(k)
	}
}

// dialDue dials every wanted peer whose time has come, and sets the timer for
// the next.
func (l *loop) dialDue(ctx context.Context) {
	now, next := time.Now(), time.Hour
	for _, k := range l.links {
		id, wanted := l.table.wants(k.peer)
		if k.cur != nil || k.cancel != nil {
			continue
		}
		if !wanted {
			l.forget(k)
			next = min(next, max(time.Millisecond, k.banned.Sub(now)))
			continue
		}
		if wait := k.retry.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		dialing, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
		k.cancel = cancel
		l.busy++
		go l.dial(dialing, k, id)
	}
	l.timer.Reset(next)
}

// mayOffer is asked by a dial that has a stream: what to say Open with.
func (l *loop) mayOffer(k *link) (count, bool) {
	if k.cur != nil || l.ends {
		return count{}, false
	}
	k.offered = true
	l.mine.n++
	return l.mine, true
}

// dialled is the end of a dial.
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
	l.forget(k)
}

// backOff puts the next dial off: full jitter, so that peers who lost the same
// host do not all come back at once.
func (l *loop) backOff(k *link) {
	limit := min(l.cfg.BackoffMax, l.cfg.BackoffMin<<min(k.tries, 16))
	k.tries++
	k.retry = time.Now().Add(rand.N(limit))
	if k.retry.Before(k.banned) {
		k.retry = k.banned
	}
}

func (l *loop) ban(k *link) { k.banned = time.Now().Add(l.cfg.BackoffMax) }

// arrived is a stream that a peer has opened.
func (l *loop) arrived(ctx context.Context, s network.Stream) {
	k := l.link(job.Peer(s.Conn().RemotePeer().String()))
	if l.ends || len(l.links) > l.cfg.MaxPeers || k.greeting >= maxGreeting || time.Now().Before(k.banned) {
		l.log.DebugContext(ctx, "session refused", "peer", string(k.peer), "peers", len(l.links), "banned", time.Now().Before(k.banned))
		_ = s.Reset()
		l.forget(k)
		return
	}
	k.greeting++
	l.busy++
	go l.greet(ctx, k, s)
}

// greeted is a stream on which the peer has said Open, or has not.
func (l *loop) greeted(k *link, o *open, err error) {
	k.greeting--
	l.busy--
	defer l.forget(k)
	switch {
	case errors.Is(err, ErrInvalid):
		l.ban(k)
		l.log.Warn("session not accepted", "peer", string(k.peer), "error", err)
		return
	case err != nil:
		l.log.Debug("session not accepted", "peer", string(k.peer), "error", err)
		return
	case l.ends, k.offered && l.self < k.peer, k.cur != nil && !o.theirs.after(k.theirs), time.Now().Before(k.banned):
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

// after says whether the stream was opened after what was known before.
func (c count) after(known count) bool {
	return c.incarnation != known.incarnation || c.n > known.n
}

// start makes a session of a stream.
func (l *loop) start(k *link, o open, opened bool) {
	c := newConn(l.cfg, k.peer, o, opened)
	c.source.done = c.done
	if !opened {
		_ = c.out.put(acceptFrame(l.mine)) // the first of a fresh queue
	}
	k.cur = c
	l.busy++
	l.side.Go(c.write)
	l.side.Go(c.watch)
	go func() {
		l.serve(c)
		l.post(func() { l.ended(k, c) })
	}()
}

// ended is a session that the handler has seen the last of.
func (l *loop) ended(k *link, c *conn) {
	l.busy--
	k.cur = nil
	if errors.Is(c.cause, ErrInvalid) {
		l.ban(k)
	}
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
	l.forget(k)
}

// stop says goodbye to all and waits for all.
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

// dial opens a stream to the peer and says Open on it.
func (l *loop) dial(ctx context.Context, k *link, id peer.ID) {
	o, err := l.offer(ctx, k, id)
	l.post(func() { l.dialled(k, o, err) })
}
