package rogue_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/p2ptest"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/p2p/wirepb"
)

// honest takes part as a daemon does, and records what it receives.
type honest struct {
	up, down chan job.Peer
	got      chan any
}

func (h honest) Up(p job.Peer, _ session.Info)                 { h.up <- p }
func (h honest) Measured(job.Peer, time.Duration)              {}
func (h honest) Down(p job.Peer, _ error)                      { h.down <- p }
func (h honest) FromScheduler(_ job.Peer, m contract.ToWorker) { h.got <- m }
func (h honest) FromWorker(_ job.Peer, m contract.ToScheduler) { h.got <- m }
func (h honest) MayHear(job.Peer) bool                         { return true }
func (h honest) MayAnnounce(job.Peer) bool                     { return true }
func (h honest) announced(_ job.Peer, a gossip.Announcement)   { h.got <- a }
func (h honest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusTeapot)
	h.got <- r.Header.Get("Muster-User")
}

// served is a libp2p host behind the table of protocols.
type served struct {
	host.Host
	table *p2p.Host
}

func (s served) SetStreamHandler(id protocol.ID, serve network.StreamHandler) {
	_ = s.table.Handle(id, serve)
}

func (s served) RolesOf(id peer.ID) p2p.Roles { return s.table.Grants.Of(id) }

// TestMessagesOfTheRogueArrive checks that the messages of the hostile peer arrive: in a session that it opens or
// accepts, over HTTP, on the topic and in the DHT. Tests that expect a refusal would otherwise prove nothing.
func TestMessagesOfTheRogueArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{})
		r := rogue.On(t, nw.Hosts[1])
		good, log := nw.Hosts[0], slog.New(slog.DiscardHandler)
		h := honest{make(chan job.Peer, 9), make(chan job.Peer, 9), make(chan any, 99)}
		at := served{good.Libp2p(), good}
		sessions, err := session.New(session.DefaultConfig(), at, h, log)
		must(t, err)
		gc := gossip.DefaultConfig()
		gc.Cluster = good.Cluster()
		topic, err := gossip.New(gc, good.Libp2p(), h, h.announced, log)
		must(t, err)
		tc := dht.DefaultConfig()
		tc.Cluster = good.Cluster()
		table, err := dht.New(tc, good.Libp2p(), log)
		must(t, err)
		l, err := peerhttp.Listen(peerhttp.DefaultConfig(), at, log)
		must(t, err)
		server := http.Server{Handler: h}
		go server.Serve(l)
		defer server.Close()
		for _, run := range []func(context.Context) error{sessions.Run, topic.Run, table.Run} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- run(ctx) }()
			defer func() { cancel(); <-done }()
		}
		nw.Connect(1, 0)

		s := r.Session(good.Peer())
		must(t, s.Send(&wirepb.Release{Offer: 7}))
		if got := <-h.got; got != (contract.Release{Offer: 7}) {
			t.Errorf("got %v, want the release of offer 7", got)
		}
		if _, err := s.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
			t.Fatal(err)
		}
		if !s.Ended(time.Minute) {
			t.Error("the session goes on after a malformed frame")
		}
		<-h.down
		sessions.Want(r.ID())
		s = r.Accept()
		must(t, s.Send(&wirepb.Release{Offer: 8}))
		if got := <-h.got; got != (contract.Release{Offer: 8}) {
			t.Errorf("got %v, want the release of offer 8", got)
		}
		reply, err := r.HTTP(http.MethodPost, good.Peer(), "/v1/jobs", rogue.Operator("amy"), "{}")
		if got := <-h.got; err != nil || reply.Status != http.StatusTeapot || got != "amy" {
			t.Errorf("HTTP: got %v, %v, %v, want 418 and amy", reply, err, got)
		}
		r.Announce(1, 3, "cpu")
		if got, ok := (<-h.got).(gossip.Announcement); !ok || got.Sessions != 3 || got.Wants[0].Class != "cpu" {
			t.Errorf("announced: got %v, want 3 sessions and the class cpu", got)
		}
		r.Advertise("h100")
		time.Sleep(time.Minute)
		if p := <-table.Find(t.Context(), "h100", 1); p != r.ID() {
			t.Errorf("found %q, want %q", p, r.ID())
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
