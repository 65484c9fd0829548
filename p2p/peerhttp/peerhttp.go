// Package peerhttp is HTTP/1.1 between daemons, on libp2p streams. With it the handler of the API also serves other
// daemons, and any daemon can forward a request to the daemon that has the answer.
//
// # The protocol /muster/http/1
//
// Each stream is an HTTP connection: the side that opened it sends requests, one after the other. [Listener] passes such
// streams to an http.Server. [NewTransport] opens them for an http.Client that uses URLs like http://PEER/path. libp2p
// authenticates and encrypts the connection below, which is open only to members. The remote address of a stream names
// the member.
//
// A peer may have at most [Config.PeerStreams] open streams, and all peers together at most [Config.Streams]. A peer with
// open streams gets another one only while it has fewer than an eighth of the number that is still free. A stream beyond
// these bounds is reset. The timeouts of the http.Server bound the waits within a request.
package peerhttp

import (
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"
)

// ID is the libp2p protocol ID.
const ID protocol.ID = "/muster/http/1"

// Config holds the bounds of both sides.
type Config struct {
	Streams     int // concurrent streams that are served
	PeerStreams int // concurrent streams that are served for one peer; each follower of a log holds one
	// OpenStreams bounds the streams that this daemon opens to one peer. It is below the peer's PeerStreams, because the
	// peer may learn late that a stream was closed.
	OpenStreams   int
	DialTimeout   time.Duration // for a stream, including the connection below
	HeaderTimeout time.Duration // from the end of a request to the header of its response
	IdleTimeout   time.Duration // time after which an unused stream is closed
}

// DefaultConfig returns the configuration of daemons.
func DefaultConfig() Config {
	return Config{
		Streams: 1024, PeerStreams: 64, OpenStreams: 60,
		DialTimeout: 10 * time.Second, HeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
}

// Validate returns an error if the configuration cannot work.
func (c Config) Validate() error {
	switch {
	case c.OpenStreams < 1 || c.PeerStreams < c.OpenStreams || c.Streams < c.PeerStreams:
		return fmt.Errorf("peerhttp: %d streams open, %d of a peer, %d in all: each must be at least the previous one",
			c.OpenStreams, c.PeerStreams, c.Streams)
	case c.DialTimeout <= 0 || c.HeaderTimeout <= 0 || c.IdleTimeout <= 0:
		return fmt.Errorf("peerhttp: timeouts %s, %s, %s: must be above 0", c.DialTimeout, c.HeaderTimeout, c.IdleTimeout)
	}
	return nil
}
