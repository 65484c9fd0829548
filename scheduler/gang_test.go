package scheduler

// Gangs: their cost, and hosts that lie to them.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// gangHosts opens sessions with n hosts that have addresses of their own.
func (x *bench) gangHosts(n, cpus int) {
	for i := range n {
		p := job.Peer(fmt.Sprintf("g%d", i))
		x.step(step.SessionUp{Peer: p, Path: contract.Path{Local: "10.9.9.9", Remote: gangAddress(p)}}, step.FromWorker{Peer: p, Msg: contract.Hello{
			Profile: contract.Profile{Name: string(p), Store: "s", CPUs: cpus, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true},
			Free:    contract.Free{CPUs: cpus, Memory: benchMemory},
		}})
	}
}

func gangAddress(p job.Peer) string { return "10.0.0." + strings.TrimPrefix(string(p), "g") }

// commitTo is the Commit of an honest host.
func commitTo(to job.Peer, m contract.Offer) contract.Commit {
	c := contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}
	if m.Gang > 0 {
		c.Address, c.Port = gangAddress(to), 29500
	}
	return c
}

func gangSpec(nodes int) job.Spec {
	s := benchSpec(0)
	s.Nodes = nodes
	return s
}

// serveGangs answers all messages like honest hosts whose tasks end at once. It returns how many tasks were started.
func (x *bench) serveGangs() (started int) {
	for len(x.sent) > 0 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			switch m := o.Msg.(type) {
			case contract.Offer:
				x.step(step.FromWorker{Peer: o.To, Msg: commitTo(o.To, m)})
			case contract.Start:
				started++
				x.step(step.FromWorker{Peer: o.To, Msg: contract.Event{
					Attempt: m.Attempt, Group: 7, N: 1, State: job.Succeeded, Exit: &job.Exit{State: job.Succeeded, Started: true, Ended: x.now},
				}}, step.FromWorker{Peer: o.To, Msg: contract.Availability{Free: contract.Free{CPUs: 32, Memory: benchMemory}}})
			default:
			}
		}
	}
	return started
}

// BenchmarkGang is a gang from its submission to its end, by its size.
func BenchmarkGang(b *testing.B) {
	for _, n := range []int{2, 4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newBench(b, 0, 0)
			x.gangHosts(2*n, 32)
			x.sent = nil
			started := 0
			for b.Loop() {
				x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: gangSpec(n)}})
				started += x.serveGangs()
			}
			if started != n*b.N {
				b.Errorf("%d members of %d gangs were started, want %v", started, b.N, n*b.N)
			}
		})
	}
}

// gangOf returns the dispatch of a submitted gang, or nil.
func (x *bench) gangOf(id job.ID) *dispatch {
	e := x.core.entries.byID[id]
	if i, there := e.find(0); there {
		return e.tasks[i].dispatch
	}
	return nil
}

// submitGang submits a gang and returns its id.
func (x *bench) submitGang(t *testing.T, nodes int) (id job.ID) {
	t.Helper()
	before := len(x.core.entries.byID)
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: gangSpec(nodes)}})
	if len(x.core.entries.byID) != before+1 {
		t.Fatal("the gang was not accepted, want one job more")
	}
	for i, e := range x.core.entries.byID {
		if e.job.Gang() == nodes {
			id = i
		}
	}
	return id
}

// A host that commits or declines against the rules gets no Start, and does not keep the gang from starting on the
// honest hosts.
func TestHostThatLiesDoesNotStopAGang(t *testing.T) {
	for name, lie := range map[string]func(m contract.Offer) []contract.ToScheduler{
		"commits twice": func(m contract.Offer) []contract.ToScheduler {
			return []contract.ToScheduler{commitTo("g0", m), commitTo("g0", m)}
		},
		"commits to another rank": func(m contract.Offer) []contract.ToScheduler {
			c := commitTo("g0", m)
			c.Attempt.Task = (c.Attempt.Task + 1) % 2
			return []contract.ToScheduler{c}
		},
		"commits to another job": func(m contract.Offer) []contract.ToScheduler {
			c := commitTo("g0", m)
			c.Attempt.Job = job.NewID(7, 99)
			return []contract.ToScheduler{c}
		},
		"names the address of another host": func(m contract.Offer) []contract.ToScheduler {
			c := commitTo("g0", m)
			c.Address = gangAddress("g1")
			return []contract.ToScheduler{c}
		},
		"names no address": func(m contract.Offer) []contract.ToScheduler {
			c := commitTo("g0", m)
			c.Address = ""
			return []contract.ToScheduler{c}
		},
		"promises unasked": func(m contract.Offer) []contract.ToScheduler {
			c := commitTo("g0", m)
			c.Conditional = true
			return []contract.ToScheduler{c}
		},
		"takes each place back": func(m contract.Offer) []contract.ToScheduler {
			return []contract.ToScheduler{commitTo("g0", m), contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: job.ReasonResources}, Free: contract.Free{CPUs: 32, Memory: benchMemory}}}
		},
		"declines for ever": func(m contract.Offer) []contract.ToScheduler {
			return []contract.ToScheduler{contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: job.ReasonResources}, Free: contract.Free{CPUs: 32, Memory: benchMemory}}}
		},
		"says nothing": func(contract.Offer) []contract.ToScheduler { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, 0, 0)
			x.gangHosts(3, 1)
			x.sent = nil
			id := x.submitGang(t, 2)
			offers, starts := 0, map[job.Peer]int{}
			for end := x.now.Add(5 * time.Minute); x.now.Before(end) && len(starts) == 0; {
				sent := x.sent
				x.sent = nil
				for _, o := range sent {
					switch m := o.Msg.(type) {
					case contract.Offer:
						if o.To != "g0" {
							x.step(step.FromWorker{Peer: o.To, Msg: commitTo(o.To, m)})
							continue
						}
						offers++
						for _, answer := range lie(m) {
							x.step(step.FromWorker{Peer: "g0", Msg: answer})
						}
					case contract.Start:
						starts[o.To]++
					}
				}
				if len(x.sent) == 0 {
					wake := x.core.Wake()
					if wake.IsZero() {
						t.Fatal("the core has no timer, want one")
					}
					if wake.After(x.now) {
						x.now = wake
					}
					x.step()
				}
			}
			honest := name == "commits twice"
			if len(starts) != 2 || starts["g0"] > 0 != honest {
				t.Errorf("started: %v, with %d offers to the host, want 2 starts, and one at the host only if it is honest", starts, offers)
			}
			if offers > 12 {
				t.Errorf("the host got %d offers, want at most 12", offers)
			}
			if d := x.gangOf(id); d != nil {
				t.Errorf("the gang still gathers: %v", d.gangReason())
			}
			if n := len(x.core.offers.byID) + len(x.core.offers.due); n > 0 {
				t.Errorf("%d offers are left, want 0", n)
			}
		})
	}
}

// A waiting gang has one task in memory, whatever its size. A gang that has ended leaves nothing.
func TestWaitingGangHasOneTaskInMemory(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(64, 1)
	for range 100 {
		s := gangSpec(64)
		s.Array = "0-99"
		x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
	}
	n := 0
	for _, e := range x.core.entries.byID {
		n += len(e.tasks)
	}
	if n > 200 {
		t.Errorf("100 arrays of 100 gangs of 64 have %d tasks in memory, want at most 200", n)
	}
	x = newBench(t, 0, 0)
	x.gangHosts(8, 32)
	x.sent = nil
	s := gangSpec(4)
	s.Array = "0-19%3"
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
	if got := x.serveGangs(); got != 80 {
		t.Errorf("%d of 80 members were started, want 80", got)
	}
	for _, e := range x.core.entries.byID {
		if len(e.tasks) > 0 || e.active != 0 || e.shown != (job.Counts{}) || !e.job.Ended() {
			t.Errorf("%d tasks, %d active, shown %v, ended %v, want none, none and none, and a job that has ended", len(e.tasks), e.active, e.shown, e.job.Ended())
		}
	}
	if len(x.core.assigned.byNode) > 0 || len(x.core.offers.byID) > 0 {
		t.Errorf("%d hosts have tasks, %d offers are left, want none and none", len(x.core.assigned.byNode), len(x.core.offers.byID))
	}
}

// A host withdraws its commitment in the very step in which the record of the gang is committed. The whole gang is
// unassigned with one record, and starts later.
func TestGangIsUnassignedAsAWhole(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(2, 1)
	x.sent = nil
	id := x.submitGang(t, 2)
	var commits []step.Event
	var lost contract.Decline
	for _, o := range x.sent {
		if m, ok := o.Msg.(contract.Offer); ok {
			commits = append(commits, step.FromWorker{Peer: o.To, Msg: commitTo(o.To, m)})
			if o.To == "g0" {
				lost = contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: job.ReasonResources}}
			}
		}
	}
	assign := x.core.Step(x.now, commits...).Propose
	x.index++
	fx := x.core.Step(x.now, step.FromWorker{Peer: "g0", Msg: lost}, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: assign}})
	for _, n := range fx.Notices {
		if n.Kind == step.IllegalMove {
			t.Errorf("illegal move of %s: %s", n.Attempt, n.Detail)
		}
	}
	if len(fx.Propose) != 1 {
		t.Fatalf("proposes %+v, want 1 of them", fx.Propose)
	}
	if r, ok := fx.Propose[0].(job.UnassignGangRecord); !ok || r.Attempt.Job != id {
		t.Fatalf("proposes %+v, want an UnassignGangRecord of the job", fx.Propose[0])
	}
	x.index++
	x.sent = nil
	x.took(x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}}))
	if started := x.serveGangs(); started != 2 {
		t.Errorf("%d members were started, want 2", started)
	}
}

// Hosts order the gangs of an owner like the owner itself, including gangs accepted in one step and elements of arrays.
func TestHostsOrderGangsLikeTheirOwner(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(2, 32)
	x.sent = nil
	var submits []step.Event
	for range 20 {
		array := gangSpec(2)
		array.Array = "0-2"
		submits = append(submits, step.Submit{Token: 1, Submission: job.Submission{Spec: gangSpec(2)}}, step.Submit{Token: 1, Submission: job.Submission{Spec: array}})
	}
	x.step(submits...)
	all := map[job.ID]contract.Offer{}
	var ids []job.ID
	for len(x.sent) > 0 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			m, ok := o.Msg.(contract.Offer)
			if !ok {
				continue
			}
			before, seen := all[m.Attempt.Job]
			if seen && before.Order != m.Order {
				t.Errorf("%s has the order %d, and %s %d, want the same", before.Attempt, before.Order, m.Attempt, m.Order)
			}
			if !seen {
				ids = append(ids, m.Attempt.Job)
			}
			all[m.Attempt.Job] = m
		}
		x.step()
	}
	if len(ids) < 10 {
		t.Fatalf("%d jobs were offered, want at least 10", len(ids))
	}
	born := func(id job.ID) time.Time { return x.core.entries.byID[id].born }
	slices.SortFunc(ids, func(a, b job.ID) int { return born(a).Compare(born(b)) })
	for i, id := range ids[1:] {
		if a, b := all[ids[i]], all[id]; a.Order >= b.Order {
			t.Errorf("%s is older than %s, but their orders are %d and %d", a.Attempt.Job, b.Attempt.Job, a.Order, b.Order)
		}
	}
}
