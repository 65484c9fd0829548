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

const (
	// maxStrangers bounds the accepted connections that are not admitted yet. Each may hold about 70 KB for at most
	// helloTimeout.
	maxStrangers = 1024
	// maxStrangersEach bounds those from one address, so that one host cannot take all places.
	maxStrangersEach = 256
	// maxStrangerStreams bounds the streams of one of them. A plain libp2p client first tries to identify.
	maxStrangerStreams = 16
)

// gates holds the gates of one host, one for each transport. All admit the same peers.
type gates struct {
	admission *admission
	issuer    *issuer
	strangers *strangers
	muxer     *msmux.MultistreamMuxer[protocol.ID] // the protocols that a stranger may use
	list      []*gate                              // fixed once the host is built
	log       *slog.Logger
}

func newGates(a *admission, i *issuer, log *slog.Logger) *gates {
	return &gates{admission: a, issuer: i, strangers: newStrangers(), muxer: newStrangerMuxer(), log: log}
}

// gate is a transport that returns only admitted connections.
type gate struct {
	transport.Transport
	all *gates
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

// Close closes the transport if it has a Close method.
func (g *gate) Close() error {
	if c, ok := g.Transport.(io.Closer); ok {
		return c.Close()
	}
	return nil
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
		ip := ipOf(c.RemoteMultiaddr())
		if !l.all.strangers.enter(ip) {
			_ = c.CloseWithError(network.ConnResourceLimitExceeded)
			continue
		}
		l.wg.Go(func() {
			defer l.all.strangers.leave(ip)
			l.serve(c)
		})
	}
}

// strangers counts the connections that are not admitted yet.
type strangers struct {
	mu    sync.Mutex
	all   int            // guarded by mu
	from  map[string]int // guarded by mu; by IP address
	limit int
	each  int
}

func newStrangers() *strangers {
	return &strangers{from: map[string]int{}, limit: maxStrangers, each: maxStrangersEach}
}

func (s *strangers) enter(ip string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.limit || s.from[ip] >= s.each {
		return false
	}
	s.all++
	s.from[ip]++
	return true
}

func (s *strangers) leave(ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[ip]--; s.from[ip] <= 0 {
		delete(s.from, ip)
	}
}

// serve holds a connection at the gate until it is admitted, and then passes it to libp2p, or until it ends.
func (l *gatedListener) serve(c transport.CapableConn) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		c.Close()
		return
	}
	l.pending[c] = struct{}{}
	l.mu.Unlock()
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

// receive serves hello and join, one stream at a time, and reports whether the peer was admitted.
func (g *gates) receive(c transport.CapableConn) (admitted bool) {
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("the gate panicked", "peer", c.RemotePeer(), "panic", r, "stack", string(debug.Stack()))
			admitted = false
		}
	}()
	deadline := time.Now().Add(helloTimeout)
	// AcceptStream takes no deadline: closing the connection ends it.
	late := time.AfterFunc(helloTimeout, func() { _ = c.CloseWithError(network.ConnGated) })
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
func (g *gates) serveStranger(c transport.CapableConn, s network.MuxedStream, deadline time.Time) bool {
	if err := s.SetDeadline(deadline); err != nil {
		_ = s.Reset()
		return false
	}
	id, _, err := g.muxer.Negotiate(s) // answers "na" to all but hello and join
	if err != nil {
		_ = s.Reset()
		return false
	}
	admitted := false
	if id == HelloID {
		admitted, err = g.admission.answerHello(c.RemotePeer(), c.RemoteMultiaddr(), s)
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
	// refusals bounds how often a revoked peer gets as far as hello, which tells it the reason.
	refusals *buckets
}

const (
	tellEvery = 10 * time.Second
	tellBurst = 3
)

func newGater(r *revocations) *gater {
	return &gater{revoked: r, refusals: newBuckets(tellEvery, tellBurst)}
}

// InterceptPeerDial refuses to dial a revoked peer.
func (g *gater) InterceptPeerDial(p peer.ID) bool { return !g.revoked.has(p) }

// InterceptAddrDial allows all: InterceptPeerDial has refused revoked peers already.
func (g *gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept allows all: an address does not tell which peer it is.
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured refuses a revoked peer as soon as its key is proven.
func (g *gater) InterceptSecured(dir network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	if !g.revoked.has(p) {
		return true
	}
	return dir == network.DirInbound && g.refusals.allow(string(p), time.Now())
}

// InterceptUpgraded refuses a peer that was revoked while its connection was at the gate.
func (g *gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.revoked.has(c.RemotePeer()), 0
}
