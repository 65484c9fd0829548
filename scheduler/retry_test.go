package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// A new owner applies the back-off to tasks that failed of late, and avoids the hosts where they failed. The other
// tasks of the job do not wait for them.
func TestNewOwnerContinuesBackOffs(t *testing.T) {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "here", 7, 1
	id, spec := job.NewID(7, 1), job.DefaultSpec()
	spec.Command, spec.Array, spec.Retries = []string{"true"}, "0-9", 3
	records := []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: storyStart, Tasks: 10}}
	for _, index := range []int{0, 1, 5} {
		a := job.Attempt{Job: id, Task: index, N: 1}
		exit := job.Exit{State: job.Failed, Code: 1, Started: true, Began: storyStart, Ended: storyStart}
		records = append(records, job.AssignRecord{Attempt: a, Node: "n1", NodeName: "n1", Store: "s"}, job.ResultRecord{Attempt: a, Exit: exit, At: storyStart})
	}
	entry := step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Records: records}}
	for _, from := range []string{"journal", "rows"} {
		c := NewCore(cfg, Saved{}, storyStart)
		fx := c.Step(storyStart, entry)
		if from == "rows" {
			disk, saved := statetest.Disk{}, Saved{Applied: 1}
			disk.Save(fx.Rows, nil)
			saved.load(t, disk)
			c = NewCore(cfg, saved, storyStart)
		}
		offered := func(fx step.Effects) (tasks []int, hosts []job.Peer) {
			for _, o := range fx.Send {
				if m, ok := o.Msg.(contract.Offer); ok {
					tasks, hosts = append(tasks, m.Attempt.Task), append(hosts, o.To)
				}
			}
			return tasks, slices.Compact(hosts)
		}
		fx = c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 2, Epoch: job.Epoch{Term: 2}, Lead: true}},
			step.SessionUp{Peer: "n1"}, step.FromWorker{Peer: "n1", Msg: contract.Hello{
				Profile: contract.Profile{Name: "n1", Store: "s", CPUs: 32, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: 32},
			}},
			step.SessionUp{Peer: "n2"}, step.FromWorker{Peer: "n2", Msg: contract.Hello{
				Profile: contract.Profile{Name: "n2", Store: "s2", CPUs: 64, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: 64},
			}})
		if tasks, hosts := offered(fx); !slices.Equal(tasks, []int{2, 3, 4, 6, 7, 8, 9}) || !slices.Equal(hosts, []job.Peer{"n1"}) {
			t.Errorf("from the %s: at once tasks %v are offered to %v, want %v and %v", from, tasks, hosts, []int{2, 3, 4, 6, 7, 8, 9}, []job.Peer{"n1"})
		}
		if j, _ := c.View().Job(id); j.Tasks[5].Reason.Word != job.ReasonBackoff {
			t.Errorf("from the %s: task 5 waits for %s, want Word %v", from, j.Tasks[5].Reason, job.ReasonBackoff)
		}
		var tasks []int
		for at := storyStart; at.Before(storyStart.Add(2 * time.Second)); at = at.Add(100 * time.Millisecond) {
			more, hosts := offered(c.Step(at))
			tasks = append(tasks, more...)
			if len(more) > 0 && !slices.Equal(hosts, []job.Peer{"n2"}) {
				t.Errorf("from the %s: tasks %v are offered to %v, want n2 alone", from, more, hosts)
			}
		}
		if slices.Sort(tasks); !slices.Equal(tasks, []int{0, 1, 5}) {
			t.Errorf("from the %s: then tasks %v are offered, want %v", from, tasks, []int{0, 1, 5})
		}
	}
}

// A task that fits one host only is not tried there for ever: it fails with its tenth failed start.
func TestFailedStartsOnOneHostAreBounded(t *testing.T) {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "here", 7, 1
	id, spec := job.NewID(7, 1), job.DefaultSpec()
	spec.Command = []string{"true"}
	exit := job.Exit{State: job.NodeFail, Code: job.ExitMuster, Reason: "too many open files", Began: storyStart, Ended: storyStart}
	for failed := range maxFailedStarts {
		records := []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: storyStart, Tasks: 1}}
		for n := 1; n <= failed+1; n++ {
			a := job.Attempt{Job: id, N: n}
			records = append(records, job.AssignRecord{Attempt: a, Node: "n1", NodeName: "n1", Store: "s"})
			if n <= failed {
				records = append(records, job.ResultRecord{Attempt: a, Exit: exit, At: storyStart, Elsewhere: true})
			}
		}
		c := NewCore(cfg, Saved{}, storyStart)
		c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Records: records}})
		c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 2, Epoch: job.Epoch{Term: 2}, Lead: true}},
			step.SessionUp{Peer: "n1"}, step.FromWorker{Peer: "n1", Msg: contract.Hello{
				Profile: contract.Profile{Name: "n1", Store: "s", CPUs: 32, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: 32},
			}})
		fx := c.Step(storyStart, step.FromWorker{Peer: "n1", Msg: contract.Event{
			Attempt: job.Attempt{Job: id, N: failed + 1}, Group: 7, N: 2, State: exit.State, Exit: &exit,
		}})
		var got job.ResultRecord
		for _, r := range fx.Propose {
			got, _ = r.(job.ResultRecord)
		}
		want := job.NodeFail
		if failed+1 == maxFailedStarts {
			want = job.Failed
		}
		if got.Exit.State != want || got.Elsewhere != (want == job.NodeFail) || got.Hold != "" {
			t.Errorf("after %d failed starts: %+v, want %s", failed+1, got, want)
		}
	}
}

// If the tasks of a job fail at once on one host and do well elsewhere, the job leaves that host out, though it has the
// most capacity. After 30 s a single task tries the host. A job that fails everywhere leaves out no host.
func TestJobLeavesOutAHostWhereItFails(t *testing.T) {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "here", 7, 1
	id, spec := job.NewID(7, 1), job.DefaultSpec()
	spec.Command, spec.Array = []string{"true"}, "0-99"
	for _, elsewhere := range []job.State{job.Succeeded, job.Failed} {
		ends := func(first int, node job.Peer, s job.State) (records []job.Record) {
			for index := first; index < first+3; index++ {
				a := job.Attempt{Job: id, Task: index, N: 1}
				exit := job.Exit{State: s, Started: true, Began: storyStart, Ended: storyStart.Add(time.Second)}
				records = append(records, job.AssignRecord{Attempt: a, Node: node, NodeName: string(node), Store: "s"}, job.ResultRecord{Attempt: a, Exit: exit, At: storyStart})
			}
			return records
		}
		c := NewCore(cfg, Saved{}, storyStart)
		c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 2}, Lead: true}})
		records := []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: storyStart, Tasks: 100}}
		records = append(records, ends(0, "n2", elsewhere)...)
		records = append(records, ends(3, "n1", job.Failed)...)
		c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 2, Epoch: job.Epoch{Term: 2}, Records: records}})
		up := func(p job.Peer, cpus int) []step.Event {
			return []step.Event{step.SessionUp{Peer: p}, step.FromWorker{Peer: p, Msg: contract.Hello{
				Profile: contract.Profile{Name: string(p), Store: "s", CPUs: 32, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: cpus},
			}}}
		}
		offered := func(fx step.Effects) (n int) {
			for _, o := range fx.Send {
				if _, ok := o.Msg.(contract.Offer); ok && o.To == "n1" {
					n++
				}
			}
			return n
		}
		n := offered(c.Step(storyStart, append(up("n1", 32), up("n2", 1)...)...))
		if elsewhere == job.Failed {
			if n == 0 {
				t.Error("a job that fails everywhere leaves out a host, want offers to it")
			}
			continue
		}
		if n > 0 {
			t.Errorf("%d tasks are offered to the host where they fail, want 0", n)
		}
		x, err := c.View().Why(id)
		if err != nil || slices.ContainsFunc(x.Now, func(c contract.Candidate) bool { return c.Node == "n1" }) ||
			!slices.ContainsFunc(x.Later, func(c contract.Candidate) bool {
				return c.Node == "n1" && c.Why == "left out: tasks of the job fail there at once, until "+storyStart.Add(leaveFirst).UTC().Format("15:04 UTC")
			}) {
			t.Errorf("people are told of the host: %v; now %+v, later %+v, want no error, and n1 left out later and not now", err, x.Now, x.Later)
		}
		n = 0
		for at := storyStart; at.Before(storyStart.Add(leaveFirst + 5*time.Second)); at = at.Add(500 * time.Millisecond) {
			n += offered(c.Step(at))
		}
		if n != 1 {
			t.Errorf("%d tasks try the host after its pause, want 1", n)
		}
	}
}
