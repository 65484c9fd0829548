package scheduler

// Hosts that commit without a live lease.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// leaselessHost is a core with a full host at which so many tasks queue. The host has no lease: its renewals are
// answered, but the answers are not valid there.
func leaselessHost(t *testing.T, queued int) (x *bench, offers []contract.Offer) {
	x = newBench(t, 0, 0)
	x.step(step.SessionUp{Peer: "w0"}, step.FromWorker{Peer: "w0", Msg: contract.Hello{
		Profile: contract.Profile{Name: "w0", Store: "s", CPUs: 64, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true},
	}})
	for range queued {
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
	}
	for _, o := range x.sent {
		if m, ok := o.Msg.(contract.Offer); ok {
			offers = append(offers, m)
		}
	}
	if len(offers) != queued {
		t.Fatalf("%d offers, want %d", len(offers), queued)
	}
	x.sent = nil
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Renew{Group: 7, Store: "s", Session: 1}})
	x.step(step.ReadDone{Token: x.core.renewals.round, Epoch: x.core.renewals.Epoch})
	return x, offers
}

// The answer to a renewal crosses the Commits of many offers, and is not valid at the host. Each of these tasks is
// offered there once more, and again after the answer to the next renewal, but not with each later Commit.
func TestCommitWithoutALeaseIsOfferedOnceMore(t *testing.T) {
	const queued = 8
	x, old := leaselessHost(t, queued)
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 64, Memory: benchMemory}}})
	times := map[string]int{}
	refuse := func(m contract.Offer) {
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7}})
	}
	for _, m := range old {
		refuse(m)
		for len(x.sent) > 0 {
			sent := x.sent
			x.sent = nil
			for _, o := range sent {
				if m, ok := o.Msg.(contract.Offer); ok {
					times[m.Attempt.String()]++
					refuse(m)
				}
			}
		}
	}
	total := 0
	for a, n := range times {
		if total += n; n > 1 {
			t.Errorf("%s was offered %d times more, want at most 1", a, n)
		}
	}
	if total == 0 {
		t.Fatal("nothing was offered once more, want an offer")
	}
	x.now = x.now.Add(time.Second)
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Renew{Group: 7, Store: "s", Session: 2}})
	x.step(step.ReadDone{Token: x.core.renewals.round, Epoch: x.core.renewals.Epoch})
	x.run()
	if n := len(x.core.assigned.byNode["w0"]); n != queued {
		t.Errorf("%d tasks run after the next renewal, want %d", n, queued)
	}
}
