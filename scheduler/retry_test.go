package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs/jobstest"
	"github.com/musterhq/muster/lease"
)

// A new owner lets the tasks wait that have failed of late, and avoids the hosts where they failed. The other tasks of
// the job do not wait for them.
func TestNewOwnerBacksOff(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "here", 7, 1
	id, spec := job.NewID(7, 1), job.DefaultSpec()
	spec.Command, spec.Array, spec.Retries = []string{"true"}, "0-9", 3
	records := []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: storyStart, Tasks: 10}}
	for _, index := range []int{0, 1, 5} {
		a := job.Attempt{Job: id, Task: index, N: 1}
		exit := job.Exit{State: job.Failed, Code: 1, Started: true, Began: storyStart, Ended: storyStart}
		records = append(records, job.AssignRecord{Attempt: a, Node: "n1", NodeName: "n1", Store: "s"}, job.ResultRecord{Attempt: a, Exit: exit, At: storyStart})
	}
	entry := Committed{job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Records: records}}
	for _, from := range []string{"journal", "rows"} {
		c := NewCore(cfg, Saved{}, storyStart)
		fx := c.Step(storyStart, entry)
		if from == "rows" {
			disk, saved := jobstest.Disk{}, Saved{Applied: 1}
			disk.Save(fx.Rows, nil)
			saved.load(t, disk)
			c = NewCore(cfg, saved, storyStart)
		}
		offered := func(fx Effects) (tasks []int, hosts []job.Peer) {
			for _, o := range fx.Send {
				if m, ok := o.Msg.(lease.Offer); ok {
					tasks, hosts = append(tasks, m.Attempt.Task), append(hosts, o.To)
				}
			}
			return tasks, slices.Compact(hosts)
		}
		fx = c.Step(storyStart, Committed{job.Committed{Index: 2, Epoch: job.Epoch{Term: 2}, Lead: true}},
			SessionUp{Peer: "n1"}, FromWorker{Peer: "n1", Msg: lease.Hello{
				Profile: lease.Profile{Name: "n1", Store: "s", CPUs: 32, Drivers: []string{"exec"}, Worker: true}, Free: lease.Free{CPUs: 32},
			}},
			SessionUp{Peer: "n2"}, FromWorker{Peer: "n2", Msg: lease.Hello{
				Profile: lease.Profile{Name: "n2", Store: "s2", CPUs: 64, Drivers: []string{"exec"}, Worker: true}, Free: lease.Free{CPUs: 64},
			}})
		if tasks, hosts := offered(fx); !slices.Equal(tasks, []int{2, 3, 4, 6, 7, 8, 9}) || !slices.Equal(hosts, []job.Peer{"n1"}) {
			t.Errorf("from the %s: at once tasks %v are offered to %v", from, tasks, hosts)
		}
		if j, _ := c.Job(id); j.Tasks[5].Reason.Word != job.ReasonBackoff {
			t.Errorf("from the %s: task 5 waits for %s", from, j.Tasks[5].Reason)
		}
		var tasks []int
		for at := storyStart; at.Before(storyStart.Add(2 * time.Second)); at = at.Add(100 * time.Millisecond) {
			more, hosts := offered(c.Step(at))
			tasks = append(tasks, more...)
			if len(more) > 0 && !slices.Equal(hosts, []job.Peer{"n2"}) {
				t.Errorf("from the %s: tasks %v are offered to %v", from, more, hosts)
			}
		}
		if slices.Sort(tasks); !slices.Equal(tasks, []int{0, 1, 5}) {
			t.Errorf("from the %s: then tasks %v are offered", from, tasks)
		}
	}
}
