package p2p

// A stranger's TCP connection: what is read of it is bounded until it is admitted.

import (
	"net"
	"sync"
	"time"

	manet "github.com/multiformats/go-multiaddr/net"
)

// dialBound is how long a connection that this daemon dialled may last without being admitted. A dial has its own
// deadline, which is shorter; this one ends a peer that sends more than is read.
const dialBound = 30 * time.Second

// strangerConn is a connection below its encryption and its streams. Until its stranger is admitted, Read returns at
// most strangerBytes in all, and then waits; the rest stays with the sender. After a time without admission it closes.
type strangerConn struct {
	manet.Conn
	who    *stranger
	late   *time.Timer
	once   sync.Once
	closed chan struct{}
}

// newStrangerConn returns a connection that closes when its time is over. It is whole before anybody else can close it.
func newStrangerConn(c manet.Conn, who *stranger, within time.Duration) *strangerConn {
	s := &strangerConn{Conn: c, who: who, closed: make(chan struct{})}
	made := make(chan struct{})
	s.late = time.AfterFunc(within, func() {
		<-made
		if !s.who.admitted.Load() {
			_ = s.Close()
		}
	})
	close(made)
	return s
}

// Read reads no more than the stranger may still send.
func (c *strangerConn) Read(b []byte) (int, error) {
	if c.who.admitted.Load() {
		return c.Conn.Read(b)
	}
	rest := strangerBytes - c.who.bytes.Load()
	if rest <= 0 {
		select {
		case <-c.who.known:
			return c.Conn.Read(b)
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), rest)])
	c.who.hear(n)
	return n, err
}

// Close closes the connection and gives the stranger's place back.
func (c *strangerConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.late.Stop()
		c.who.leave()
	})
	return c.Conn.Close()
}

// SetLinger, SetKeepAlive and SetKeepAlivePeriod are what the TCP transport sets on its connections.
func (c *strangerConn) SetLinger(sec int) error {
	if t, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return t.SetLinger(sec)
	}
	return nil
}

// SetKeepAlive turns TCP's own probes on or off.
func (c *strangerConn) SetKeepAlive(on bool) error {
	if t, ok := c.Conn.(interface{ SetKeepAlive(on bool) error }); ok {
		return t.SetKeepAlive(on)
	}
	return nil
}

// SetKeepAlivePeriod sets the time between TCP's own probes.
func (c *strangerConn) SetKeepAlivePeriod(d time.Duration) error {
	if t, ok := c.Conn.(interface {
		SetKeepAlivePeriod(d time.Duration) error
	}); ok {
		return t.SetKeepAlivePeriod(d)
	}
	return nil
}

// strangerListener gives each TCP connection a place, before anything of it is read and before any handshake.
type strangerListener struct {
	manet.Listener
	room *strangers
}

// Accept returns the next connection that got a place. The others are reset.
func (l *strangerListener) Accept() (manet.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		one := newStrangerConn(c, l.room.stranger(), helloTimeout)
		if l.room.take(one.who, addrOf(c.RemoteMultiaddr()), func() { _ = one.Close() }) {
			return one, nil
		}
		_ = one.SetLinger(0)
		_ = one.Close()
	}
}
