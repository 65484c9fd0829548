package session

// A simulated network of hosts with sessions, under a fake clock.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

const oneWay = 5 * time.Millisecond

// never is a latency that stands for a lost packet.
const never = 1000 * time.Hour

// cluster is a set of hosts that know each other's addresses and are not connected.
type cluster struct {
	nodes []*node
	// slow returns the latency of a packet between two hosts; nil: oneWay.
	slow atomic.Pointer[func(from, to int) time.Duration]
}

// member is a host of a cluster where each host has all roles, unless roles says otherwise.
type member struct {
	host.Host
	roles atomic.Pointer[map[peer.ID]p2p.Roles]
}

func (m *member) RolesOf(id peer.ID) p2p.Roles {
	if of := m.roles.Load(); of != nil {
		return (*of)[id]
	}
	return p2p.AllRoles
}

// node is a daemon that has only sessions.
type node struct {
	host host.Host
	*Manager
	*recorder
	stop func()
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{}
	index := map[string]int{}
	sim := &simnet.Simnet{LatencyFunc: func(p *simnet.Packet) time.Duration {
		if f := c.slow.Load(); f != nil {
			return (*f)(index[ip(p.From)], index[ip(p.To)])
		}
		return oneWay
	}}
	link := simnet.LinkSettings{BitsPerSecond: 1000 * simlibp2p.OneMbps}
	for i := range n {
		addr := simnet.IntToPublicIPv4(i)
		index[addr.String()] = i
		h, err := libp2p.New(
			libp2p.ListenAddrStrings(fmt.Sprintf("/ip4/%s/udp/8000/quic-v1", addr)),
			simlibp2p.QUICSimnet(sim, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}),
			libp2p.DisableIdentifyAddressDiscovery(),
			libp2p.ResourceManager(&network.NullResourceManager{}),
			libp2p.DisableMetrics(),
		)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &node{host: h})
	}
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			a.host.Peerstore().AddAddrs(b.host.ID(), b.host.Addrs(), peerstore.PermanentAddrTTL)
		}
	}
	sim.Start()
	for _, a := range c.nodes {
		a.start(t)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, a := range c.nodes {
			wg.Go(func() { a.stop(); a.host.Close() })
		}
		wg.Wait()
		sim.Close()
	})
	return c
}

func ip(a net.Addr) string { return a.(*net.UDPAddr).IP.String() }

// start gives the host a new manager, as a start of the daemon does.
func (n *node) start(t *testing.T) { n.startWith(t, DefaultConfig()) }

func (n *node) startWith(t *testing.T, cfg Config) {
	n.recorder = &recorder{up: map[job.Peer]bool{}}
	m, err := New(cfg, &member{Host: n.host}, n.recorder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.Manager = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	n.stop = func() { cancel(); <-done }
}

// pingsTo returns how many pings the session with the peer has sent.
func (n *node) pingsTo(p job.Peer) uint64 {
	c := n.table.get(p)
	c.pings.mu.Lock()
	defer c.pings.mu.Unlock()
	return c.pings.last
}

func (n *node) id() job.Peer { return job.Peer(n.host.ID().String()) }

// recorder is a Handler that records its calls and checks the guarantees of the interface.
type recorder struct {
	mu      sync.Mutex
	up      map[job.Peer]bool // guarded by mu
	seen    []string          // guarded by mu; "up b", "down b", in order
	errs    []error           // guarded by mu; errors given to Down
	ups     int               // guarded by mu
	offers  []uint64          // guarded by mu
	commits []uint64          // guarded by mu
	broken  []string          // guarded by mu; violated guarantees
	stall   chan struct{}     // if set, messages block until it is closed
	onOffer func(from job.Peer, o contract.Offer)
	onAny   func(msg any) // called for each message

	measured []time.Duration // guarded by mu
}

func (r *recorder) Up(p job.Peer, info Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up[p] || info.Peer != p {
		r.broken = append(r.broken, "up while up")
	}
	r.up[p] = true
	r.ups++
	r.seen = append(r.seen, "up "+p.Short())
}

func (r *recorder) Measured(p job.Peer, roundTrip time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up[p] || roundTrip <= 0 {
		r.broken = append(r.broken, "measured while down")
	}
	r.measured = append(r.measured, roundTrip)
}

func (r *recorder) Down(p job.Peer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up[p] || err == nil {
		r.broken = append(r.broken, "down while down")
	}
	delete(r.up, p)
	r.errs = append(r.errs, err)
	r.seen = append(r.seen, "down "+p.Short())
}

func (r *recorder) FromScheduler(p job.Peer, msg contract.ToWorker) {
	r.mu.Lock()
	if !r.up[p] {
		r.broken = append(r.broken, "a message while down")
	}
	o, isOffer := msg.(contract.Offer)
	if isOffer {
		r.offers = append(r.offers, o.ID)
	}
	stall, onOffer := r.stall, r.onOffer
	r.mu.Unlock()
	if r.onAny != nil {
		r.onAny(msg)
	}
	if stall != nil {
		<-stall
	}
	if isOffer && onOffer != nil {
		onOffer(p, o)
	}
}

func (r *recorder) FromWorker(p job.Peer, msg contract.ToScheduler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up[p] {
		r.broken = append(r.broken, "a message while down")
	}
	if c, ok := msg.(contract.Commit); ok {
		r.commits = append(r.commits, c.Offer)
	}
	if r.onAny != nil {
		r.onAny(msg)
	}
}

func (r *recorder) isUp(p job.Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up[p]
}

func (r *recorder) gotOffers() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.offers)
}

func (r *recorder) lastErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) == 0 {
		return nil
	}
	return r.errs[len(r.errs)-1]
}

func (r *recorder) downs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errs)
}

func (r *recorder) checkGuarantees(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.broken {
		t.Error(b)
	}
}

func testRenew(live ...job.Attempt) contract.Renew {
	return contract.Renew{Group: 7, Store: "store", Clock: 1, Session: 1, Live: live}
}

func testOffer(n uint64) contract.Offer {
	const g = job.Group(7)
	return contract.Offer{
		ID: n, Attempt: job.Attempt{Job: job.NewID(g, n), N: 1}, Group: g, Epoch: contract.Epoch{Generation: 1, Term: 3},
		Need: job.Resources{CPUs: 1, GPUs: 2, GPUModel: "h100"}, Priority: 50, User: "amy", Wait: time.Second,
	}
}
