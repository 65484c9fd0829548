package session

// Pings: round trips and clocks, as both are measured.

import (
	"math/rand/v2"
	"sync"
	"time"
)

// pings measures round trips, and how far the clock of the peer is from that of this host. At any time at most one Ping is timed;
// the others keep the session alive. Each has a random number. So a peer cannot answer a Ping before it has come, to seem nearer
// than it is.
type pings struct {
	mu    sync.Mutex
	last  uint64        // guarded by mu; counts Pings
	sent  time.Time     // guarded by mu; when the newest Ping was queued
	timed uint64        // guarded by mu; number of the timed Ping, or 0
	at    time.Time     // guarded by mu; when the timed Ping was sent
	rtt   time.Duration // guarded by mu; smoothed as in TCP
	told  time.Duration // guarded by mu; as Handler.Measured was told
	ahead Clock         // guarded by mu
}

// Clock is how far the wall clock of a peer is ahead of that of this host. The peer says what its clock reads; nobody proves it.
type Clock struct {
	Known  bool          // false: the peer has an earlier version, or was not measured yet
	Ahead  time.Duration // negative: behind
	Within time.Duration // how wrong Ahead may be, if the peer is honest
}

// clockWithin bounds Clock.Within: slower answers say nothing of the clock.
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

// answered takes a Pong, which has what the clock of the peer read; zero: it does not tell. It returns the smoothed round trip,
// and whether Handler.Measured is to be told of it.
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
