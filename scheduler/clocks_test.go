package scheduler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

func TestHostTimesAreConvertedToTheOwnersClock(t *testing.T) {
	placed := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	now := placed.Add(10 * time.Minute)
	at := func(d time.Duration) time.Time { return placed.Add(d) }
	for name, c := range map[string]struct{ from, to, wantFrom, wantTo time.Time }{
		"right":                           {at(time.Minute), at(5 * time.Minute), at(time.Minute), at(5 * time.Minute)},
		"an hour ahead":                   {at(61 * time.Minute), at(65 * time.Minute), at(6 * time.Minute), now},
		"an hour behind":                  {at(-59 * time.Minute), at(-55 * time.Minute), placed, at(4 * time.Minute)},
		"still runs, ahead":               {at(61 * time.Minute), time.Time{}, now, time.Time{}},
		"still runs, behind":              {at(-59 * time.Minute), time.Time{}, placed, time.Time{}},
		"longer than since the placement": {at(-time.Hour), at(time.Hour), at(-110 * time.Minute), now},
		"never began":                     {time.Time{}, at(time.Hour), time.Time{}, now},
	} {
		if from, to := ByOwnClock(c.from, c.to, placed, now); !from.Equal(c.wantFrom) || !to.Equal(c.wantTo) {
			t.Errorf("%s: %s to %s, want %s to %s", name, from, to, c.wantFrom, c.wantTo)
		}
	}
}

// The clock of a host is wrong by an hour. Its task starts after the submission and not after now, and runs for as long
// as the host says.
func TestTimesOfAHostWithAWrongClockAreCorrected(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		x := newBench(t, 1, 8)
		_, task := x.waits(t, func(*job.Spec) {})
		o, _ := x.sent[len(x.sent)-1].Msg.(contract.Offer)
		submitted := x.now
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: 7, Session: 1}})
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{Attempt: o.Attempt, Group: 7, N: 1, State: job.Running, PID: 1, Began: x.now.Add(off)}})
		if got := task().Started; got.Before(submitted) || got.After(x.now) {
			t.Errorf("a clock %s off: started %s after the submission, %s before now, want between the submission and now", off, got.Sub(submitted), x.now.Sub(got))
		}
		began := x.now
		x.now = x.now.Add(time.Minute)
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{
			Attempt: o.Attempt, Group: 7, N: 2, State: job.Succeeded,
			Exit: &job.Exit{State: job.Succeeded, Started: true, Began: began.Add(off), Ended: x.now.Add(off)},
		}})
		got := task()
		if ran := got.Ended.Sub(got.Started); ran != x.now.Sub(began).Truncate(time.Microsecond) && ran < time.Minute-time.Second || got.Started.Before(submitted) || got.Ended.After(x.now) {
			t.Errorf("a clock %s off: ran for %s, started %s after the submission, ended %s before now, want the time that the host reports, between the submission and now", off, ran, got.Started.Sub(submitted), x.now.Sub(got.Ended))
		}
	}
}
