package session

// The cost of an Offer and its Commit between two daemons, compared with the same bytes over a plain TCP connection.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
)

// answerer is the Handler of both ends. It commits to each offer and counts commits.
type answerer struct {
	*Manager
	up      chan struct{}
	commits func(contract.Commit)
}

func (a *answerer) Up(job.Peer, Info)    { close(a.up) }
func (a *answerer) Down(job.Peer, error) {}

func (a *answerer) Measured(job.Peer, time.Duration) {}

func (a *answerer) FromScheduler(p job.Peer, msg contract.ToWorker) {
	if o, ok := msg.(contract.Offer); ok {
		_ = a.Send(p, contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: o.Group, Devices: benchDevices, Session: 9})
	}
}

func (a *answerer) FromWorker(_ job.Peer, msg contract.ToScheduler) {
	if c, ok := msg.(contract.Commit); ok {
		a.commits(c)
	}
}

var benchDevices = []string{"GPU-8f6d3a52-0f1e-4a8e-9d4e-1c2b3a4d5e6f", "GPU-0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"}

func benchHost(b *testing.B) host.Host {
	h, err := libp2p.New(
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport), libp2p.DisableRelay(), libp2p.DisableMetrics(),
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

func benchNode(b *testing.B) *answerer {
	a := &answerer{up: make(chan struct{})}
	m, err := New(DefaultConfig(), &member{Host: benchHost(b)}, a, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	a.Manager = m
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return a
}

func BenchmarkOfferCommit(b *testing.B) {
	for _, inFlight := range []int{1, 16, 256} {
		b.Run(name(inFlight), func(b *testing.B) {
			s, w := benchNode(b), benchNode(b)
			worker := w.host.ID()
			s.host.(host.Host).Peerstore().AddAddrs(worker, w.host.(host.Host).Addrs(), peerstore.PermanentAddrTTL)
			slots := make(chan struct{}, inFlight)
			s.commits = func(contract.Commit) { <-slots }
			to := job.Peer(worker.String())
			s.Want(to)
			<-s.up
			<-w.up
			measure(b, func() {
				for n := range b.N {
					slots <- struct{}{}
					if err := s.Send(to, testOffer(uint64(n))); err != nil {
						b.Fatal(err)
					}
				}
				for range inFlight {
					slots <- struct{}{}
				}
			})
		})
	}
}

// BenchmarkRawTCP is the lower bound: the same sizes on one TCP connection, written in batches, without encoding or
// checks.
func BenchmarkRawTCP(b *testing.B) {
	offer, commit := wireSize(b, testOffer(1<<40)), wireSize(b, contract.Commit{
		Offer: 1 << 40, Attempt: testOffer(1).Attempt, Group: 7, Devices: benchDevices, Session: 9,
	})
	for _, inFlight := range []int{1, 16, 256} {
		b.Run(name(inFlight), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				echo(c, offer, commit)
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			measure(b, func() {
				out, in := make([]byte, offer*inFlight), make([]byte, commit*inFlight)
				for done := 0; done < b.N; {
					batch := min(inFlight, b.N-done)
					if _, err := c.Write(out[:batch*offer]); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, in[:batch*commit]); err != nil {
						b.Fatal(err)
					}
					done += batch
				}
			})
		})
	}
}

// echo answers the bytes of each offer with the bytes of a commit.
func echo(c net.Conn, offer, commit int) {
	in, out, have := make([]byte, 64<<10), make([]byte, 64<<10), 0
	for {
		n, err := c.Read(in)
		if err != nil {
			return
		}
		have += n
		for have >= offer {
			batch := min(have/offer, len(out)/commit)
			if _, err := c.Write(out[:batch*commit]); err != nil {
				return
			}
			have -= batch * offer
		}
	}
}

func wireSize(b *testing.B, msg any) int {
	f, err := toWire(msg)
	if err != nil {
		b.Fatal(err)
	}
	out, err := appendFrame(nil, f)
	if err != nil {
		b.Fatal(err)
	}
	return len(out)
}

// measure reports pairs per second and the CPU time that both sides took for one pair.
func measure(b *testing.B, f func()) {
	b.ResetTimer()
	before, start := cpu(b), time.Now()
	f()
	took, used := time.Since(start), cpu(b)-before
	b.ReportMetric(float64(b.N)/took.Seconds(), "pairs/s")
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "cpu-µs/pair")
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func name(inFlight int) string {
	return map[int]string{1: "in_flight=1", 16: "in_flight=16", 256: "in_flight=256"}[inFlight]
}

var codecSink atomic.Int64

// BenchmarkCodec measures encoding and decoding alone, without a network.
func BenchmarkCodec(b *testing.B) {
	b.ReportAllocs()
	o := testOffer(1)
	var buf []byte
	for b.Loop() {
		f, err := toWire(o)
		if err != nil {
			b.Fatal(err)
		}
		if buf, err = appendFrame(buf[:0], f); err != nil {
			b.Fatal(err)
		}
		if _, err := fromWire(f, nil); err != nil {
			b.Fatal(err)
		}
		codecSink.Add(int64(len(buf)))
	}
}

// BenchmarkEventAmongLinks measures the cost of the end of one dial for the manager while thousands of other links wait
// for theirs.
func BenchmarkEventAmongLinks(b *testing.B) {
	for _, others := range []int{64, 4096} {
		b.Run(fmt.Sprintf("links=%d", others), func(b *testing.B) {
			m := &Manager{cfg: DefaultConfig(), log: slog.New(slog.DiscardHandler), table: table{wanted: map[job.Peer]peer.ID{}, changed: map[job.Peer]bool{}}}
			l := &loop{Manager: m, links: map[job.Peer]*link{}, agenda: timers.New[time.Time, *link](time.Time.Compare), timer: time.NewTimer(time.Hour)}
			defer l.timer.Stop()
			var k *link
			for i := range others {
				p := job.Peer(fmt.Sprint(i))
				m.table.want(p, peer.ID(p), others)
				k = l.link(p)
				k.retry = time.Now().Add(time.Hour)
				l.settle(k)
			}
			for b.Loop() {
				l.backOff(k)
				k.retry = k.retry.Add(time.Hour)
				l.settle(k)
				l.lookDue(b.Context())
			}
		})
	}
}
