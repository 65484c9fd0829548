package scheduler

// What a host can cause by requests for renewals.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// renewing is a core with a host that runs many tasks.
func renewing(t testing.TB, tasks int) *bench {
	x := newBench(t, 0, 0)
	x.addHosts(1, tasks)
	for range tasks {
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
	}
	x.run()
	if n := len(x.core.assigned.byNode["w0"]); n != tasks {
		t.Fatalf("%d tasks run, want %v", n, tasks)
	}
	x.now = x.now.Add(time.Minute)
	return x
}

// A host with many tasks floods the owner with renewals that name none of them. Each renewal has a Query sent for each
// task, so only a few of them are handled.
func TestFloodOfRenewalsIsLimited(t *testing.T) {
	const tasks = 100
	x := renewing(t, tasks)
	mail := make([]step.Event, 4096) // as many as a host may have in the mailbox
	for i := range mail {
		mail[i] = step.FromWorker{Peer: "w0", Msg: contract.Renew{Group: 7, Store: "s", Session: 1}}
	}
	most := tasks * renewBurst
	for range 10 {
		if n := len(x.core.Step(x.now, mail...).Send); n == 0 || n > most {
			t.Fatalf("%d messages are sent, want %d at most", n, most)
		}
		x.now = x.now.Add(time.Second)
		most = tasks * (int(time.Second/renewGap) + 1) // and once more, as no answer comes
	}
	// A host that renews at the usual rate is still answered.
	x.now = x.now.Add(renewBurst * renewGap)
	var live []job.Attempt
	for _, task := range x.core.assigned.at("w0") {
		live = append(live, task.attempt())
	}
	answered := func(fx step.Effects) bool {
		for _, o := range fx.Send {
			if m, ok := o.Msg.(contract.Renewed); ok && m.Clock == 5 && len(m.Verdicts) == tasks {
				return true
			}
		}
		return false
	}
	for x.core.renewals.round != 0 { // the round of the flood
		x.core.Step(x.now, step.ReadDone{Token: x.core.renewals.round, Epoch: job.Epoch{Term: 1}})
	}
	fx := x.core.Step(x.now, step.FromWorker{Peer: "w0", Msg: contract.Renew{Group: 7, Store: "s", Session: 1, Clock: 5, Live: live}})
	for range maxRenewals {
		if answered(fx) {
			return
		}
		fx = x.core.Step(x.now, step.ReadDone{Token: x.core.renewals.round, Epoch: job.Epoch{Term: 1}})
	}
	t.Error("no answer, want one")
}
