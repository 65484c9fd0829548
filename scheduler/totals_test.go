package scheduler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// count returns the number of durations, and their sum.
func durationsOf(d *step.Durations) (n int, sum time.Duration) {
	for _, c := range d.Counts {
		n += int(c)
	}
	return n, d.Sum.Round(time.Second)
}

func endedOf(t *step.Totals) (n uint64) {
	for _, of := range t.Ended {
		n += of
	}
	return n
}

// bucketOf returns the bound of the only duration, or 0 if there are others.
func bucketOf(d *step.Durations) float64 {
	for i, c := range d.Counts {
		if c == 1 && i < len(step.Bounds) {
			return step.Bounds[i]
		}
	}
	return 0
}

// A task is declined, waits for 40 s, and then runs. Each of these is counted once, even if the host repeats its
// messages.
func TestTotalsCountEachEventOnce(t *testing.T) {
	x := newBench(t, 1, 32)
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
	declined := x.pass(40*time.Second, job.ReasonQuota)
	for range 100 {
		if len(x.sent) > 0 {
			break
		}
		x.now = x.core.Wake()
		x.step()
	}
	waited := x.now.Sub(storyStart)
	x.run()
	var a job.Attempt
	for _, e := range x.core.entries.byID {
		a = e.tasks[0].attempt()
	}
	for range 5 { // the host repeats that it starts and runs
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{Attempt: a, Group: 7, N: 2, State: job.Starting}})
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{Attempt: a, Group: 7, N: 3, State: job.Running}})
	}
	end := contract.Event{Attempt: a, Group: 7, N: 9, State: job.Failed, Exit: &job.Exit{State: job.Failed, Code: 1, Started: true, Ended: x.now}}
	for range 3 {
		x.step(step.FromWorker{Peer: "w0", Msg: end})
	}
	got := x.core.turn.Totals.Clone()
	if declined < 1 || got.Offers[step.OfferDeclined] != uint64(declined) || got.Offers[step.OfferCommitted] != 1 {
		t.Errorf("offers %v, of which %d were declined, want at least 1, [OfferDeclined] %v and [OfferCommitted] 1", got.Offers, declined, uint64(declined))
	}
	if got.Ended[job.Failed] != 1 || endedOf(&got) != 1 {
		t.Errorf("ended: %v, want one FAILED", got.Ended)
	}
	for name, d := range map[string]*step.Durations{"waited": &got.Queued, "started": &got.Started} {
		if n, sum := durationsOf(d); n != 1 || sum != waited.Round(time.Second) || bucketOf(d) < waited.Seconds() {
			t.Errorf("%s: %d, %s in the bucket of %gs, want one of %s", name, n, sum, bucketOf(d), waited)
		}
	}
	if x.core.turn.Totals.Clone().Offers[step.OfferCommitted] = 5; x.core.turn.Totals.Offers[step.OfferCommitted] != 1 {
		t.Error("a change of the copy changes the totals")
	}
}

// Each offer has one result, whatever becomes of it: the results add up to the number of sent offers.
func TestEachOfferHasOneResult(t *testing.T) {
	x := newBench(t, 3, 1)
	sent := map[uint64]bool{}
	look := func() {
		for _, o := range x.sent {
			if m, ok := o.Msg.(contract.Offer); ok {
				sent[m.ID] = true
			}
		}
	}
	for i := range 8 {
		x.step(step.Submit{Token: step.Token(i + 1), Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
		look()
	}
	for range 50 { // some are answered, some never, and the others are withdrawn with their jobs
		x.serve()
		look()
		if wake := x.core.Wake(); !wake.IsZero() {
			x.now = wake
		}
		x.step()
		look()
	}
	for _, e := range x.core.entries.byID {
		x.step(step.Cancel{Token: 99, Job: e.job.ID})
		look()
	}
	sum := uint64(0)
	for _, n := range x.core.turn.Totals.Offers {
		sum += n
	}
	if open := len(x.core.offers.byID); open > 0 || sum != uint64(len(sent)) || sum < 8 {
		t.Errorf("%d offers were sent, %d are open, and %d have a result: %v, want 0, %v and at least 8", len(sent), open, sum, x.core.turn.Totals.Offers, uint64(len(sent)))
	}
}

// After a restart of the daemon the totals start at zero, and what goes on is not counted as new.
func TestTotalsRestartAtZero(t *testing.T) {
	x := newBench(t, 1, 32)
	x.keep = true
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
	x.run()
	if n, _ := durationsOf(&x.core.turn.Totals.Started); n != 1 {
		t.Fatalf("%d starts before the restart, want 1", n)
	}
	saved := Saved{Applied: x.index}
	for _, r := range x.rows {
		if err := saved.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := saved.End(); err != nil {
		t.Fatal(err)
	}
	var a job.Attempt
	for _, e := range x.core.entries.byID {
		a = e.tasks[0].attempt()
	}
	cfg := x.core.turn.Config
	again := &bench{core: NewCore(cfg, saved, x.now.Add(time.Hour)), now: x.now.Add(time.Hour), index: x.index}
	again.index++
	again.step(step.Committed{Committed: job.Committed{Index: again.index, Epoch: job.Epoch{Term: 2}, Lead: true}})
	again.addHosts(1, 32)
	again.step(step.FromWorker{Peer: "w0", Msg: contract.Event{Attempt: a, Group: 7, N: 1, State: job.Running, Began: x.now}})
	got := again.core.turn.Totals.Clone()
	if started, _ := durationsOf(&got.Started); started != 0 || endedOf(&got) != 0 {
		t.Errorf("%d starts, ended %v, want 0 and none", started, got.Ended)
	}
}
