package peerhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"

	"github.com/musterhq/muster/job"
)

// pass advances the virtual time.
func pass(d time.Duration) { time.Sleep(d) }

// counted counts the opened streams.
type counted struct {
	host.Host
	streams atomic.Int32
}

func (c *counted) NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error) {
	c.streams.Add(1)
	return c.Host.NewStream(ctx, p, ids...)
}

// pair is two daemons: one sends requests, the other serves them.
type pair struct {
	asks, serves host.Host
	counted      *counted
	client       *http.Client
	listener     *Listener
	dead         atomic.Bool // no packet arrives
}

func (p *pair) url(path string) string { return "http://" + p.serves.ID().String() + path }

func newPair(t *testing.T, cfg Config, handler http.Handler) *pair {
	p := &pair{}
	sim := &simnet.Simnet{LatencyFunc: func(*simnet.Packet) time.Duration {
		if p.dead.Load() {
			return 1000 * time.Hour
		}
		return 5 * time.Millisecond
	}}
	link := simnet.LinkSettings{BitsPerSecond: 1000 * simlibp2p.OneMbps}
	var hosts []host.Host
	for i := range 2 {
		h, err := libp2p.New(
			libp2p.ListenAddrStrings(fmt.Sprintf("/ip4/%s/udp/8000/quic-v1", simnet.IntToPublicIPv4(i))),
			simlibp2p.QUICSimnet(sim, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}),
			libp2p.DisableIdentifyAddressDiscovery(), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(),
		)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	sim.Start()
	p.join(t, cfg, handler, hosts[0], hosts[1])
	t.Cleanup(sim.Close)
	t.Cleanup(func() { hosts[0].Close(); hosts[1].Close() })
	return p
}

func (p *pair) join(t *testing.T, cfg Config, handler http.Handler, asks, serves host.Host) {
	p.asks, p.serves, p.counted = asks, serves, &counted{Host: asks}
	asks.Peerstore().AddAddrs(serves.ID(), serves.Addrs(), peerstore.PermanentAddrTTL)
	transport, err := NewTransport(cfg, p.counted)
	if err != nil {
		t.Fatal(err)
	}
	p.client = &http.Client{Transport: transport}
	if p.listener, err = Listen(cfg, serves, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ConnContext: ConnContext, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-done
	})
}

func get(t *testing.T, p *pair, path string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func TestRequestNamesItsPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, DefaultConfig(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asker, ok := PeerFrom(r)
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, asker, ok, r.RemoteAddr, r.URL.Path, len(body))
		}))
		me := p.asks.ID().String()
		want := fmt.Sprint(job.Peer(me), true, me, "/v1/jobs", 0)
		for range 20 {
			if got, err := get(t, p, "/v1/jobs"); err != nil || got != want {
				t.Fatalf("got %q, %v; want %q", got, err, want)
			}
			pass(time.Second)
		}
		if n := p.counted.streams.Load(); n != 1 {
			t.Errorf("got %d streams for 20 requests, want 1", n)
		}
		res, err := p.client.Post(p.url("/v1/jobs"), "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); err != nil || !strings.HasSuffix(string(b), "1048576") {
			t.Errorf("a body of 1 MiB: got %q, %v, want a text that ends with %q", b, err, "1048576")
		}
	})
}

// follow returns a handler whose response goes on until the client disconnects.
func follow(left chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := 0; ; n++ {
			fmt.Fprintf(w, "line %d\n", n)
			if err := http.NewResponseController(w).Flush(); err != nil {
				break
			}
			select {
			case <-time.Tick(time.Second):
				continue
			case <-r.Context().Done():
			}
			break
		}
		left <- r.Context().Err()
	})
}

func testFollow(t *testing.T, p *pair, left <-chan error, most time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url("/logs"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for n := range 3 {
		start := time.Now()
		if !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", n) || time.Since(start) > most {
			t.Fatalf("line %d: got %q after %s, %v, want it within %s", n, lines.Text(), time.Since(start), lines.Err(), most)
		}
	}
	cancel()
	start := time.Now()
	if err := <-left; !errors.Is(err, context.Canceled) || time.Since(start) > most {
		t.Errorf("the server noticed a disconnect after %s with %v, want context.Canceled in time", time.Since(start), err)
	}
}

func TestResponseStreamsUntilTheClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		testFollow(t, newPair(t, DefaultConfig(), follow(left)), left, 1100*time.Millisecond)
	})
}

// TestResponseStreamsUntilTheClientLeavesOverTCP is the same over TCP, where yamux instead of QUIC carries the streams.
func TestResponseStreamsUntilTheClientLeavesOverTCP(t *testing.T) {
	var hosts []host.Host
	for range 2 {
		h, err := libp2p.New(libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.Transport(tcp.NewTCPTransport), libp2p.DisableMetrics())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		hosts = append(hosts, h)
	}
	left, p := make(chan error, 1), &pair{}
	p.join(t, DefaultConfig(), follow(left), hosts[0], hosts[1])
	testFollow(t, p, left, 30*time.Second)
}

func TestStreamsOfAPeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Streams, cfg.PeerStreams, cfg.OpenStreams = 24, 2, 1
		release := make(chan struct{})
		p := newPair(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			fmt.Fprint(w, "ok")
		}))
		ask := func() net.Conn {
			c, err := dial(t.Context(), cfg, p.asks, net.JoinHostPort(p.serves.ID().String(), "80"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			pass(100 * time.Millisecond)
			return c
		}
		first, second, third := ask(), ask(), ask()
		if _, err := third.Read(make([]byte, 1)); err == nil {
			t.Error("got a third stream of a peer that may have two, want an error")
		}
		close(release)
		for _, c := range []net.Conn{first, second} {
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Errorf("got line %q, %v, want a text with %q", line, err, "200")
			}
			c.Close()
		}
		pass(time.Second)
		if got, err := get(t, p, "/"); err != nil || got != "ok" {
			t.Errorf("after they were closed: got %q, %v, want %q", got, err, "ok")
		}
	})
}

// TestHostilePeersLeaveStreamsForOthers checks that some streams are left for another peer while hostile peers hold all
// that they get.
func TestHostilePeersLeaveStreamsForOthers(t *testing.T) {
	l := &Listener{cfg: DefaultConfig(), open: map[job.Peer]int{}}
	for i := range 30 {
		p := job.Peer(fmt.Sprint("hostile", i))
		for l.enter(p) {
		}
	}
	if !l.enter("honest") {
		t.Errorf("30 peers hold all %d streams, want that another peer gets one", l.all)
	}
	most := l.all
	for p, n := range l.open {
		for range n {
			l.leave(p)
		}
	}
	if most > l.cfg.Streams || l.all != 0 || len(l.open) > 0 {
		t.Errorf("got %d streams at most, and %d when all have left, want no more than allowed, and 0", most, l.all)
	}
}

// TestRequestsWaitForAStream checks that the number of concurrent requests to one peer is bounded, and that further
// requests wait.
func TestRequestsWaitForAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		var now, most atomic.Int32
		p := newPair(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			pass(time.Second)
			now.Add(-1)
			fmt.Fprint(w, "ok")
		}))
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if got, err := get(t, p, "/"); err != nil || got != "ok" {
					t.Errorf("got %q, %v, want %q", got, err, "ok")
				}
			})
		}
		wg.Wait()
		if n := int(most.Load()); n > cfg.OpenStreams || n < cfg.OpenStreams/2 {
			t.Errorf("got %d concurrent requests, want at most %v and at least %v", n, cfg.OpenStreams, cfg.OpenStreams/2)
		}
	})
}

func TestSilentPeerEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		p := newPair(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		if _, err := get(t, p, "/"); err != nil {
			t.Fatal(err)
		}
		p.dead.Store(true)
		start := time.Now()
		if _, err := get(t, p, "/"); err == nil {
			t.Error("got an answer from a silent peer")
		}
		if took := time.Since(start); took > cfg.HeaderTimeout+cfg.DialTimeout {
			t.Errorf("a request to a silent peer ended after %s, want at most %v", took, cfg.HeaderTimeout+cfg.DialTimeout)
		}
	})
}

func TestRequestToAnInvalidPeerIDFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, DefaultConfig(), http.NotFoundHandler())
		res, err := p.client.Get("http://localhost/")
		if err == nil {
			res.Body.Close()
			t.Error("sent a request to localhost, which is not a peer ID")
		}
	})
}

func TestClosedListenerServesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, DefaultConfig(), http.NotFoundHandler())
		if err := p.listener.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: got %v, want net.ErrClosed", err)
		}
		if _, err := get(t, p, "/"); err == nil {
			t.Error("a closed listener answered")
		}
		p.listener.mu.Lock()
		defer p.listener.mu.Unlock()
		if p.listener.all != 0 {
			t.Errorf("%d streams are counted as open, want 0", p.listener.all)
		}
	})
}

func TestRequestOfTheLocalSocketHasNoPeer(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := PeerFrom(r); ok || p != "" {
		t.Errorf("a request from the local socket: got peer %q, want none", p)
	}
}
