// Package p2ptest makes clusters of real, gated libp2p hosts on a simulated network with a fake clock. Call New
// inside testing/synctest.
//
// The hosts speak only QUIC, because the simulation carries only UDP. They have credentials of one cluster from the
// start, and know no other host until Connect or Mesh. Loss and cuts may change at any time.
package p2ptest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	"github.com/quic-go/quic-go"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

const (
	// never is the latency of a lost packet: longer than any test.
	never = 10000 * time.Hour
	port  = 8000
	life  = 30 * 24 * time.Hour
	link  = 100_000_000 // bits per second
)

// Net is a simulated network with hosts.
type Net struct {
	// Hosts are the running hosts; nil for a stopped one.
	Hosts []*p2p.Host
	// Cluster is the private key of their cluster.
	Cluster ed25519.PrivateKey

	t    *testing.T
	sim  *simnet.Simnet
	opts Options

	adding sync.Mutex // held while an endpoint is added

	given []*p2p.Given
	dirs  []string
	stops []func()

	mu     sync.Mutex
	random *mrand.Rand             // guarded by mu
	loss   float64                 // guarded by mu
	index  map[string]int          // guarded by mu; the index of the host with an IP
	cut    func(from, to int) bool // guarded by mu
	holes  map[int]bool            // guarded by mu
}

// Options configure a Net. The zero value is 5 ms one way, no loss, no disk.
type Options struct {
	// Latency is one way.
	Latency time.Duration
	// Loss is the share of packets that never arrive.
	Loss float64
	// Seed determines the losses.
	Seed uint64
	// Dirs gives each host a data directory.
	Dirs bool
	// Strangers is the number of hosts, the last ones, without a credential: they need Config.Token.
	Strangers int
	// Roles are the roles of host i; nil: all hosts have all roles.
	Roles func(i int) p2p.Roles
	// Config may change the configuration of host i before it is made.
	Config func(i int, c *p2p.Config)
	// Log receives the log of the hosts; nil: no log.
	Log *slog.Logger
}

// New starts n hosts, members of one cluster. The first one has the cluster key. They are stopped when the test ends.
func New(t *testing.T, n int, opts Options) *Net {
	t.Helper()
	_, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Latency == 0 {
		opts.Latency = 5 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	nw := &Net{
		Hosts: make([]*p2p.Host, n), Cluster: secret, t: t, opts: opts,
		given: make([]*p2p.Given, n), dirs: make([]string, n), stops: make([]func(), n),
		random: mrand.New(mrand.NewPCG(opts.Seed, 1)), loss: opts.Loss,
		index: map[string]int{}, holes: map[int]bool{},
	}
	nw.sim = &simnet.Simnet{LatencyFunc: nw.delay, Logger: slog.New(slog.DiscardHandler)}
	nw.sim.Start()
	t.Cleanup(func() {
		for i := range nw.Hosts {
			nw.Stop(i)
		}
		nw.sim.Close()
	})
	for i := range n {
		roles := p2p.AllRoles
		if opts.Roles != nil {
			roles = opts.Roles(i)
		}
		g, err := p2p.NewGiven(secret, roles, life)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			g.Cluster = secret
		}
		if i >= n-opts.Strangers {
			g.Credential, g.Cluster = nil, nil
		}
		nw.given[i] = g
		if opts.Dirs {
			nw.dirs[i] = t.TempDir()
		}
		nw.Start(i)
	}
	return nw
}

// IP returns the address of host i.
func (nw *Net) IP(i int) net.IP { return net.IPv4(1, 0, byte(i>>8), byte(i&0xff)+1).To4() }

// Addr returns the multiaddr of host i, with /p2p/ID.
func (nw *Net) Addr(i int) string {
	id, err := nw.given[i].ID()
	if err != nil {
		nw.t.Fatal(err)
	}
	return fmt.Sprintf("/ip4/%s/udp/%d/quic-v1/p2p/%s", nw.IP(i), port, id)
}

// Start starts host i. After a Stop it has the same key and data directory.
func (nw *Net) Start(i int) {
	nw.t.Helper()
	if err := nw.TryStart(nw.t.Context(), i); err != nil {
		nw.t.Fatal(err)
	}
}

// TryStart is Start, but returns an error instead of failing the test.
func (nw *Net) TryStart(ctx context.Context, i int) error {
	nw.mu.Lock()
	nw.index[nw.IP(i).String()] = i
	nw.mu.Unlock()
	cfg := p2p.DefaultConfig()
	cfg.Name = fmt.Sprintf("host%d", i)
	cfg.DataDir = nw.dirs[i]
	cfg.Given = nw.given[i]
	cfg.Listen = []string{fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", nw.IP(i), port)}
	bidi := simnet.NodeBiDiLinkSettings{Downlink: simnet.LinkSettings{BitsPerSecond: link}, Uplink: simnet.LinkSettings{BitsPerSecond: link}}
	cfg.Options = []libp2p.Option{libp2p.DisableIdentifyAddressDiscovery()} // address discovery stalls synctest
	cfg.Sockets = nw.sockets(nw.IP(i), bidi)
	if nw.opts.Config != nil {
		nw.opts.Config(i, &cfg)
	}
	h, err := p2p.New(cfg, nw.opts.Log.With("host", i))
	if err != nil {
		return err
	}
	if err := h.Enter(ctx); err != nil {
		h.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	nw.Hosts[i] = h
	nw.stops[i] = func() {
		cancel()
		if err := <-done; err != nil {
			nw.t.Errorf("host %d: %v", i, err)
		}
	}
	return nil
}

// sockets returns the options of a host whose UDP sockets are on the simulated network.
func (nw *Net) sockets(ip net.IP, bidi simnet.NodeBiDiLinkSettings) []quicreuse.Option {
	return []quicreuse.Option{
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source{ip}, nil }),
		quicreuse.OverrideListenUDP(func(_ string, at *net.UDPAddr) (net.PacketConn, error) { return nw.endpoint(at, bidi), nil }),
	}
}

// endpoint adds a socket to the simulated network. The lock is needed because simnet cannot add several at once.
func (nw *Net) endpoint(at *net.UDPAddr, bidi simnet.NodeBiDiLinkSettings) net.PacketConn {
	nw.adding.Lock()
	defer nw.adding.Unlock()
	return nw.sim.NewEndpoint(at, bidi)
}

// Stranger is a QUIC client on the network, without a credential and without limits of its own.
type Stranger struct{ t transport.Transport }

// Stranger returns a client at an address.
func (nw *Net) Stranger(ip net.IP) *Stranger {
	nw.t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		nw.t.Fatal(err)
	}
	bidi := simnet.NodeBiDiLinkSettings{Downlink: simnet.LinkSettings{BitsPerSecond: link}, Uplink: simnet.LinkSettings{BitsPerSecond: link}}
	cm, err := quicreuse.NewConnManager(quic.StatelessResetKey{}, quic.TokenGeneratorKey{},
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source{ip}, nil }),
		quicreuse.OverrideListenUDP(func(string, *net.UDPAddr) (net.PacketConn, error) {
			return nw.endpoint(&net.UDPAddr{IP: ip, Port: port}, bidi), nil
		}))
	if err != nil {
		nw.t.Fatal(err)
	}
	nw.t.Cleanup(func() { cm.Close() })
	t, err := libp2pquic.NewTransport(key, cm, nil, nil, &network.NullResourceManager{})
	if err != nil {
		nw.t.Fatal(err)
	}
	return &Stranger{t}
}

// Dial opens a new connection to an address that ends in /p2p/ID. It sends nothing on it.
func (s *Stranger) Dial(ctx context.Context, to string) (transport.CapableConn, error) {
	info, err := peer.AddrInfoFromString(to)
	if err != nil {
		return nil, err
	}
	return s.t.Dial(ctx, info.Addrs[0], info.ID)
}

// source tells QUIC the address from which a host sends.
type source struct{ ip net.IP }

// PreferredSourceIPForDestination returns the host's only address.
func (s source) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return s.ip, nil }

// Stop stops host i, which says goodbye. Call Blackhole first if other hosts must not hear the goodbye.
func (nw *Net) Stop(i int) {
	if nw.stops[i] != nil {
		nw.stops[i]()
	}
	nw.Hosts[i], nw.stops[i] = nil, nil
}

// Dir returns the data directory of host i.
func (nw *Net) Dir(i int) string { return nw.dirs[i] }

// Forget gives the stopped host i an empty data directory; its key stays.
func (nw *Net) Forget(i int) { nw.dirs[i] = nw.t.TempDir() }

// Peer returns the ID of host i.
func (nw *Net) Peer(i int) job.Peer {
	id, err := nw.given[i].ID()
	if err != nil {
		nw.t.Fatal(err)
	}
	return job.Peer(id.String())
}

// Connect connects host i to host j.
func (nw *Net) Connect(i, j int) {
	nw.t.Helper()
	if err := nw.Hosts[i].ConnectAddr(nw.t.Context(), nw.Addr(j)); err != nil {
		nw.t.Fatalf("host %d to host %d: %v", i, j, err)
	}
}

// Mesh connects all hosts to all others.
func (nw *Net) Mesh() {
	nw.t.Helper()
	for i := range nw.Hosts {
		for j := range i {
			nw.Connect(i, j)
		}
	}
}

// SetLoss sets the share of packets that are lost.
func (nw *Net) SetLoss(share float64) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.loss = share
}

// Blackhole cuts host i off, or connects it again.
func (nw *Net) Blackhole(i int, on bool) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.holes[i] = on
}

// Cut drops the packets for which f returns true; nil ends this. f is called under a lock for every packet.
func (nw *Net) Cut(f func(from, to int) bool) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.cut = f
}

// Partition separates the first n hosts from the rest; Cut(nil) ends it.
func (nw *Net) Partition(n int) {
	nw.Cut(func(from, to int) bool { return (from < n) != (to < n) })
}

// delay returns how long a packet takes.
func (nw *Net) delay(p *simnet.Packet) time.Duration {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	from, to := nw.host(p.From), nw.host(p.To)
	lost := nw.loss > 0 && nw.random.Float64() < nw.loss
	if lost || nw.holes[from] || nw.holes[to] || (nw.cut != nil && nw.cut(from, to)) {
		return never
	}
	return nw.opts.Latency
}

func (nw *Net) host(a net.Addr) int {
	if u, ok := a.(*net.UDPAddr); ok {
		if i, ok := nw.index[u.IP.String()]; ok {
			return i
		}
	}
	return -1
}
