package p2p

// The gate: a wrapper around each transport that passes a connection to libp2p only after both sides have shown their
// credentials.
// See docs/adr, ADR 7.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"
	msmux "github.com/multiformats/go-multistream"
)

// gates holds the gates of one host, one for each transport. All admit the same peers.
type gates struct {
	admission *admission
	issuer    *issuer
	muxer     *msmux.MultistreamMuxer[protocol.ID] // the protocols that a stranger may use
	list      []*gate                              // fixed once the host is built
	log       *slog.Logger

	// Each transport has its own places for strangers, so that strangers over one transport do not keep out hosts that
	// come over the other.
	tcpStrangers  *strangers
	quicStrangers *strangers
}

func newGates(a *admission, i *issuer, log *slog.Logger) *gates {
	return &gates{
		admission: a, issuer: i, muxer: newStrangerMuxer(), log: log, tcpStrangers: newStrangers(), quicStrangers: newStrangers(),
	}
}

// gate is a transport that returns only admitted connections.
type gate struct {
	transport.Transport
	all   *gates
	close func() error // closes what the transport does not
}

// Dial connects and says hello. The error says why the other side refused.
func (g *gate) Dial(ctx context.Context, to ma.Multiaddr, p peer.ID) (transport.CapableConn, error) {
	return g.all.pass(ctx, p, func() (transport.CapableConn, error) { return g.Transport.Dial(ctx, to, p) })
}

// DialWithUpdates is Dial for a transport that reports its progress.
func (g *gate) DialWithUpdates(ctx context.Context, to ma.Multiaddr, p peer.ID, up chan<- transport.DialUpdate) (transport.CapableConn, error) {
	inner, ok := g.Transport.(transport.DialUpdater)
	if !ok {
		return g.Dial(ctx, to, p)
	}
	return g.all.pass(ctx, p, func() (transport.CapableConn, error) { return inner.DialWithUpdates(ctx, to, p, up) })
}

// Listen accepts connections and returns those that are admitted.
func (g *gate) Listen(at ma.Multiaddr) (transport.Listener, error) {
	inner, err := g.Transport.Listen(at)
	if err != nil {
		return nil, err
	}
	l := &gatedListener{Listener: inner, all: g.all, admitted: make(chan transport.CapableConn), done: make(chan struct{}), pending: map[io.Closer]struct{}{}}
	l.wg.Go(l.loop)
	return l, nil
}

// Close closes the transport.
func (g *gate) Close() error {
	if c, ok := g.Transport.(io.Closer); ok {
		return errors.Join(c.Close(), g.close())
	}
	return g.close()
}

// pass dials and says hello.
func (g *gates) pass(ctx context.Context, p peer.ID, dial func() (transport.CapableConn, error)) (transport.CapableConn, error) {
	if g.admission.own.load() == nil {
		return nil, ErrNotReady // without a credential a hello would be refused
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	if err := g.admission.greet(ctx, c, p); err != nil {
		_ = c.CloseWithError(network.ConnGated)
		return nil, fmt.Errorf("hello to %s: %w", p, err)
	}
	if one := strangerOf(c); one != nil {
		one.admit()
	}
	return c, nil
}

// gatedListener is a listener that returns only admitted connections.
type gatedListener struct {
	transport.Listener
	all      *gates
	admitted chan transport.CapableConn
	done     chan struct{} // closed when the inner listener has ended
	wg       sync.WaitGroup

	mu      sync.Mutex
	ended   bool                   // guarded by mu
	pending map[io.Closer]struct{} // guarded by mu; connections in receive
}

// Accept waits for the next admitted connection.
func (l *gatedListener) Accept() (transport.CapableConn, error) {
	select {
	case c := <-l.admitted:
		return c, nil
	case <-l.done:
		return nil, transport.ErrListenerClosed
	}
}

// Close ends the listener and the connections that are still at the gate.
func (l *gatedListener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	l.ended = true
	waiting := make([]io.Closer, 0, len(l.pending))
	for c := range l.pending {
		waiting = append(waiting, c)
	}
	l.mu.Unlock()
	for _, c := range waiting {
		c.Close()
	}
	l.wg.Wait()
	return err
}

func (l *gatedListener) loop() {
	defer close(l.done)
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, transport.ErrListenerClosed) && !errors.Is(err, net.ErrClosed) {
				l.all.log.Debug("listener ended", "addr", l.Multiaddr(), "error", err)
			}
			return
		}
		one := strangerOf(c)
		if one == nil { // without a stranger, nothing would bound this connection
			l.all.log.Error("connection not counted", "addr", l.Multiaddr())
			_ = c.CloseWithError(network.ConnGated)
			continue
		}
		l.all.followQUIC(c, one)
		l.wg.Go(func() { l.serve(newGatedConn(c, one)) })
	}
}

// serve holds a connection at the gate until it is admitted, and then passes it to libp2p, or until it ends.
func (l *gatedListener) serve(c *gatedConn) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		c.Close()
		return
	}
	l.pending[c] = struct{}{}
	l.mu.Unlock()
	go c.acceptAhead()
	ok := l.all.receive(c)
	l.mu.Lock()
	delete(l.pending, c)
	l.mu.Unlock()
	if !ok {
		_ = c.CloseWithError(network.ConnGated)
		return
	}
	select {
	case l.admitted <- c:
	case <-l.done:
		c.Close()
	}
}

// gatedConn is an accepted connection. Until it is admitted, its streams are accepted as they come, so that a peer that
// opens too many is noticed.
type gatedConn struct {
	transport.CapableConn
	who   *stranger
	ahead chan network.MuxedStream // streams accepted before admission, and the first one after it; then closed
}

func newGatedConn(c transport.CapableConn, who *stranger) *gatedConn {
	return &gatedConn{CapableConn: c, who: who, ahead: make(chan network.MuxedStream, maxStrangerStreams+1)}
}

// acceptAhead accepts streams until the first one after admission.
func (c *gatedConn) acceptAhead() {
	defer close(c.ahead)
	for n := 1; ; n++ {
		s, err := c.CapableConn.AcceptStream()
		if err != nil {
			return
		}
		admitted := c.who.admitted.Load()
		if n > maxStrangerStreams && !admitted {
			_ = c.CloseWithError(network.ConnResourceLimitExceeded)
			return
		}
		c.ahead <- s
		if admitted {
			return
		}
	}
}

// AcceptStream returns the next stream.
func (c *gatedConn) AcceptStream() (network.MuxedStream, error) {
	if s, ok := <-c.ahead; ok {
		return s, nil
	}
	return c.CapableConn.AcceptStream()
}

// Stat returns what the transport knows about the connection.
func (c *gatedConn) Stat() network.ConnStats {
	if s, ok := c.CapableConn.(network.ConnStat); ok {
		return s.Stat()
	}
	return network.ConnStats{}
}

// receive serves hello and join, one stream at a time, and reports whether the peer was admitted.
func (g *gates) receive(c *gatedConn) (admitted bool) {
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("the gate panicked", "peer", c.RemotePeer(), "panic", r, "stack", string(debug.Stack()))
			admitted = false
		}
	}()
	deadline := c.who.since.Add(helloTimeout) // handshakes included
	// AcceptStream takes no deadline: closing the connection ends it.
	late := time.AfterFunc(time.Until(deadline), func() { _ = c.CloseWithError(network.ConnGated) })
	defer func() { admitted = late.Stop() && admitted }()
	for range maxStrangerStreams {
		s, err := c.AcceptStream()
		if err != nil {
			return false
		}
		if g.serveStranger(c, s, deadline) {
			return true
		}
	}
	return false
}

// serveStranger serves one stream of a connection that is not admitted.
func (g *gates) serveStranger(c *gatedConn, s network.MuxedStream, deadline time.Time) bool {
	if err := s.SetDeadline(deadline); err != nil {
		_ = s.Reset()
		return false
	}
	id, _, err := g.muxer.Negotiate(s) // answers "na" to all but hello and join
	if err != nil {
		g.admission.visits.tell(Entering, c.RemotePeer(), c.RemoteMultiaddr(), Visit{Err: errHello})
		_ = s.Reset()
		return false
	}
	admitted := false
	if id == HelloID {
		admitted, err = g.admission.answerHello(c.RemotePeer(), c.RemoteMultiaddr(), s, c.who.admit)
	} else {
		err = g.issuer.answerJoin(c.RemotePeer(), c.RemoteMultiaddr(), s)
	}
	if err != nil {
		g.log.Debug("stream at the gate", "protocol", id, "peer", c.RemotePeer(), "error", err)
		_ = s.Reset()
		return false
	}
	s.Close()
	return admitted
}

// newStrangerMuxer negotiates only the protocols that a stranger may use.
func newStrangerMuxer() *msmux.MultistreamMuxer[protocol.ID] {
	m := msmux.NewMultistreamMuxer[protocol.ID]()
	for _, p := range protocols {
		if p.Access == Anyone {
			m.AddHandler(p.ID, nil)
		}
	}
	return m
}

// gater refuses revoked peers at the hooks that libp2p offers.
type gater struct {
	revoked *revocations
	// refusals bounds how often a revoked peer gets as far as hello, which tells it why it is refused.
	refusals *buckets
	visits   visits
}

const (
	tellEvery = 10 * time.Second
	tellBurst = 3
)

func newGater(r *revocations, v visits) *gater {
	return &gater{revoked: r, refusals: newBuckets(tellEvery, tellBurst), visits: v}
}

// InterceptPeerDial refuses to dial a revoked peer.
func (g *gater) InterceptPeerDial(p peer.ID) bool { return !g.revoked.has(p) }

// InterceptAddrDial allows all: InterceptPeerDial has already refused revoked peers.
func (g *gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept allows all: an address does not say which peer it is.
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured refuses a revoked peer as soon as its key is proven.
func (g *gater) InterceptSecured(dir network.Direction, p peer.ID, at network.ConnMultiaddrs) bool {
	if !g.revoked.has(p) {
		return true
	}
	if dir == network.DirInbound && g.refusals.allow(string(p), time.Now()) {
		return true
	}
	if dir == network.DirInbound {
		g.visits.tell(Entering, p, at.RemoteMultiaddr(), Visit{Err: ErrRevoked})
	}
	return false
}

// InterceptUpgraded refuses a peer that was revoked while its connection was at the gate.
func (g *gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.revoked.has(c.RemotePeer()), 0
}
