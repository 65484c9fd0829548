package scheduler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// A copy of this daemon has led its jobs. The hosts know the epoch of the copy and ignore messages with the lower epoch
// of this one. So this daemon leads again with a higher epoch. A host that names ever higher epochs achieves little.
func TestOwnerLeadsAgainBeyondTheEpochOfItsCopy(t *testing.T) {
	x := renewing(t, 1)
	hears := func(m contract.Stale) step.Effects {
		t.Helper()
		return x.core.Step(x.now, step.FromWorker{Peer: "w0", Msg: m})
	}
	self, of := x.core.turn.Config.Self, func(n uint64) job.Epoch { return job.Epoch{Generation: x.core.turn.Epoch.Generation, Term: n} }
	has := func(fx step.Effects, kind step.Kind) (n int) {
		for _, t := range fx.Notices {
			if t.Kind == kind {
				n++
			}
		}
		return n
	}
	for what, m := range map[string]contract.Stale{
		"an epoch of this one": {Group: x.core.turn.Config.Group, Owner: self, Epoch: x.core.turn.Epoch},
		"another owner":        {Group: x.core.turn.Config.Group, Owner: "w9", Epoch: of(9)},
		"another generation":   {Group: x.core.turn.Config.Group, Owner: self, Epoch: job.Epoch{Generation: x.core.turn.Epoch.Generation + 1, Term: 9}},
		"another group":        {Group: x.core.turn.Config.Group + 1, Owner: self, Epoch: of(9)},
	} {
		if fx := hears(m); fx.Raise != (job.Epoch{}) {
			t.Errorf("%s: an epoch beyond %s is wanted", what, fx.Raise)
		}
	}
	m := contract.Stale{Group: x.core.turn.Config.Group, Owner: self, Epoch: of(9)}
	if fx := hears(m); fx.Raise != m.Epoch || has(fx, step.CopyHasLed) != 1 || has(fx, step.NewerOwner) != 0 {
		t.Fatalf("raise %s, notices %+v, want the epoch raised, one CopyHasLed and no NewerOwner", fx.Raise, fx.Notices)
	}
	x.core.Step(x.now, step.Deposed{Epoch: x.core.turn.Epoch})
	x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.core.Applied() + 1, Epoch: of(10), Lead: true}})
	if fx := hears(m); fx.Raise != (job.Epoch{}) {
		t.Error("a late Stale raises the epoch, want it ignored")
	}
	raised := 0
	for range 24 * 60 {
		x.now = x.now.Add(time.Minute)
		if fx := hears(contract.Stale{Group: x.core.turn.Config.Group, Owner: self, Epoch: of(x.core.turn.Epoch.Term + 5)}); fx.Raise != (job.Epoch{}) {
			raised++
		}
	}
	if raised == 0 || raised > 11 {
		t.Errorf("in a day %d epochs were taken because a host named one, want 1 to 11", raised)
	}
}
