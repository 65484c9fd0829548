package worker_test

// Conditional Commits of gangs: which tasks are promised, and when they end.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

// asks offers a member of a gang that may preempt.
func (f *filled) asks(number uint64, priority, devices int) lease.Offer {
	m := member(number, 1, gpus(devices))
	m.Priority, m.Preempt = priority, true
	return m
}

// A conditional Commit ends no task. Firm ends those that are needed then, and the Commit follows when they have ended.
func TestConditionalCommit(t *testing.T) {
	f := newFilled(t, 3)
	_, young, third := f.run(50, 1, true), f.run(50, 1, true), f.run(50, 1, true)
	m := f.asks(500, 90, 2)
	if e := f.says(amy, m); len(e.Stop) > 0 {
		t.Fatalf("stops %+v", e.Stop)
	}
	if c := one[lease.Commit](f.host, amy); !c.Conditional || c.Offer != m.ID || c.Session == 0 {
		t.Fatalf("commit %+v", c)
	}
	// Nobody else ends what is promised, and what a victim frees by itself is kept.
	if ended := f.ask(80, 2); len(ended) > 0 {
		t.Fatalf("%v end for another offer", ended)
	}
	f.round(exited(third, 0))
	f.says(amy, offer(900, attempt(900, 1), gpus(1)))
	if cs := got[lease.Commit](f.host, amy); len(cs) > 0 {
		t.Fatalf("commits %+v", cs)
	}
	m.Firm = true
	e := f.says(amy, m)
	if len(e.Stop) != 1 || e.Stop[0].Attempt != young {
		t.Fatalf("stops %+v, want %s", e.Stop, young)
	}
	if e := f.says(amy, m); len(e.Stop) > 0 || len(got[lease.Commit](f.host, amy)) > 0 {
		t.Fatalf("again: stops %+v", e.Stop)
	}
	f.round(worker.DriverEvent{Attempt: young, Kind: worker.DriverExited, Exit: job.Exit{State: job.Failed, Code: 143, Signal: 15}})
	if c := one[lease.Commit](f.host, amy); c.Conditional || c.Offer != m.ID || len(c.Devices) != 2 {
		t.Fatalf("commit %+v", c)
	}
	// Once firm, nobody takes the place, and it can be started.
	f.says(amy, f.asks(1, 95, 3))
	for _, d := range got[lease.Decline](f.host, amy) {
		if d.Offer == m.ID {
			t.Fatalf("decline %+v", d)
		}
	}
	s := startOf(m, lease.Commit{Session: f.session})
	s.Gang.Members[1].Node = "me"
	if e := f.says(amy, s); len(e.Start) != 1 {
		t.Fatal("not started")
	}

}

// A conditional Commit that is released, runs out or loses its session leaves the tasks alone, and others may have them.
func TestConditionalCommitEnds(t *testing.T) {
	for name, end := range map[string]func(*filled, lease.Offer){
		"released":     func(f *filled, m lease.Offer) { f.says(amy, lease.Release{Offer: m.ID}) },
		"runs out":     func(f *filled, _ lease.Offer) { f.pass(2 * time.Minute) },
		"disconnected": func(f *filled, _ lease.Offer) { f.round(worker.Down{Peer: amy}, worker.Up{Peer: amy}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilled(t, 1)
			low := f.run(50, 1, true)
			m := f.asks(500, 90, 1)
			f.says(amy, m)
			one[lease.Commit](f.host, amy)
			end(f, m)
			m.Firm = true
			if e := f.says(amy, m); len(e.Stop) > 0 {
				t.Fatalf("an offer that is not known any more ends %+v", e.Stop)
			}
			if ds := got[lease.Decline](f.host, amy); len(ds) == 0 {
				t.Error("not declined")
			}
			if ended := f.ask(80, 1); !slices.Equal(ended, []job.Attempt{low}) {
				t.Errorf("%v end for another offer", ended)
			}
		})
	}
}

// If all victims end by themselves, the Commit follows without Firm.
func TestVictimsEndByThemselves(t *testing.T) {
	f := newFilled(t, 2)
	first, second := f.run(50, 1, true), f.run(50, 1, true)
	m := f.asks(500, 90, 2)
	f.says(amy, m)
	one[lease.Commit](f.host, amy)
	f.round(exited(first, 0))
	if cs := got[lease.Commit](f.host, amy); len(cs) > 0 {
		t.Fatalf("commits %+v", cs)
	}
	f.round(exited(second, 0))
	if c := one[lease.Commit](f.host, amy); c.Conditional || len(c.Devices) != 2 {
		t.Errorf("commit %+v", c)
	}
}

// A gang that goes first takes the tasks that were promised to another; that one is told. It also takes a reservation,
// if both together are enough.
func TestPromiseIsTaken(t *testing.T) {
	f := newFilled(t, 2)
	low := f.run(50, 1, true)
	held := member(700, 2, gpus(1))
	f.says(amy, held)
	one[lease.Commit](f.host, amy)
	promised := f.asks(600, 90, 1)
	promised.Order = 701 // its reservation cannot be revoked by it
	promised.Priority = 90
	held.Priority = 50
	f.says(amy, promised)
	c := one[lease.Commit](f.host, amy)
	if c.Conditional {
		t.Fatalf("commit %+v, although a reservation of a lower priority can be revoked", c)
	}
	one[lease.Decline](f.host, amy)
	first := f.asks(500, 95, 2)
	if e := f.says(amy, first); len(e.Stop) > 0 {
		t.Fatalf("stops %+v", e.Stop)
	}
	if c := one[lease.Commit](f.host, amy); !c.Conditional || c.Offer != first.ID {
		t.Fatalf("commit %+v", c)
	}
	if d := one[lease.Decline](f.host, amy); d.Offer != promised.ID {
		t.Fatalf("decline %+v", d)
	}
	second := f.asks(400, 99, 2)
	f.says(amy, second)
	if d := one[lease.Decline](f.host, amy); d.Offer != first.ID {
		t.Fatalf("decline %+v", d)
	}
	one[lease.Commit](f.host, amy)
	second.Firm = true
	if e := f.says(amy, second); len(e.Stop) != 1 || e.Stop[0].Attempt != low {
		t.Fatalf("stops %+v", e.Stop)
	}
}

// Without enough tasks to end, the offer of a gang is declined, and nothing is promised.
func TestPromiseThatCannotBeMade(t *testing.T) {
	f := newFilled(t, 2)
	f.run(50, 1, true)
	f.run(50, 1, false)
	f.says(amy, f.asks(500, 90, 2))
	if d := one[lease.Decline](f.host, amy); !strings.Contains(d.Reason.Detail, "would make room") {
		t.Errorf("decline %+v", d)
	}
}
