package p2p

// Strangers: connections that are not admitted yet. This file bounds how many there may be, and how much each may send.
// See docs/adr, ADR 116.

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// maxStrangers bounds the strangers of one transport, from accept to admission. Each may hold about 150 KB for at
	// most helloTimeout.
	maxStrangers = 512
	// maxStrangersEach bounds the strangers from one network, so that one network cannot take all places. It leaves room
	// for a hundred daemons on one host that join at once.
	maxStrangersEach = 256
	// strangerBytes bounds what is read from a stranger, handshakes included. A hello or a join takes 10 KB with them.
	strangerBytes = 64 << 10
	// maxStrangerStreams bounds the streams of a stranger. A plain libp2p client first tries to identify.
	maxStrangerStreams = 16
	// muteAfter and stalledAfter are how long a stranger may be silent before a new one may take its place: muteAfter if it
	// has not sent anything yet, stalledAfter if it has. A TCP dialer sends its first bytes with the last packet that opens
	// the connection.
	muteAfter    = 20 * time.Millisecond
	stalledAfter = 500 * time.Millisecond
	// meterEvery is how often the bytes of strangers over QUIC are compared with strangerBytes. QUIC itself accepts at
	// most 768 KiB that nobody reads.
	meterEvery = 10 * time.Millisecond
)

// stranger is one connection that is not admitted yet.
type stranger struct {
	room  *strangers   // nil if this daemon dialled
	from  netip.Prefix // guarded by room.mu
	since time.Time

	bytes    atomic.Int64 // bytes received, as of the last count
	streams  atomic.Int32 // streams that it has opened over yamux
	heard    atomic.Int64 // when bytes last arrived, in Unix nanoseconds; 0: never
	admitted atomic.Bool
	known    chan struct{} // closed on admission
	left     sync.Once

	end      func()        // guarded by room.mu; ends the connection; nil while that is impossible
	received func() uint64 // guarded by room.mu; returns the bytes that QUIC has received; nil for TCP, which hear counts
}

func newStranger(now time.Time) *stranger {
	return &stranger{since: now, known: make(chan struct{})}
}

// hear counts received bytes.
func (s *stranger) hear(n int) {
	if n > 0 {
		s.bytes.Add(int64(n))
		s.heard.Store(time.Now().UnixNano())
	}
}

// admit lifts the bounds of the connection: it is no longer a stranger.
func (s *stranger) admit() {
	if s.admitted.CompareAndSwap(false, true) {
		close(s.known)
		s.leave()
	}
}

// leave gives the place back. Further calls do nothing.
func (s *stranger) leave() {
	if s.room != nil {
		s.left.Do(func() { s.room.remove(s) })
	}
}

// idle returns the time since which a stranger is silent, and how long it may be silent.
func (s *stranger) idle() (since time.Time, allowed time.Duration) {
	if at := s.heard.Load(); at != 0 {
		return time.Unix(0, at), stalledAfter
	}
	return s.since, muteAfter
}

// strangers counts the strangers of one transport.
type strangers struct {
	limit int
	each  int

	mu       sync.Mutex
	list     map[*stranger]struct{} // guarded by mu
	from     map[netip.Prefix]int   // guarded by mu
	metering bool                   // guarded by mu; meter will run
}

func newStrangers() *strangers {
	return &strangers{limit: maxStrangers, each: maxStrangersEach, list: map[*stranger]struct{}{}, from: map[netip.Prefix]int{}}
}

// networkOf returns the network of an address: a /24 of IPv4, a /64 of IPv6.
func networkOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no IP address; all such connections share the bound
	}
	return p
}

func addrOf(a ma.Multiaddr) netip.Addr {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr
}

// stranger makes a stranger that has no place yet.
func (s *strangers) stranger() *stranger {
	one := newStranger(time.Now())
	one.room = s
	return one
}

// enter gives a new connection a place; it returns nil if there is none.
func (s *strangers) enter(ip netip.Addr, end func()) *stranger {
	one := s.stranger()
	if !s.take(one, ip, end) {
		return nil
	}
	return one
}

// take gives a stranger a place, and returns false if there is none. If all places are taken, it ends the connection of
// the stranger that has been silent for too long, and longest, and reuses that place. Once a stranger has a place, a later
// call of take may end its connection.
func (s *strangers) take(one *stranger, ip netip.Addr, end func()) bool {
	now, from := one.since, networkOf(ip)
	s.mu.Lock()
	var out *stranger
	switch {
	case s.from[from] >= s.each:
		out = s.silentLocked(from, now)
	case len(s.list) >= s.limit:
		out = s.silentLocked(s.crowdedLocked(), now)
	}
	if out != nil {
		s.removeLocked(out)
	}
	if s.from[from] >= s.each || len(s.list) >= s.limit {
		s.mu.Unlock()
		return false
	}
	one.from, one.end = from, end
	s.list[one] = struct{}{}
	s.from[one.from]++
	s.mu.Unlock()
	if out != nil {
		out.end()
	}
	return true
}

// silentLocked returns the stranger of a network whose place a new one may take: one that never sent anything if there is
// one, and among equals the one that has been silent longest.
func (s *strangers) silentLocked(from netip.Prefix, now time.Time) *stranger {
	var out *stranger
	var outSince time.Time
	var outAllowed time.Duration
	for one := range s.list {
		since, allowed := one.idle()
		if one.from != from || one.end == nil || now.Sub(since) < allowed {
			continue
		}
		if out == nil || allowed < outAllowed || allowed == outAllowed && since.Before(outSince) {
			out, outSince, outAllowed = one, since, allowed
		}
	}
	return out
}

// crowdedLocked returns the network with the most strangers.
func (s *strangers) crowdedLocked() netip.Prefix {
	var most netip.Prefix
	for p, n := range s.from {
		if n > s.from[most] {
			most = p
		}
	}
	return most
}

func (s *strangers) remove(one *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(one)
}

func (s *strangers) removeLocked(one *stranger) {
	if _, ok := s.list[one]; !ok {
		return
	}
	delete(s.list, one)
	if s.from[one.from]--; s.from[one.from] <= 0 {
		delete(s.from, one.from)
	}
}

// busy reports whether at least half of the places for an address are taken.
func (s *strangers) busy(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 2*len(s.list) >= s.limit || 2*s.from[networkOf(ip)] >= s.each
}

// count returns the number of strangers.
func (s *strangers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// follow begins to bound the bytes of a stranger over QUIC. received returns its bytes so far, and end ends its connection.
func (s *strangers) follow(one *stranger, received func() uint64, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.received, one.end = received, end
	if _, ok := s.list[one]; ok && !s.metering {
		s.metering = true
		time.AfterFunc(meterEvery, s.meter)
	}
}

// meter ends strangers over QUIC that send too much. It runs every meterEvery while there are strangers over QUIC.
func (s *strangers) meter() {
	over, more := s.overLimit()
	for _, end := range over {
		end()
	}
	if more {
		time.AfterFunc(meterEvery, s.meter)
	}
}

// overLimit counts the bytes of strangers over QUIC, and returns the functions that end those that sent too much. more is
// false if there are no strangers over QUIC; metering then ends.
func (s *strangers) overLimit() (over []func(), more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.list {
		if one.received == nil {
			continue
		}
		more = true
		if n := int64(one.received()); n != one.bytes.Load() { //nolint:gosec // far below 2^63
			one.hear(int(n - one.bytes.Load()))
		}
		if one.bytes.Load() > strangerBytes && !one.admitted.Load() {
			over = append(over, one.end)
			s.removeLocked(one)
		}
	}
	s.metering = more
	return over, more
}
