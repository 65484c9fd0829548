package session

// The manager: which sessions there should be, and the one goroutine that opens, accepts, replaces and redials them.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/wirepb"
)

// Host is the part of a libp2p host that sessions need. An open connection must mean that the peer was admitted.
type Host interface {
	ID() peer.ID
	NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error)
	Server
	Network() network.Network
	// RolesOf returns the roles that the present credential of an admitted peer gives it.
	RolesOf(p peer.ID) p2p.Roles
}

// Server is the part of a libp2p host that serves protocols.
type Server interface {
	SetStreamHandler(id protocol.ID, h network.StreamHandler)
	RemoveStreamHandler(id protocol.ID)
}

// Manager maintains the sessions of a daemon.
type Manager struct {
	cfg     Config
	host    Host
	handler Handler
	log     *slog.Logger
	self    job.Peer

	do      chan func()   // run by Run's goroutine, the only one that accesses the links
	changed chan struct{} // holds a token while changes of the wanted set wait to be handled
	stopped chan struct{} // closed when Run is about to return
	table   table
	denied  atomic.Uint64 // messages that their senders' roles do not allow
}

// New returns a manager that calls handler. Run starts it.
func New(cfg Config, h Host, handler Handler, log *slog.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Manager{
		cfg: cfg, host: h, handler: handler, log: log, self: job.Peer(h.ID().String()),
		do: make(chan func()), changed: make(chan struct{}, 1), stopped: make(chan struct{}),
		table: table{up: map[job.Peer]*conn{}, wanted: map[job.Peer]peer.ID{}, changed: map[job.Peer]bool{}},
	}, nil
}

// Want keeps a session with the peer from now on: the manager dials whenever there is none. It returns false and has
// no effect if Config.MaxWanted peers are wanted already; try again after an Unwant. A malformed peer ID is logged.
func (m *Manager) Want(p job.Peer) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		m.log.Warn("session wanted with a malformed peer id", "peer", string(p), "error", err)
		return true
	}
	if id == m.host.ID() {
		return true
	}
	if !m.table.want(p, id, m.cfg.MaxWanted) {
		return false
	}
	m.look()
	return true
}

// Unwant stops dialling the peer. A session that this side opened is given up once it has been unused for
// Config.IdleAfter. A session that the peer opened is left to the peer.
func (m *Manager) Unwant(p job.Peer) {
	m.table.unwant(p)
	m.look()
}

func (m *Manager) look() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Send queues a message of package contract for the peer and returns at once. Messages to one peer arrive in the order
// in which they were sent, or the session ends. Errors: ErrNoSession, ErrBusy, ErrInvalid, a HeldBackError.
func (m *Manager) Send(p job.Peer, msg any) error {
	c := m.table.get(p)
	if c == nil {
		return ErrNoSession
	}
	f, err := toWire(msg)
	if err != nil {
		return err
	}
	if inUse(msg) {
		c.use()
	}
	return c.sendMessage(f)
}

// Peers returns the open sessions in no particular order.
func (m *Manager) Peers() []Info {
	conns := m.table.all()
	infos := make([]Info, len(conns))
	for i, c := range conns {
		infos[i] = c.info()
	}
	return infos
}

// RTT returns the round-trip time to the peer as measured by pings. It returns false without a session or before the
// first answer.
func (m *Manager) RTT(p job.Peer) (time.Duration, bool) {
	c := m.table.get(p)
	if c == nil {
		return 0, false
	}
	d := c.pings.roundTrip()
	return d, d > 0
}

// Clock returns how far the clock of the peer is ahead, as measured by pings. It is not Known without a session.
func (m *Manager) Clock(p job.Peer) Clock {
	c := m.table.get(p)
	if c == nil {
		return Clock{}
	}
	return c.pings.clock()
}

// Denied returns how many received messages their senders' roles did not allow.
func (m *Manager) Denied() uint64 { return m.denied.Load() }

// Run opens and accepts sessions until ctx ends. Then it says goodbye on each, and returns when all have ended.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.stopped)
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		Manager: m, links: map[job.Peer]*link{}, agenda: timers.New[time.Time, *link](time.Time.Compare), timer: time.NewTimer(0),
		mine: count{incarnation: rand.Uint64()}, bans: bans{shortest: m.cfg.BackoffMax}, rates: newRates(), trials: trials{},
	}
	defer l.timer.Stop()
	m.host.SetStreamHandler(ID, func(s network.Stream) {
		if !m.post(func() { l.arrived(dialing, s) }) {
			_ = s.Reset()
		}
	})
	defer m.host.RemoveStreamHandler(ID)

	l.wanted()
	for ctx.Err() == nil {
		l.lookDue(dialing)
		select {
		case f := <-m.do:
			f()
		case <-m.changed:
			l.wanted()
		case <-l.timer.C:
		case <-ctx.Done():
		}
	}
	m.host.RemoveStreamHandler(ID)
	l.stop()
	return nil
}

// post runs f on Run's goroutine; it returns false if Run has ended.
func (m *Manager) post(f func()) bool {
	select {
	case m.do <- f:
		return true
	case <-m.stopped:
		return false
	}
}

// serve is the reader of a session. All calls of the handler for the session come from here.
func (m *Manager) serve(c *conn) {
	m.table.add(c)
	m.log.Info("session up", "peer", string(c.peer), "opened", c.opened)
	m.handler.Up(c.peer, c.info())
	c.cut(c.read(m.handler))
	m.table.remove(c)
	switch {
	case deserved(c.cause), errors.Is(c.cause, ErrBusy):
		m.log.Warn("session cut", "peer", string(c.peer), "error", c.cause)
	default:
		m.log.Info("session down", "peer", string(c.peer), "error", c.cause)
	}
	m.handler.Down(c.peer, c.cause)
	if errors.Is(c.cause, ErrSilent) {
		// Other protocols should not wait on that connection either.
		if err := m.host.Network().ClosePeer(c.stream.Conn().RemotePeer()); err != nil {
			m.log.Debug("connection closed", "peer", string(c.peer), "error", err)
		}
	}
}

// table is the state that any goroutine may read: which sessions are up, and which peers are wanted.
type table struct {
	mu      sync.RWMutex
	up      map[job.Peer]*conn   // guarded by mu
	wanted  map[job.Peer]peer.ID // guarded by mu
	changed map[job.Peer]bool    // guarded by mu; peers that became wanted or unwanted since the last takeChanged
}

func (t *table) get(p job.Peer) *conn {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.up[p]
}

func (t *table) all() []*conn {
	t.mu.RLock()
	defer t.mu.RUnlock()
	conns := make([]*conn, 0, len(t.up))
	for _, c := range t.up {
		conns = append(conns, c)
	}
	return conns
}

func (t *table) add(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up[c.peer] = c
}

func (t *table) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.up, c.peer)
}

func (t *table) want(p job.Peer, id peer.ID, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.wanted[p]
	if !ok && len(t.wanted) >= most {
		return false
	}
	if !ok {
		t.wanted[p], t.changed[p] = id, true
	}
	return true
}

func (t *table) unwant(p job.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.wanted[p]; ok {
		delete(t.wanted, p)
		t.changed[p] = true
	}
}

func (t *table) wants(p job.Peer) (peer.ID, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	id, ok := t.wanted[p]
	return id, ok
}

// takeChanged returns the peers that have become wanted or unwanted, sorted.
func (t *table) takeChanged() []job.Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	peers := slices.Sorted(maps.Keys(t.changed))
	clear(t.changed)
	return peers
}

func openFrame(c count) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Open{Open: &wirepb.Open{Incarnation: c.incarnation, Count: c.n, Arrays: true, Gangs: true, Roles: true, Format: uint32(job.FormatNow)}}}
}

func acceptFrame(c count) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Accept{Accept: &wirepb.Accept{Incarnation: c.incarnation, Count: c.n, Arrays: true, Gangs: true, Roles: true, Format: uint32(job.FormatNow)}}}
}

var errNotGreeted = fmt.Errorf("%w: unexpected first frame of a session", ErrInvalid)

func goodbyeFrame() *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Goodbye{Goodbye: &wirepb.Goodbye{}}}
}

// pong returns the answer to a Ping, with the time on this host's clock.
func pong(number uint64, now time.Time) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Pong{Pong: &wirepb.Pong{Number: number, Clock: now.UnixNano()}}}
}
