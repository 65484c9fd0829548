package daemon

// The addresses of a session on their way to the worker.

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/logtest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/loop"
)

// hearing is the end of a session at a daemon that only listens.
type hearing struct {
	up      chan session.Info
	commits chan contract.Commit
}

func (h hearing) Up(_ job.Peer, info session.Info)        { h.up <- info }
func (hearing) Measured(job.Peer, time.Duration)          {}
func (hearing) Down(job.Peer, error)                      {}
func (hearing) FromScheduler(job.Peer, contract.ToWorker) {}
func (h hearing) FromWorker(_ job.Peer, m contract.ToScheduler) {
	if c, ok := m.(contract.Commit); ok {
		h.commits <- c
	}
}

// A worker sends the address at which the scheduler's host reaches its own host: the address that this host sees, too.
func TestCommitHasTheAddressOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{})
		nw.Connect(1, 0)
		log := slog.New(slog.NewTextHandler(&logtest.Buffer{}, nil))
		from, at := nw.Hosts[0], nw.Hosts[1]
		heard := hearing{make(chan session.Info, 1), make(chan contract.Commit, 1)}
		sessions, err := session.New(session.DefaultConfig(), guarded{from.Libp2p(), from}, heard, log)
		if err != nil {
			t.Fatal(err)
		}
		b := &router{
			self: at.Peer(), onSession: func(job.Peer) {}, departed: newDeparted(), may: func(job.Peer, p2p.Roles) bool { return true },
			defects: newDefects(log), log: log,
		}
		if b.sessions, err = session.New(session.DefaultConfig(), guarded{at.Libp2p(), at}, b, log); err != nil {
			t.Fatal(err)
		}
		b.wants = newWantedSessions(b.self, b.sessions, log)
		driver := &instant{}
		wc := worker.DefaultConfig()
		wc.Profile, wc.Boot = contract.Profile{Peer: b.self, Name: "b", Store: "s", CPUs: 8, Worker: true}, "boot"
		b.work, err = loop.New(wc, loop.Parts{
			Ledger: memoryLedger{7: from.Peer()}, Sender: toSchedulers{b}, Driver: driver, Adopter: driver,
			PortFree: func(port int) bool { return port%7 == 0 },
			Clocks: func() leaseclock.Moment {
				return leaseclock.Moment{Boot: leaseclock.BootTime(time.Now().UnixNano()), Wall: time.Now()}
			},
		}, log)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() {
			done <- runAll(ctx, time.Minute, log, []part{{"sessions", sessions.Run}, {"answers", b.sessions.Run}, {"worker", b.work.Run}})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		sessions.Want(b.self)
		pass(time.Second)
		info := <-heard.up
		m := contract.Offer{
			ID: 1, Attempt: job.Attempt{Job: job.NewID(7, 1), N: 1}, Group: 7, Epoch: job.Epoch{Generation: 1, Term: 1},
			Need: job.Resources{CPUs: 1}, User: "ada", Gang: 2, Hold: time.Minute,
		}
		if err := sessions.Send(b.self, m); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if c := <-heard.commits; c.Address == "" || c.Address != info.Path.Remote || c.Address == info.Path.Local || c.Port == 0 || c.Port%7 != 0 {
			t.Errorf("got commit %+v over the path %+v, want the remote address of the path", c, info.Path)
		}
	})
}
