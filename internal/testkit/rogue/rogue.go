// Package rogue is a member of a cluster that keeps to none of its rules, for tests of what a hostile member can do.
//
// A [Peer] has a true credential: it has joined with a token, or stands on a host of a simulated network. With it, it
// opens streams of any protocol, sends any frames in a session, speaks HTTP with any header, and publishes gossip and
// records of the DHT. What it gets is what a member with these roles gets.
package rogue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/p2p/wirepb"
)

// patience bounds every wait for an answer.
const patience = 30 * time.Second

// Peer is the hostile member.
type Peer struct {
	Host *p2p.Host

	t        testing.TB
	http     *http.Client
	pubsub   *pubsub.PubSub
	sessions chan *Session // that others have opened

	mu    sync.Mutex
	table *dht.Table    // guarded by mu; nil until the first Advertise
	topic *pubsub.Topic // guarded by mu; nil until the first Publish
	count uint64        // guarded by mu; sessions that it has opened
}

// Join makes a peer with real sockets on loopback, which joins a cluster with a token. Its roles are those of the token.
// It leaves when the test ends.
func Join(t testing.TB, name string, bootstrap []string, token string) *Peer {
	t.Helper()
	cfg := p2p.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.Bootstrap, cfg.Token = name, t.TempDir(), bootstrap, token
	cfg.Listen = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	h, err := p2p.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Enter(ctx); err != nil {
		t.Fatal(errors.Join(err, h.Close()))
	}
	p := On(t, h) // before the host connects
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- h.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	for _, addr := range bootstrap {
		if err := h.ConnectAddr(ctx, addr); err == nil {
			return p
		}
	}
	t.Fatalf("%s has joined, but reaches none of %s", name, bootstrap)
	return nil
}

// On makes a hostile peer of a running host, such as one of package p2ptest. No other part may use the host. What the peer
// publishes reaches only members that connect to the host later.
func On(t testing.TB, h *p2p.Host) *Peer {
	t.Helper()
	asking := peerhttp.DefaultConfig()
	transport, err := peerhttp.NewTransport(asking, h.Libp2p())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ps, err := pubsub.NewGossipSub(t.Context(), h.Libp2p(), pubsub.WithFloodPublish(true))
	if err != nil {
		t.Fatal(err)
	}
	return &Peer{Host: h, t: t, http: client, pubsub: ps}
}

// ID returns its peer ID.
func (p *Peer) ID() job.Peer { return p.Host.Peer() }

// Open opens a stream of any protocol.
func (p *Peer) Open(to job.Peer, id protocol.ID) (network.Stream, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	return p.Host.Libp2p().NewStream(ctx, p.decode(to), id)
}

func (p *Peer) decode(to job.Peer) peer.ID {
	p.t.Helper()
	id, err := peer.Decode(string(to))
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// Operator is the header of a request by an operator of this name.
func Operator(user string) http.Header {
	return http.Header{"Muster-User": {user}, "Muster-Operator": {"1"}}
}

// Reply is the answer to a request.
type Reply struct {
	Status int
	Header http.Header
	Body   string // its first MiB
}

// HTTP sends a request to another daemon, with exactly this header.
func (p *Peer) HTTP(method string, to job.Peer, path string, header http.Header, body string) (Reply, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+string(to)+path, strings.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	maps.Copy(r.Header, header)
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.http.Do(r)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return Reply{resp.StatusCode, resp.Header, string(text)}, err
}

// Publish publishes any bytes on the topic of the cluster's announcements, signed by this peer. It returns once a member
// of the topic was sent them.
func (p *Peer) Publish(data []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topic == nil {
		cfg := gossip.DefaultConfig()
		cfg.Cluster = p.Host.Cluster()
		topic, err := p.pubsub.Join(cfg.Name())
		if err != nil {
			p.t.Fatal(err)
		}
		p.topic = topic
	}
	for ctx.Err() == nil && len(p.topic.ListPeers()) == 0 {
		pause(time.Second / 10)
	}
	if err := p.topic.Publish(ctx, data); err != nil {
		p.t.Fatal(err)
	}
}

// Announce publishes an announcement of waiting work.
func (p *Peer) Announce(seq uint64, sessions int, classes ...string) {
	p.t.Helper()
	a := &wirepb.Announcement{Peer: string(p.ID()), Seq: seq, TtlNs: int64(30 * time.Second), Sessions: int64(sessions)}
	for _, c := range classes {
		a.Wants = append(a.Wants, &wirepb.Want{Class: c, Count: 1})
	}
	data, err := proto.Marshal(a)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Publish(data)
}

// Advertise writes records of the DHT that say that this peer is of these classes, and keeps them until the test ends.
func (p *Peer) Advertise(classes ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table == nil {
		cfg := dht.DefaultConfig()
		cfg.Cluster = p.Host.Cluster()
		table, err := dht.New(cfg, p.Host.Libp2p(), slog.New(slog.DiscardHandler))
		if err != nil {
			p.t.Fatal(err)
		}
		p.table = table
		ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		p.t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				p.t.Error(err)
			}
		})
	}
	p.table.Advertise(classes)
}

// Session opens a session with another daemon: both sides have greeted.
func (p *Peer) Session(to job.Peer) *Session {
	p.t.Helper()
	return p.open(to, true)
}

// Earlier is Session of a peer that speaks as the first version of the protocol did: it says of no later feature that it
// knows it.
func (p *Peer) Earlier(to job.Peer) *Session {
	p.t.Helper()
	return p.open(to, false)
}

func (p *Peer) open(to job.Peer, current bool) *Session {
	p.t.Helper()
	var err error
	for late := time.Now().Add(patience); time.Now().Before(late); pause(time.Second / 4) {
		var s *Session
		if s, err = p.TrySession(to, current); err == nil {
			return s
		}
	}
	p.t.Fatalf("no session with %s: %v", to, err)
	return nil
}

// TrySession is Session, or Earlier unless current is true, for a session that may be refused.
func (p *Peer) TrySession(to job.Peer, current bool) (*Session, error) {
	p.t.Helper()
	stream, err := p.Open(to, session.ID)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.count++
	n := p.count
	p.mu.Unlock()
	s := newSession(to, stream)
	open := &wirepb.Open{Incarnation: uint64(time.Now().UnixNano()), Count: n}
	if current {
		knowAll(open)
	}
	if err := s.Send(open); err == nil {
		var f *wirepb.Frame
		if f, err = s.Next(5 * time.Second); err == nil && f.GetAccept() != nil {
			return s, nil
		}
	}
	s.Reset()
	return nil, errNotAccepted
}

// Accept waits for the next session that another daemon opens, and accepts it. Before the first Accept such sessions are
// refused.
func (p *Peer) Accept() *Session {
	p.t.Helper()
	p.mu.Lock()
	if p.sessions == nil {
		p.sessions = make(chan *Session, 64)
		p.Host.Libp2p().SetStreamHandler(session.ID, p.accept)
	}
	p.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case s := <-p.sessions:
		return s
	case <-late.C:
		p.t.Fatal("nobody has opened a session")
		return nil
	}
}

func (p *Peer) accept(stream network.Stream) {
	s := newSession(job.Peer(stream.Conn().RemotePeer().String()), stream)
	f, err := s.Next(5 * time.Second)
	if err != nil || f.GetOpen() == nil {
		s.Reset()
		return
	}
	answer := &wirepb.Accept{Incarnation: uint64(time.Now().UnixNano())}
	knowAll(answer)
	if s.Send(answer) != nil {
		return
	}
	select {
	case p.sessions <- s:
	default:
		s.Reset()
	}
}

// knowAll sets all features of an Open or Accept, which are its fields of type bool.
func knowAll(m proto.Message) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Kind().String() == "bool" {
			r.Set(f, boolTrue)
		}
	}
}

func pause(d time.Duration) { <-time.NewTimer(d).C }
