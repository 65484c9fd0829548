package scheduler

// The forecasts of hosts for queued offers become the estimated start of a job, and part of its reason.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// queued submits a job that queues at the host w0, and returns its task and its offer.
func (x *bench) queued(t *testing.T, change func(*job.Spec)) (func() job.Task, contract.Offer) {
	t.Helper()
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{}})
	_, task := x.waits(t, change)
	for _, m := range x.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Wait > 0 {
			return task, o
		}
	}
	t.Fatalf("no offer queues: %+v, want an offer with a wait", x.sent)
	return nil, contract.Offer{}
}

func TestForecastBecomesTheEstimatedStart(t *testing.T) {
	for _, c := range []struct {
		name     string
		forecast contract.Forecast
		after    time.Duration
		start    time.Duration // from now; negative: no forecast
		text     string
	}{
		{"a start", contract.Forecast{Start: time.Hour}, time.Minute, 59 * time.Minute, "; starts within 59m0s on w0"},
		{"overdue", contract.Forecast{Start: time.Minute}, time.Hour, 0, "; a task on w0 runs past its time limit"},
		{"kept", contract.Forecast{Kept: 10 * time.Minute}, time.Minute, -1, "; w0 keeps what is free for it for 9m0s more; its start is unknown"},
		{"shared", contract.Forecast{Shared: 10 * time.Minute}, time.Minute, -1, "; w0 lets others have what is free for 9m0s more; its start is unknown"},
		{"nothing any more", contract.Forecast{}, time.Minute, -1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newBench(t, 1, 8)
			task, o := x.queued(t, func(s *job.Spec) {
				s.TimeLimit, s.Grace = job.Duration(30*time.Minute), job.Duration(5*time.Second)
			})
			if o.Limit != 30*time.Minute+5*time.Second {
				t.Errorf("the offer says a limit of %v, want %v", o.Limit, 30*time.Minute+5*time.Second)
			}
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Forecasts: []contract.Forecast{{Offer: o.ID, Start: 5 * time.Hour}, {Offer: o.ID + 1, Start: 1}}}})
			c.forecast.Offer = o.ID
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Forecasts: []contract.Forecast{c.forecast}}})
			x.now = x.now.Add(c.after)
			x.step()
			v, _ := x.core.View().Job(o.Attempt.Job)
			got := task()
			if c.start < 0 != v.Starts.IsZero() || c.start >= 0 && (v.Starts.Sub(x.now)-c.start).Abs() > time.Second {
				t.Errorf("starts %v; now it is %v, want the forecast, to a second", v.Starts, x.now)
			}
			if got.Reason.Word != job.ReasonResources || !strings.Contains(got.Reason.Detail, c.text) || c.text == "" && strings.Contains(got.Reason.Detail, ";") {
				t.Errorf("reason %s, want %q", got.Reason, c.text)
			}
			if why, err := x.core.View().Why(o.Attempt.Job); err != nil || !why.Starts.Equal(v.Starts) {
				t.Errorf("why: %v, %v, want the same start as in the view", why.Starts, err)
			}
		})
	}
}

// A host can forecast only the offers that queue there.
func TestForecastOfAnotherHostsOfferIsIgnored(t *testing.T) {
	x := newBench(t, 2, 8)
	x.step(step.FromWorker{Peer: "w1", Msg: contract.Availability{}})
	task, o := x.queued(t, func(*job.Spec) {})
	to := x.sent[len(x.sent)-1].To
	for _, m := range x.sent {
		if y, ok := m.Msg.(contract.Offer); ok && y.ID == o.ID {
			to = m.To
		}
	}
	other := map[job.Peer]job.Peer{"w0": "w1", "w1": "w0"}[to]
	x.step(step.FromWorker{Peer: other, Msg: contract.Availability{Forecasts: []contract.Forecast{{Offer: o.ID, Start: time.Hour}}}})
	if v, _ := x.core.View().Job(o.Attempt.Job); !v.Starts.IsZero() || strings.Contains(task().Reason.Detail, "starts") {
		t.Errorf("starts %v, by the forecast of %s for an offer to %s, want no estimate", v.Starts, other, to)
	}
}

// A gang starts when its last member gets a place: the estimate is the latest of the earliest forecasts that suffice.
func TestGangStartsWithItsLastMember(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(3, 8)
	for _, p := range []job.Peer{"g0", "g1", "g2"} {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	id, task := x.waits(t, func(s *job.Spec) { s.Nodes = 2 })
	offers := map[job.Peer]uint64{}
	for _, m := range x.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Gang == 2 {
			offers[m.To] = o.ID
		}
	}
	if len(offers) != 3 {
		t.Fatalf("offers %+v, want 3", x.sent)
	}
	says := func(p job.Peer, start time.Duration) {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{Forecasts: []contract.Forecast{{Offer: offers[p], Start: start}}}})
	}
	says("g0", time.Hour)
	if v, _ := x.core.View().Job(id); !v.Starts.IsZero() {
		t.Errorf("starts %v with a forecast of one of two hosts, want no estimate", v.Starts)
	}
	says("g1", 3*time.Hour)
	says("g2", 2*time.Hour)
	v, _ := x.core.View().Job(id)
	if d := v.Starts.Sub(x.now) - 2*time.Hour; d.Abs() > time.Second {
		t.Errorf("starts in %v, want 2 h", v.Starts.Sub(x.now))
	}
	if why := task().Reason; why.Word != job.ReasonGangWaiting || !strings.Contains(v.Reason.Detail, "; starts within 2h0m0s on g2, by") {
		t.Errorf(`reason %s, of the job %s, want Word %v and Detail "; starts within 2h0m0s on g2, by" in it`, why, v.Reason, job.ReasonGangWaiting)
	}
	says("g2", 0)
	if v, _ := x.core.View().Job(id); (v.Starts.Sub(x.now) - 3*time.Hour).Abs() > time.Second {
		t.Errorf("starts in %v, want 3 h", v.Starts.Sub(x.now))
	}
}
