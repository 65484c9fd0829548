package peerhttp

// An adapter from a libp2p stream to the net.Conn that net/http needs.

import (
	"errors"
	"net"
	"os"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/musterhq/muster/job"
)

// Addr is the address of a daemon as a net.Addr.
type Addr job.Peer

// Network returns "libp2p".
func (Addr) Network() string { return "libp2p" }

// String returns the peer ID.
func (a Addr) String() string { return string(a) }

// conn is one stream; its deadlines are the stream's.
type conn struct {
	network.Stream
	peer    job.Peer
	opened  bool // by this side
	closing sync.Once
	closed  func() // called once
	err     error
}

func newConn(s network.Stream, opened bool, closed func()) *conn {
	return &conn{Stream: s, peer: job.Peer(s.Conn().RemotePeer().String()), opened: opened, closed: closed}
}

func (c *conn) LocalAddr() net.Addr  { return Addr(c.Conn().LocalPeer().String()) }
func (c *conn) RemoteAddr() net.Addr { return Addr(c.peer) }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	return n, timeout(err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	return n, timeout(err)
}

// timeout replaces each multiplexer's own error for a passed deadline by the error that net/http expects; net/http
// does not unwrap errors.
func timeout(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Close ends the stream. The side that opened the stream resets it, so that the other side notices at once. The serving
// side closes it, so that the bytes that it has written still arrive.
func (c *conn) Close() error {
	c.closing.Do(func() {
		defer c.closed()
		if c.opened {
			c.err = c.Reset()
			return
		}
		c.err = c.Stream.Close()
	})
	return c.err
}

// drop refuses a stream from which nothing was read.
func (c *conn) drop() {
	c.closing.Do(func() {
		c.err = c.Reset()
		c.closed()
	})
}
