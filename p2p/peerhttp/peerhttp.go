// Package peerhttp is HTTP between daemons: HTTP/1.1 on libp2p streams, so
// that the API's own handler answers other daemons too, and any daemon passes
// a request on to the one that has the answer.
//
// # The protocol /muster/http/1
//
// The stream is the connection: whoever opens it sends requests, and reuses it
// for the next. [Listener] gives such streams to an http.Server, [NewTransport]
// opens them for an http.Client that takes URLs like http://PEER/path. The
// connection below is authenticated and encrypted by libp2p, and open to
// members only; the remote address of a connection names the member.
//
// A peer has at most [Config.PeerStreams] streams open, all together at most
// [Config.Streams]; what is more is reset. Waits within a request are bounded
// by the http.Server's own timeouts.
package peerhttp

import (
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"
)

// ID is the protocol.
const ID protocol.ID = "/muster/http/1"

// Config holds the bounds of both sides.
type Config struct {
	Streams     int // served at a time
	PeerStreams int // served for one peer at a time; each follower of a log holds one
	// OpenStreams is how many are opened to one peer, below its PeerStreams:
	// it may learn late that one was closed.
	OpenStreams   int
	DialTimeout   time.Duration // for a stream, with the connection below
	HeaderTimeout time.Duration // from the end of a request to the head of its response
	IdleTimeout   time.Duration // after which an unused stream is closed
}

// DefaultConfig is what daemons use.
func DefaultConfig() Config {
	return Config{
		Streams: 1024, PeerStreams: 64, OpenStreams: 32,
		DialTimeout: 10 * time.Second, HeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
}

// Validate says what cannot work.
func (c Config) Validate() error {
	switch {
	case c.OpenStreams < 1 || c.PeerStreams < c.OpenStreams || c.Streams < c.PeerStreams:
		return fmt.Errorf("peerhttp: %d streams open, %d of a peer, %d in all: each is to be at least the one before",
			c.OpenStreams, c.PeerStreams, c.Streams)
	case c.DialTimeout <= 0 || c.HeaderTimeout <= 0 || c.IdleTimeout <= 0:
		return fmt.Errorf("peerhttp: timeouts %s, %s, %s: above 0", c.DialTimeout, c.HeaderTimeout, c.IdleTimeout)
	}
	return nil
}
