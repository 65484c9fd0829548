package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/logtest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/p2ptest"
	"github.com/musterhq/muster/p2p/session"
)

// twoRouters returns the routers of two daemons that have only sessions, and the log of both.
func twoRouters(t *testing.T) (*router, *router, *logtest.Buffer) {
	nw := p2ptest.New(t, 2, p2ptest.Options{})
	nw.Connect(1, 0)
	text := &logtest.Buffer{}
	log := slog.New(slog.NewTextHandler(text, nil))
	var both []*router
	for _, h := range nw.Hosts {
		b := &router{
			self: h.Peer(), onSession: func(job.Peer) {}, departed: newDeparted(),
			defects: newDefects(log), log: log,
		}
		var err error
		if b.sessions, err = session.New(session.DefaultConfig(), guarded{h.Libp2p(), h}, b, log); err != nil {
			t.Fatal(err)
		}
		b.wants = newWantedSessions(b.self, b.sessions, log)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- b.sessions.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		both = append(both, b)
	}
	return both[0], both[1], text
}

func count(t *testing.T, d *defects) (total float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(d.counter); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue()
		}
	}
	return total
}

// A message that is out of bounds is a defect of this daemon: the sender gets an error, and the log says so.
func TestRefusedMessageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, text := twoRouters(t)
		toWorkers{a, forScheduler}.Want(b.self)
		pass(time.Second)
		id := job.NewID(7, 1)
		old := contract.Offer{ID: 1, Attempt: job.Attempt{Job: id, N: 1}, Group: 7, Age: -time.Second} // as after a clock was set back
		if err := (toWorkers{a, forScheduler}).Send(b.self, old); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("the scheduler gets %v, want session.ErrInvalid", err)
		}
		if got := text.Lines("level=ERROR"); len(got) != 1 || !strings.Contains(got[0], "a defect of this daemon") || !strings.Contains(got[0], "message=Offer") ||
			!strings.Contains(got[0], string(id)) || !strings.Contains(got[0], "peer="+string(b.self)) {
			t.Fatalf("log: got %q, want one line with the message, the job and the peer", got)
		}
		for range 1000 { // the same defect is not logged again
			_ = toWorkers{a, forScheduler}.Send(b.self, old)
		}
		if err := (toSchedulers{a}).Send(b.self, contract.Stale{Owner: "no peer!"}); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("the worker gets %v, want session.ErrInvalid", err)
		}
		if got := text.Lines("level=ERROR"); len(got) != 2 || !strings.Contains(got[1], "message=Stale") {
			t.Errorf("log: got %q, want a second line for Stale", got)
		}
		pass(2 * defectsEvery)
		_ = toWorkers{a, forScheduler}.Send(b.self, old)
		if got := text.Lines("level=ERROR"); len(got) != 3 || !strings.Contains(got[2], "count=1001") {
			t.Errorf("log after a while: got %q, want the count 1001", got)
		}
		if n := count(t, a.defects); n != 1003 {
			t.Errorf("defects: got %g, want 1003", n)
		}
		if b.sessions.Peers() == nil {
			t.Error("the peer lost its session over a message that it never received")
		}
		before := len(text.Lines("level=ERROR"))
		if err := (toWorkers{a, forScheduler}).Send("nobody", old); !errors.Is(err, session.ErrNoSession) || len(text.Lines("level=ERROR")) != before {
			t.Errorf("without a session: got %v and %d lines, want ErrNoSession and none", err, len(text.Lines("level=ERROR"))-before)
		}
	})
}

// Two parts of a daemon want a session; it is given up after the second Unwant.
func TestRouterGivesUpUnwantedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := twoRouters(t)
		toWorkers{a, forScheduler}.Want(b.self)
		toSchedulers{a}.Want(b.self)
		toSchedulers{a}.Want(a.self)
		pass(time.Second)
		toWorkers{a, forScheduler}.Unwant(b.self)
		pass(time.Hour)
		if len(a.sessions.Peers()) != 1 {
			t.Error("the session was given up although the worker wants it")
		}
		toSchedulers{a}.Unwant(b.self)
		pass(time.Hour)
		if len(a.sessions.Peers()) != 0 {
			t.Error("the session is kept although nobody wants it")
		}
		if _, left := b.departed.when(a.self); left {
			t.Error("the peer is treated as a daemon that stopped")
		}
	})
}
