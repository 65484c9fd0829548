package p2p

// The resources of a stranger, as libp2p's resource manager sees them.

import (
	"errors"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/network"
)

// errStranger means that a connection that is not admitted asked for more than strangers get.
var errStranger = errors.New("more than a connection that is not admitted may have")

// strangerScope is the resource scope of a connection that begins as a stranger. Before admission it does not use the
// memory limits of members: the bounds of strangers apply. After admission it acts as the scope that it wraps.
type strangerScope struct {
	network.ConnManagementScope
	who *stranger
}

// ReserveMemory refuses strangers, so that the windows of their connections do not grow.
func (s *strangerScope) ReserveMemory(size int, prio uint8) error {
	if !s.who.admitted.Load() {
		return errStranger
	}
	return s.ConnManagementScope.ReserveMemory(size, prio)
}

// PeerScope returns the scope from which yamux reserves memory for streams.
func (s *strangerScope) PeerScope() network.PeerScope {
	p := s.ConnManagementScope.PeerScope()
	if p == nil {
		return nil
	}
	return &strangerPeer{PeerScope: p, who: s.who}
}

// strangerPeer bounds the streams of a stranger.
type strangerPeer struct {
	network.PeerScope
	who *stranger
}

// BeginSpan is called for each new stream. An error ends the connection.
func (p *strangerPeer) BeginSpan() (network.ResourceScopeSpan, error) {
	if p.who.admitted.Load() {
		return p.PeerScope.BeginSpan()
	}
	if p.who.streams.Add(1) > maxStrangerStreams {
		return nil, errStranger
	}
	return &strangerSpan{}, nil
}

// strangerSpan is the memory of a stream that was opened before admission: its first window, which never grows. The bytes
// in it are bounded, because few bytes are read from the connection.
type strangerSpan struct {
	network.NullScope
	opened atomic.Bool
}

// ReserveMemory allows the first window only.
func (s *strangerSpan) ReserveMemory(int, uint8) error {
	if s.opened.Swap(true) {
		return errStranger
	}
	return nil
}

// strangerOf returns the stranger of a connection; nil for one that was dialled over QUIC.
func strangerOf(c interface{ Scope() network.ConnScope }) *stranger {
	if s, ok := c.Scope().(*strangerScope); ok {
		return s.who
	}
	return nil
}
