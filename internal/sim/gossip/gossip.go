// Package gossip simulates how the hosts of a data center could learn of each other's capacity without the sessions of
// the daemons: by news that is passed on along an overlay, or by provider records in a DHT. It runs on a network of
// package fabric, and measures what the news costs and how old it is.
//
// Each host publishes versions of its news. In each interval a host pushes what it has learnt to some of its peers, in
// turn. A push has all news that the peer has not acknowledged yet, except news that came from that peer. So lost news
// is sent again, and a host without news is silent. Only the newest version of a host's news is passed on. A peer that
// does not acknowledge is tried with growing pauses.
//
// News is assumed to be signed by the host that it is about: a neighbour can withhold it or send an old version again,
// but not change it.
package gossip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
)

// Config says how news is passed on.
type Config struct {
	Seed     uint64
	Interval time.Duration // between two pushes of a host
	Fanout   int           // peers to which it pushes in an interval; 0: all
	Header   int           // bytes of a push without entries, and of an acknowledgement
	Entry    int           // bytes of the news of one host
}

// DefaultConfig pushes to two peers each second. An entry is a host's Availability in the protocol of the daemons with its
// id and signature, about 160 bytes.
func DefaultConfig() Config {
	return Config{Seed: 1, Interval: time.Second, Fanout: 2, Header: 64, Entry: 160}
}

// Validate returns an error that names the first value that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Interval <= 0:
		return fmt.Errorf("gossip: interval %v: want more than 0", c.Interval)
	case c.Fanout < 0:
		return fmt.Errorf("gossip: fan-out %d: want 0 for all peers, or more", c.Fanout)
	case c.Header < 0 || c.Entry < 0:
		return errors.New("gossip: the bytes of a message are negative")
	}
	return nil
}

// Network carries messages between hosts, as fabric.Fabric does. It calls arrive when the message is there, always
// after Send has returned, or never.
type Network interface {
	Send(from, to, bytes int, arrive func())
}

// hostsOf returns how many hosts a network has, if it reports that.
func hostsOf(net Network) (int, bool) {
	if f, ok := net.(interface{ Topology() *fabric.Topology }); ok {
		return f.Topology().Hosts, true
	}
	return 0, false
}

// Deliver is called when a host has learnt a newer version of another host's news. age is how long ago that was
// published.
type Deliver func(at, about int, version uint32, age time.Duration)

// News passes news on along an overlay.
type News struct {
	cfg     Config
	overlay Overlay
	net     Network
	time    fabric.Timeline
	board   *board
	hosts   []member
	free    []*push
	stopped bool
	pushes  int64
	entries int64
}

// member is a host that takes part.
type member struct {
	phase   time.Duration // of its pushes within an interval
	planned bool          // whether a push is due
	down    bool          // its daemon does not run
	silent  bool          // it acknowledges all and passes nothing on
	lives   int           // how many times its daemon has ended
	turn    int           // the peer that comes first in the next push
	peers   []peer
	tick    func()
}

// peer is what a host knows of another host to which it pushes.
type peer struct {
	host  int32
	index int32  // index of this host among the peers of the peer
	acked uint64 // the peer knows all that this host has learnt up to here
	tries int    // pushes since the peer last acknowledged one
	wait  time.Duration
}

// entry is the news of one host.
type entry struct {
	about   int32
	version uint32
	born    int64 // when it was published
}

// New makes all hosts of an overlay take part. They are the first hosts of the network. deliver may be nil.
func New(cfg Config, o Overlay, net Network, timeline fabric.Timeline, deliver Deliver) (*News, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	hosts := len(o.Peers)
	if there, known := hostsOf(net); known && hosts > there {
		return nil, fmt.Errorf("gossip: the overlay has %d hosts, the network %d", hosts, there)
	}
	b, err := newBoard(hosts, timeline, deliver)
	if err != nil {
		return nil, err
	}
	n := &News{cfg: cfg, overlay: o, net: net, time: timeline, board: b, hosts: make([]member, hosts)}
	r := rand.New(rand.NewPCG(cfg.Seed, 0x676f73736970))
	index := make([]int32, hosts) // by host: how many lower-numbered hosts have it as a peer
	for h := range n.hosts {
		m := &n.hosts[h]
		m.phase = time.Duration(r.Int64N(int64(cfg.Interval)))
		m.tick = func() { n.push(h) }
		m.peers = make([]peer, len(o.Peers[h]))
		for i, p := range o.Peers[h] {
			m.peers[i] = peer{host: p, index: index[p]}
			index[p]++
		}
		if len(m.peers) > 0 {
			m.turn = r.IntN(len(m.peers))
		}
	}
	return n, nil
}

// Publish makes a new version of a host's news known to the host itself. Versions of a host ascend from 1; an older one is
// ignored.
func (n *News) Publish(host int, version uint32) {
	if n.board.publish(host, version) {
		n.plan(host)
	}
}

// Version returns the newest version of one host's news that another host knows, and how long ago it was published; 0
// if it knows none.
func (n *News) Version(at, about int) (version uint32, age time.Duration) {
	return n.board.version(at, about)
}

// Sample adds the age of what each host believes of each other host to the figures.
func (n *News) Sample() { n.board.sample() }

// Stop ends the pushes. Those under way still arrive.
func (n *News) Stop() { n.stopped = true }

// SetUp says whether the daemon of a host runs; at first all do. A daemon that does not run receives nothing and passes
// nothing on. When it starts again, it has forgotten what others had told it, and its peers tell it again.
func (n *News) SetUp(host int, up bool) {
	m := &n.hosts[host]
	if m.down == !up {
		return
	}
	m.down = !up
	if m.down {
		m.lives++
		n.board.forget(host)
		return
	}
	n.board.begin(host)
	n.plan(host)
	for i := range m.peers {
		p := &m.peers[i]
		p.acked, p.tries, p.wait = 0, 0, 0
		q := &n.hosts[p.host].peers[p.index]
		q.acked, q.tries, q.wait = 0, 0, 0
		n.plan(int(p.host))
	}
}

// SetSilent makes a host silent: it receives and acknowledges everything, but passes on only its own news.
func (n *News) SetSilent(host int) { n.hosts[host].silent = true }

// plan makes a host push at its next time, unless that is planned already.
func (n *News) plan(host int) {
	m := &n.hosts[host]
	if m.planned || m.down || n.stopped || len(m.peers) == 0 {
		return
	}
	m.planned = true
	now := n.time.Now()
	at := now - now%n.cfg.Interval + m.phase
	if at <= now {
		at += n.cfg.Interval
	}
	n.time.At(at, m.tick)
}

// push sends what is new to the peers whose turn it is.
func (n *News) push(host int) {
	m := &n.hosts[host]
	m.planned = false
	if n.stopped || m.down {
		return
	}
	count := len(m.peers)
	sent, waiting := 0, false
	for i := 0; i < count && (n.cfg.Fanout == 0 || sent < n.cfg.Fanout); i++ {
		switch p := &m.peers[m.turn]; {
		case n.hosts[p.host].down: // it asks for everything when it is up
		case p.wait > n.time.Now():
			waiting = true
		case n.pushTo(host, m.turn):
			sent++
		}
		m.turn = (m.turn + 1) % count
	}
	if sent > 0 || waiting {
		n.plan(host) // for the other peers, and for what is not acknowledged by then
	}
}

const (
	// patience is how many pushes a peer may leave unanswered before it is tried less often.
	patience = 3
	// maxPatience bounds the pause between two pushes to a peer: 2 to this power, in intervals.
	maxPatience = 5
)

// tried notes a push to a peer, and how long to wait until the next if the peer does not answer.
func (n *News) tried(p *peer) {
	p.tries++
	if over := p.tries - patience; over > 0 {
		p.wait = n.time.Now() + n.cfg.Interval<<min(over, maxPatience)
	}
}

// push is a message under way, and its acknowledgement.
type push struct {
	n        *News
	from, to int
	peer     int // index of the receiver among the sender's peers
	life     int // of the receiver
	upTo     uint64
	entries  []entry
	arrive   func()
	ack      func()
}

// pushTo sends a peer all that it has not acknowledged. It reports whether there was anything.
func (n *News) pushTo(host, index int) bool {
	p := &n.hosts[host].peers[index]
	x := n.message()
	x.entries = n.board.since(host, p.acked, int32(index), x.entries[:0])
	if n.hosts[host].silent {
		x.entries = slices.DeleteFunc(x.entries, func(e entry) bool { return int(e.about) != host })
	}
	if len(x.entries) == 0 {
		p.acked = n.board.learnt(host) // all of it came from the peer itself
		n.free = append(n.free, x)
		return false
	}
	x.from, x.to, x.peer, x.upTo = host, int(p.host), index, n.board.learnt(host)
	x.life = n.hosts[x.to].lives
	n.tried(p)
	n.pushes++
	n.entries += int64(len(x.entries))
	n.net.Send(host, x.to, n.cfg.Header+n.cfg.Entry*len(x.entries), x.arrive)
	return true
}

func (n *News) message() *push {
	if k := len(n.free); k > 0 {
		x := n.free[k-1]
		n.free = n.free[:k-1]
		return x
	}
	x := &push{n: n}
	x.arrive, x.ack = x.arrived, x.acked
	return x
}

// arrived runs at the receiver when the push arrives.
func (x *push) arrived() {
	n := x.n
	if n.hosts[x.to].down || n.hosts[x.to].lives != x.life {
		return
	}
	news := false
	for _, e := range x.entries {
		news = n.board.learn(x.to, e, n.hosts[x.from].peers[x.peer].index) || news
	}
	if news {
		n.plan(x.to)
	}
	n.net.Send(x.to, x.from, n.cfg.Header, x.ack)
}

// acked runs at the sender when the acknowledgement arrives.
func (x *push) acked() {
	p := &x.n.hosts[x.from].peers[x.peer]
	if x.n.hosts[x.to].lives == x.life {
		p.acked = max(p.acked, x.upTo)
		p.tries, p.wait = 0, 0
	}
	x.n.free = append(x.n.free, x)
}
