package session

// Pings measure round trips and clocks.

import (
	"math/rand/v2"
	"sync"
	"time"
)

// pings measures round trips, and how far the peer's clock differs from this host's clock. At most one Ping is timed at a
// time; the others keep the session alive. Each Ping has a random number, so that a peer cannot answer a Ping before it
// arrives in order to seem nearer than it is.
type pings struct {
	mu    sync.Mutex
	last  uint64        // guarded by mu; counts Pings
	sent  time.Time     // guarded by mu; when the newest Ping was queued
	timed uint64        // guarded by mu; number of the timed Ping, or 0
	at    time.Time     // guarded by mu; when the timed Ping was sent
	rtt   time.Duration // guarded by mu; smoothed as in TCP
	told  time.Duration // guarded by mu; rtt as Handler.Measured last got it
	ahead Clock         // guarded by mu
}

// Clock says how far the wall clock of a peer is ahead of this host's. The peer reports its own time, which nobody proves.
type Clock struct {
	Known  bool          // false: the peer has an earlier version, or was not measured yet
	Ahead  time.Duration // negative: behind
	Within time.Duration // how wrong Ahead may be, if the peer is honest
}

// clockWithin bounds Clock.Within: an answer that takes longer is not used to measure the clock.
const clockWithin = time.Second

func (p *pings) next(now time.Time) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.sent = now
	number := rand.Uint64() | 1
	if p.timed == 0 {
		p.timed, p.at = number, now
	}
	return number
}

// answered handles a Pong. clock is the time on the peer's clock; zero: the Pong does not have it. answered returns the
// smoothed round trip, and whether to call Handler.Measured with it.
func (p *pings) answered(number uint64, clock, now time.Time) (rtt time.Duration, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timed == 0 || number != p.timed {
		return p.rtt, false
	}
	took := max(now.Sub(p.at), 1)
	if p.rtt == 0 {
		p.rtt = took
	} else {
		p.rtt += (took - p.rtt) / 8
	}
	if within := took / 2; within <= clockWithin && !clock.IsZero() {
		p.ahead = Clock{true, clock.Sub(now.Round(0).Add(-within)), within}
	}
	p.timed = 0
	if changed = p.told == 0 || p.rtt > p.told+p.told/4 || p.told > p.rtt+p.rtt/4; changed {
		p.told = p.rtt
	}
	return p.rtt, changed
}

// unanswered returns how long the timed Ping has waited for its Pong; 0 if none is timed.
func (p *pings) unanswered(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timed == 0 {
		return 0
	}
	return now.Sub(p.at)
}

// due reports whether it is time to measure again.
func (p *pings) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timed == 0 && (p.last == 0 || now.Sub(p.sent) >= pingAgain)
}

func (p *pings) sinceLast(now, start time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == 0 {
		return now.Sub(start)
	}
	return now.Sub(p.sent)
}

func (p *pings) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rtt
}

func (p *pings) clock() Clock {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ahead
}
