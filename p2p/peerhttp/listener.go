package peerhttp

// The serving side: streams of other daemons as a net.Listener.

import (
	"log/slog"
	"net"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
)

// backlog bounds the streams that wait for the http.Server to accept them.
const backlog = 64

// partOfFree bounds the streams of one peer to this fraction, 1/8, of the free streams. So even a few dozen peers that
// open as many streams as they can leave room for others.
const partOfFree = 8

// Server is the part of a libp2p host that the Listener needs.
type Server interface {
	ID() peer.ID
	SetStreamHandler(id protocol.ID, h network.StreamHandler)
	RemoveStreamHandler(id protocol.ID)
}

// Listener passes the streams of other daemons to an http.Server.
type Listener struct {
	cfg      Config
	host     Server
	log      *slog.Logger
	accepted chan *conn
	done     chan struct{}
	closing  sync.Once

	mu   sync.Mutex
	open map[job.Peer]int // guarded by mu
	all  int              // guarded by mu
}

// Listen accepts streams until Close. At most backlog streams wait for Accept.
func Listen(cfg Config, h Server, log *slog.Logger) (*Listener, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Listener{
		cfg: cfg, host: h, log: log, accepted: make(chan *conn, backlog), done: make(chan struct{}), open: map[job.Peer]int{},
	}
	h.SetStreamHandler(ID, l.take)
	return l, nil
}

func (l *Listener) take(s network.Stream) {
	p := job.Peer(s.Conn().RemotePeer().String())
	if !l.enter(p) {
		l.log.Debug("http stream refused: too many", "peer", string(p))
		_ = s.Reset()
		return
	}
	c := newConn(s, false, func() { l.leave(p) })
	select {
	case <-l.done:
	case l.accepted <- c:
		select {
		case <-l.done: // Close may have emptied the queue before this stream was added
			l.drain()
		default:
		}
		return
	default:
		l.log.Debug("http stream refused: the server does not keep up", "peer", string(p))
	}
	c.drop()
}

func (l *Listener) enter(p job.Peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.cfg.Streams - l.all
	if free <= 0 || l.open[p] >= min(l.cfg.PeerStreams, max(1, free/partOfFree)) {
		return false
	}
	l.open[p]++
	l.all++
	return true
}

func (l *Listener) leave(p job.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[p]--; l.open[p] == 0 {
		delete(l.open, p)
	}
}

// Accept waits for a stream. It returns net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close accepts no more streams and resets waiting ones; accepted ones stay open.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.host.RemoveStreamHandler(ID)
		close(l.done)
		l.drain()
	})
	return nil
}

func (l *Listener) drain() {
	for {
		select {
		case c := <-l.accepted:
			c.drop()
		default:
			return
		}
	}
}

// Addr returns the address of this daemon.
func (l *Listener) Addr() net.Addr { return Addr(l.host.ID().String()) }
