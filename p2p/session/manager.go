package session

// The manager: which sessions there should be, and the one goroutine that
// opens, accepts, replaces and redials them.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
	"github.com/musterhq/muster/timers"
)

// Host is what of a libp2p host the sessions need. An open connection must
// mean an admitted peer.
type Host interface {
	ID() peer.ID
	NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error)
	SetStreamHandler(id protocol.ID, h network.StreamHandler)
	RemoveStreamHandler(id protocol.ID)
	Network() network.Network
}

// Manager keeps the sessions of a daemon.
type Manager struct {
	cfg     Config
	host    Host
	handler Handler
	log     *slog.Logger
	self    job.Peer

	do      chan func()   // run by Run's goroutine, which alone knows the links
	changed chan struct{} // holds a token while the wanted set is to be looked at
	stopped chan struct{} // closed when Run is about to return
	table   table
}

// New makes a manager that calls handler; Run starts it.
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

// Want keeps a session to the peer from now on: it is dialled until there is
// one, again whenever there is none. It is false where Config.MaxWanted are
// wanted already; then it has no effect, and may be tried again after an
// Unwant. What is no peer id is logged.
func (m *Manager) Want(p job.Peer) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		m.log.Warn("session with what is no peer", "peer", string(p), "error", err)
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

// Unwant stops dialling the peer. A session that this side opened is given up
// once nobody has used it for Config.IdleAfter; one that the peer opened is the
// peer's to end.
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

// Send puts a message of package lease in the peer's queue and returns at
// once. Messages to one peer arrive in the order they were sent, or the
// session ends.
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
	return c.send(f)
}

// Peers lists the open sessions in no order.
func (m *Manager) Peers() []Info {
	conns := m.table.all()
	infos := make([]Info, len(conns))
	for i, c := range conns {
		infos[i] = c.info()
	}
	return infos
}

// RTT is the round trip to the peer as pings measure it; false without a
// session or before the first answer.
func (m *Manager) RTT(p job.Peer) (time.Duration, bool) {
	c := m.table.get(p)
	if c == nil {
		return 0, false
	}
	d := c.pings.roundTrip()
	return d, d > 0
}

// Run opens and accepts sessions until ctx ends; then it says goodbye on each,
// and returns when all have ended.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.stopped)
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		Manager: m, links: map[job.Peer]*link{}, agenda: timers.New[time.Time, *link](time.Time.Compare), timer: time.NewTimer(0),
		mine: count{incarnation: rand.Uint64()},
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

// post has Run's goroutine call f; false if it has ended.
func (m *Manager) post(f func()) bool {
	select {
	case m.do <- f:
		return true
	case <-m.stopped:
		return false
	}
}

// serve is a session's reader: the whole of what the handler sees of it.
func (m *Manager) serve(c *conn) {
	m.table.add(c)
	m.log.Info("session up", "peer", string(c.peer), "opened", c.opened)
	m.handler.Up(c.peer, c.info())
	c.cut(c.read(m.handler))
	m.table.remove(c)
	switch {
	case errors.Is(c.cause, ErrInvalid), errors.Is(c.cause, ErrBusy):
		m.log.Warn("session cut", "peer", string(c.peer), "error", c.cause)
	default:
		m.log.Info("session down", "peer", string(c.peer), "error", c.cause)
	}
	m.handler.Down(c.peer, c.cause)
	if errors.Is(c.cause, ErrSilent) {
		// Nothing else should wait for that connection either.
		if err := m.host.Network().ClosePeer(c.stream.Conn().RemotePeer()); err != nil {
			m.log.Debug("connection closed", "peer", string(c.peer), "error", err)
		}
	}
}

// table is what every goroutine may ask: who is up, who is wanted.
type table struct {
	mu      sync.RWMutex
	up      map[job.Peer]*conn   // guarded by mu
	wanted  map[job.Peer]peer.ID // guarded by mu
	changed map[job.Peer]bool    // guarded by mu; wanted or not since they were last taken
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

// takeChanged returns the peers that have become wanted or unwanted, in order.
func (t *table) takeChanged() []job.Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	peers := slices.Sorted(maps.Keys(t.changed))
	clear(t.changed)
	return peers
}

func openFrame(c count) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Open{Open: &wirepb.Open{Incarnation: c.incarnation, Count: c.n}}}
}

func acceptFrame(c count) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Accept{Accept: &wirepb.Accept{Incarnation: c.incarnation, Count: c.n}}}
}

var errNotGreeted = fmt.Errorf("%w: not the first frame of a session", ErrInvalid)

func goodbyeFrame() *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Goodbye{Goodbye: &wirepb.Goodbye{}}}
}

func pong(number uint64) *wirepb.Frame {
	return &wirepb.Frame{Body: &wirepb.Frame_Pong{Pong: &wirepb.Pong{Number: number}}}
}
