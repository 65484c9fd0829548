package p2p

// A stranger's TCP connection. Until it is admitted, the bytes that are read from it are bounded; this includes the
// handshakes that add encryption and streams.

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// dialBound is how long a connection that this daemon dialled may last without being admitted. A dial has its own,
// shorter deadline; dialBound ends the connection of a peer that sends more than is read.
const dialBound = 30 * time.Second

// strangerConn is a TCP connection, below encryption and streams. Until its stranger is admitted, Read returns at most
// strangerBytes in total, and then waits, so that the sender has to wait too. If it is not admitted in time, it closes.
type strangerConn struct {
	manet.Conn
	who    *stranger
	late   *time.Timer
	once   sync.Once
	closed chan struct{}
}

// newStrangerConn returns a connection that closes after this time unless it is admitted. The timer waits until the
// connection is complete.
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

// SetLinger, SetKeepAlive and SetKeepAlivePeriod are called by the TCP transport on its connections.
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

// strangerListener gives each TCP connection a place, before it reads anything and before any handshake.
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

// acceptPause is the pause after an accept that failed, for example for want of file descriptors.
const acceptPause = 50 * time.Millisecond

// strangerUpgrader is libp2p's upgrader, with the bounds of strangers around it.
type strangerUpgrader struct {
	transport.Upgrader
	room *strangers
	log  *slog.Logger
}

// GateMaListener gives each accepted connection a place, and then asks the resource manager.
func (u *strangerUpgrader) GateMaListener(l manet.Listener) transport.GatedMaListener {
	return u.Upgrader.GateMaListener(&strangerListener{Listener: l, room: u.room})
}

// UpgradeListener is UpgradeGatedMaListener for a plain listener.
func (u *strangerUpgrader) UpgradeListener(t transport.Transport, l manet.Listener) transport.Listener {
	return u.UpgradeGatedMaListener(t, u.GateMaListener(l))
}

// UpgradeGatedMaListener returns a listener of upgraded connections. Each connection is upgraded in its own goroutine, so
// that a slow handshake does not delay others.
func (u *strangerUpgrader) UpgradeGatedMaListener(t transport.Transport, l transport.GatedMaListener) transport.Listener {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // libp2p gives no context; Close ends this one
	up := &upgradingListener{inner: l, up: u, of: t, cancel: cancel, ready: make(chan transport.CapableConn), done: make(chan struct{})}
	go up.loop(ctx)
	return up
}

// Upgrade upgrades a connection that this daemon dialled. Until hello, the other side is a stranger too.
func (u *strangerUpgrader) Upgrade(ctx context.Context, t transport.Transport, c manet.Conn, dir network.Direction, p peer.ID, scope network.ConnManagementScope) (transport.CapableConn, error) {
	one := newStrangerConn(c, newStranger(time.Now()), dialBound)
	return u.Upgrader.Upgrade(ctx, t, one, dir, p, &strangerScope{ConnManagementScope: scope, who: one.who})
}

// upgradingListener upgrades the connections that it accepts.
type upgradingListener struct {
	inner  transport.GatedMaListener
	up     *strangerUpgrader
	of     transport.Transport
	cancel context.CancelFunc
	ready  chan transport.CapableConn
	done   chan struct{} // closed when the inner listener has ended
	wg     sync.WaitGroup
}

// Accept returns the next connection.
func (l *upgradingListener) Accept() (transport.CapableConn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, transport.ErrListenerClosed
	}
}

// Close ends the listener and all upgrades.
func (l *upgradingListener) Close() error {
	err := l.inner.Close()
	l.cancel()
	<-l.done
	l.wg.Wait()
	return err
}

// Addr returns the address of the socket.
func (l *upgradingListener) Addr() net.Addr { return l.inner.Addr() }

// Multiaddr returns the address of the socket.
func (l *upgradingListener) Multiaddr() ma.Multiaddr { return l.inner.Multiaddr() }

func (l *upgradingListener) loop(ctx context.Context) {
	defer close(l.done)
	for {
		c, scope, err := l.inner.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			l.up.log.WarnContext(ctx, "connection not accepted", "addr", l.Multiaddr(), "error", err)
			if !sleep(ctx, acceptPause) {
				return
			}
			continue
		}
		one, ok := c.(*strangerConn)
		if !ok { // every listener here returns a strangerConn; nothing would bound another kind of connection
			l.up.log.ErrorContext(ctx, "connection not counted", "addr", l.Multiaddr())
			_ = c.Close()
			scope.Done()
			continue
		}
		l.wg.Go(func() { l.upgrade(ctx, one, scope) })
	}
}

// upgrade does the handshakes, and passes the connection on. The stranger has helloTimeout from accept to admission.
func (l *upgradingListener) upgrade(ctx context.Context, c *strangerConn, scope network.ConnManagementScope) {
	ctx, cancel := context.WithDeadline(ctx, c.who.since.Add(helloTimeout))
	defer cancel()
	up, err := l.up.Upgrader.Upgrade(ctx, l.of, c, network.DirInbound, "", &strangerScope{ConnManagementScope: scope, who: c.who})
	if err != nil {
		_ = c.Close()
		scope.Done()
		return
	}
	select {
	case l.ready <- up:
	case <-ctx.Done():
		up.Close()
	}
}
