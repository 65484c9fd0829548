package scheduler

// For which waiting tasks hosts keep what is free, and how many hosts do so.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

// allBusy is a bench with full hosts and so many jobs that wait for whole hosts.
func allBusy(t *testing.T, hosts, jobs int) *bench {
	x := newBench(t, hosts, 8)
	for p := range x.core.hosts.workers {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	for range jobs {
		x.waits(t, func(s *job.Spec) { s.Resources.CPUs = 8 })
	}
	return x
}

// lasts lets time pass in steps of a second.
func (x *bench) lasts(d time.Duration) {
	for end := x.now.Add(d); x.now.Before(end); {
		x.now = x.now.Add(time.Second)
		x.step()
	}
}

// keepingHosts returns how many hosts are told to keep something, by the newest message about each queued offer, and the
// indices of the jobs for which they do, by age.
func (x *bench) keepingHosts(t *testing.T) (hosts int, jobs []int) {
	told := map[uint64]bool{}
	for _, m := range x.sent {
		if o, ok := m.Msg.(contract.Offer); ok {
			told[o.ID] = !o.Spare
		}
	}
	at := map[job.Peer]bool{}
	for i, j := range x.core.entries.table.Jobs() {
		d := x.core.entries.byID[j.ID].task(0).dispatch
		if d == nil {
			continue
		}
		n := 0
		for _, o := range d.offers {
			if told[o.id] != o.keeps {
				t.Errorf("job %d: its host was told %v, want %v", i, told[o.id], o.keeps)
			}
			if o.keeps {
				n++
				at[o.worker.Peer] = true
			}
		}
		if n > 0 {
			jobs = append(jobs, i)
		}
	}
	if len(at) != len(x.core.offers.kept) {
		t.Errorf("%d hosts keep something, want %d as counted", len(at), len(x.core.offers.kept))
	}
	return len(at), jobs
}

// However many tasks wait at however many hosts, four hosts keep what is free for them, or one in eight if that is
// more. They keep it for the oldest tasks.
func TestFewHostsKeepWhatIsFree(t *testing.T) {
	for _, c := range []struct{ hosts, jobs, want int }{{1, 5, 1}, {3, 9, 3}, {7, 30, 4}, {24, 60, 4}, {64, 100, 8}} {
		x := allBusy(t, c.hosts, c.jobs)
		for range 4 {
			hosts, jobs := x.keepingHosts(t)
			if hosts != c.want || jobs[0] != 0 {
				t.Errorf("%d hosts, %d jobs: %d hosts keep what is free, for jobs %v, want %v and [0] 0", c.hosts, c.jobs, hosts, jobs, c.want)
			}
			x.lasts(10 * time.Minute) // meanwhile the jobs queue at more hosts
		}
	}
}

// When a task for which hosts keep something starts, they keep it for the next one by age within seconds, even if
// younger tasks came since.
func TestHostsKeepForTheNextTaskAfterAStart(t *testing.T) {
	x := allBusy(t, 8, 20)
	for i := range 6 {
		_, jobs := x.keepingHosts(t)
		if len(jobs) == 0 || jobs[0] != i {
			t.Fatalf("jobs %v stand, want %d first", jobs, i)
		}
		for _, o := range x.core.entries.byID[x.core.entries.table.Jobs()[i].ID].task(0).dispatch.offers {
			if o.keeps {
				x.step(step.FromWorker{Peer: o.worker.Peer, Msg: contract.Commit{
					Offer: o.id, Attempt: job.Attempt{Job: o.dispatch.task.e.job.ID, N: 1}, Group: 7, Session: 1,
				}})
				break
			}
		}
		x.waits(t, func(s *job.Spec) { s.Resources.CPUs = 8 })
		x.lasts(setAsideEvery + time.Second)
	}
}

// A host may never get free capacity. So more hosts keep what is free for a task that has waited for very long.
func TestMoreHostsKeepForATaskThatWaitsLong(t *testing.T) {
	x := allBusy(t, 8, 1)
	x.lasts(10 * time.Minute) // the job queues at more and more hosts
	for _, want := range []int{4, 5, 6, 6, 7} {
		if hosts, _ := x.keepingHosts(t); hosts != want {
			t.Errorf("%d hosts keep what is free, want %d", hosts, want)
		}
		for end := x.now.Add(setAsideWait); x.now.Before(end); {
			x.now = x.now.Add(30 * time.Second)
			for _, w := range x.core.hosts.fleet.Sorted() { // so that it counts as alive
				x.step(step.FromWorker{Peer: w.Peer, Msg: contract.Availability{}})
			}
		}
	}
}

// What stays free for a while at a host that keeps nothing is for any task, although older tasks queue there that need
// more. Tasks that queue there come first. A host that keeps what is free goes on keeping it.
func TestCapacityThatStaysFreeIsOfferedToAnyTask(t *testing.T) {
	x := allBusy(t, 8, 40)
	kept, spare := 0, 0
	for _, w := range x.core.hosts.fleet.Sorted() {
		x.step(step.FromWorker{Peer: w.Peer, Msg: contract.Availability{Free: contract.Free{CPUs: 1, Memory: benchMemory}}})
		if x.core.hosts.fleet.Host(w.Peer).LeftFor(&fleet.Rank{Job: "z"}).CPUs != 0 {
			t.Errorf("%s: what is free is offered to any task at once, want it kept at first", w.Name())
		}
		x.lasts(idleAfter + 2*setAsideEvery)
		x.sent = nil
		x.waits(t, func(s *job.Spec) { s.Resources.CPUs, s.NodeList = 1, []string{w.Name()} })
		o, ok := x.sent[len(x.sent)-1].Msg.(contract.Offer)
		if !ok {
			t.Fatalf("sent %+v, want one offer", x.sent)
		}
		keeps := x.core.offers.kept[x.core.hosts.workers[w.Peer]] > 0
		if direct := o.Wait == directWait; direct == keeps {
			t.Errorf("%s keeps what is free: %v, the offer is to be answered at once: %v, want an answer at once only where nothing is kept", w.Name(), keeps, direct)
		}
		if keeps {
			kept++
		} else {
			spare++
		}
	}
	if kept != 4 || spare != 4 {
		t.Errorf("%d hosts keep what is free, %d do not, want 4 and 4", kept, spare)
	}
}

// The choice for which tasks hosts keep something looks at a few tasks now and then, however many wait.
func TestChoiceOfTasksToKeepForIsBounded(t *testing.T) {
	x := allBusy(t, 64, 400)
	if n := len(x.core.dispatches.setAsides.ranksFirst(8 + reviewMost)); n > 8+reviewMost {
		t.Errorf("%d tasks were looked at, want at most %v", n, 8+reviewMost)
	}
	x.lasts(time.Minute)
	if hosts, _ := x.keepingHosts(t); hosts != 8 {
		t.Errorf("%d hosts keep what is free, want 8", hosts)
	}
}

// Hosts keep what is free for a task with a higher priority in place of one with a lower, and then for that one again.
func TestHostsKeepForTheHigherPriority(t *testing.T) {
	x := allBusy(t, 8, 3)
	id, _ := x.waits(t, func(s *job.Spec) { s.Resources.CPUs, s.Priority = 8, 60 })
	x.lasts(setAsideEvery + time.Second)
	if hosts, jobs := x.keepingHosts(t); hosts == 0 || jobs[len(jobs)-1] != 3 {
		t.Errorf("hosts keep for the jobs %v, at %d hosts, want job 3 among them", jobs, hosts)
	}
	x.tok++
	x.step(step.Cancel{Token: x.tok, Job: id})
	x.lasts(setAsideEvery + time.Second)
	if hosts, jobs := x.keepingHosts(t); hosts == 0 || jobs[0] != 0 {
		t.Errorf("then hosts keep for the jobs %v, at %d hosts, want job 0 first", jobs, hosts)
	}
}
