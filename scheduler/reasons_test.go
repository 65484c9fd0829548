package scheduler

// Each reason word of a PENDING task is given in the situation that it names.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// waits submits a job and returns its first task as people see it.
func (x *bench) waits(t *testing.T, change func(*job.Spec)) (job.ID, func() job.Task) {
	t.Helper()
	s := benchSpec(0)
	change(&s)
	before := map[job.ID]bool{}
	for _, j := range x.core.entries.table.Jobs() {
		before[j.ID] = true
	}
	x.tok++
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Spec: s}})
	for _, j := range x.core.entries.table.Jobs() {
		if !before[j.ID] {
			return j.ID, func() job.Task {
				v, _ := x.core.View().Job(j.ID)
				return v.Tasks[len(v.Tasks)-1]
			}
		}
	}
	t.Fatal("the job was not accepted")
	return "", nil
}

func TestEachReasonOfAPendingTask(t *testing.T) {
	held := func(s *job.Spec) { s.Hold = true }
	release := func(x *bench, id job.ID) { x.tok++; x.step(step.Hold{Token: x.tok, Job: id, Release: true}) }
	free := func(x *bench, f contract.Availability) { x.step(step.FromWorker{Peer: "w0", Msg: f}) }
	for word, c := range map[string]struct {
		detail string // part of the detail
		make   func(t *testing.T, x *bench) job.Task
	}{
		job.ReasonNoPeers: {"no node that runs tasks is known", func(t *testing.T, _ *bench) job.Task {
			x := newBench(t, 0, 0)
			id, task := x.waits(t, held)
			release(x, id)
			return task()
		}},
		job.ReasonNoMatch: {"cpus", func(t *testing.T, x *bench) job.Task {
			id, task := x.waits(t, func(s *job.Spec) { s.Hold, s.Resources.CPUs = true, 99 })
			release(x, id)
			return task()
		}},
		job.ReasonResources: {"not enough free cpus on 1", func(t *testing.T, x *bench) job.Task {
			free(x, contract.Availability{Free: contract.Free{CPUs: 1}})
			_, task := x.waits(t, func(s *job.Spec) { s.Resources.CPUs = 4 })
			return task()
		}},
		job.ReasonPriority: {"behind", func(t *testing.T, x *bench) job.Task {
			free(x, contract.Availability{Free: contract.Free{CPUs: 0}})
			for range 60 { // more than may queue at the host
				x.waits(t, func(*job.Spec) {})
			}
			_, task := x.waits(t, func(*job.Spec) {})
			return task()
		}},
		job.ReasonNodesDraining: {"w0: new fans", func(t *testing.T, x *bench) job.Task {
			free(x, contract.Availability{Free: contract.Free{CPUs: 8}, Draining: true, Detail: "new fans"})
			_, task := x.waits(t, func(*job.Spec) {})
			return task()
		}},
		job.ReasonQuota: {"amy holds 8 CPUs", func(t *testing.T, x *bench) job.Task {
			_, task := x.waits(t, func(*job.Spec) {})
			o, _ := x.sent[len(x.sent)-1].Msg.(contract.Offer)
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Decline{
				Offer: o.ID, Attempt: o.Attempt, Reason: job.Reason{Word: job.ReasonQuota, Detail: "amy holds 8 CPUs"}, Free: contract.Free{CPUs: 8, Memory: benchMemory},
			}})
			x.now = x.now.Add(time.Second)
			x.step()
			return task()
		}},
		job.ReasonArrayThrottle: {"at most 1 of its tasks", func(t *testing.T, x *bench) job.Task {
			_, task := x.waits(t, func(s *job.Spec) { s.Array = "0-2%1" })
			return task()
		}},
		job.ReasonBackoff: {"after exit code 1", func(t *testing.T, x *bench) job.Task {
			_, task := x.waits(t, func(s *job.Spec) { s.Retries = 3 })
			o, _ := x.sent[len(x.sent)-1].Msg.(contract.Offer)
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: 7, Session: 1}})
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{
				Attempt: o.Attempt, Group: 7, N: 1, State: job.Failed, Exit: &job.Exit{State: job.Failed, Code: 1, Started: true, Ended: x.now},
			}})
			return task()
		}},
		job.ReasonStaging: {"pulling image 40%", func(t *testing.T, x *bench) job.Task {
			_, task := x.waits(t, func(*job.Spec) {})
			o, _ := x.sent[len(x.sent)-1].Msg.(contract.Offer)
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: 7, Session: 1}})
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{Attempt: o.Attempt, Group: 7, N: 1, State: job.Starting, Detail: "pulling image 40%"}})
			return task()
		}},
		job.ReasonBeginTime: {"begins at", func(t *testing.T, x *bench) job.Task {
			begin := x.now.Add(time.Hour)
			_, task := x.waits(t, func(s *job.Spec) { s.Begin = &begin })
			return task()
		}},
		job.ReasonDependency: {"afterok:", func(t *testing.T, x *bench) job.Task {
			parent, _ := x.waits(t, held)
			_, task := x.waits(t, func(s *job.Spec) { s.Dependency = []string{"afterok:" + string(parent)} })
			return task()
		}},
		job.ReasonDependencyNeverSatisfied: {"afterok:", func(t *testing.T, x *bench) job.Task {
			parent, _ := x.waits(t, held)
			_, task := x.waits(t, func(s *job.Spec) { s.Dependency = []string{"afterok:" + string(parent)} })
			x.tok++
			x.step(step.Cancel{Token: x.tok, Job: parent})
			return task()
		}},
		job.ReasonGPUUnhealthy: {"set aside on w0", func(t *testing.T, _ *bench) job.Task {
			x := newBench(t, 0, 0)
			h := gpuHost("w0", 1)
			x.step(step.SessionUp{Peer: "w0"}, step.FromWorker{Peer: "w0", Msg: h})
			free(x, contract.Availability{Seq: 1, Free: contract.Free{CPUs: 8, Memory: benchMemory, Quarantined: []string{h.Profile.GPUs[0].UUID}}})
			_, task := x.waits(t, func(s *job.Spec) { s.Resources.GPUs = 1 })
			return task()
		}},
	} {
		t.Run(word, func(t *testing.T) {
			got := c.make(t, newBench(t, 1, 8))
			if got.Reason.Word != word || !strings.Contains(got.Reason.Detail, c.detail) {
				t.Errorf("%s: %s; want %s: …%s…", got.State, got.Reason, word, c.detail)
			}
		})
	}
}

// A submission is answered before the job is placed. The answer says so. It does not name other jobs if there is
// capacity.
func TestSubmissionIsAnsweredBeforePlacement(t *testing.T) {
	x := newBench(t, 1, 8)
	fx := x.core.Step(x.now, step.Submit{Token: 99, Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
	fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index + 1, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
	if len(fx.Reply) != 1 || len(fx.Reply[0].Job.Tasks) != 1 {
		t.Fatalf("replies: %+v, want 1 of them and 1 [0].Job.Tasks", fx.Reply)
	}
	why := fx.Reply[0].Job.Tasks[0].Reason
	if why.Word != job.ReasonPriority || !strings.Contains(why.Detail, "its turn") {
		t.Errorf(`reason: %+v, want Word %v and Detail "its turn" in it`, why, job.ReasonPriority)
	}
}

// The reason gives numbers of what a node lacks, and names the program that uses the memory of a GPU.
func TestReasonGivesNumbersOfWhatANodeLacks(t *testing.T) {
	x := newBench(t, 0, 0)
	uuid := "GPU-1"
	free := contract.Free{
		CPUs: 3, Memory: 8 << 30, GPUs: []contract.FreeGPU{{UUID: uuid, Memory: 19 << 30, Milli: 237}},
		Foreign: []contract.ForeignUse{{UUID: uuid, Memory: 61 << 30, PID: 4711}},
	}
	x.step(step.SessionUp{Peer: "w0"}, step.FromWorker{Peer: "w0", Msg: contract.Hello{
		Profile: contract.Profile{
			Name: "w0", Store: "s", CPUs: 8, Memory: 64 << 30, Worker: true, Drivers: []string{contract.DriverExec},
			GPUs: []gpu.Device{{UUID: uuid, Index: 5, Model: "H100", Class: "h100-80gb", Memory: 80 << 30}},
		}, Free: free,
	}})
	for _, c := range []struct {
		need job.Resources
		want string
	}{
		{job.Resources{CPUs: 4}, "not enough free cpus: 4 wanted, 3 free"},
		{job.Resources{CPUs: 1, Memory: 9 << 30}, "not enough free memory: 9GiB wanted, 8GiB free"},
		{job.Resources{CPUs: 1, GPUs: 1}, "not enough free gpus: 1 wanted, 0 free; 61GiB of 80GiB of GPU 5 are used by PID 4711, not muster's"},
	} {
		s := job.DefaultSpec()
		s.Command, s.Resources = []string{"true"}, c.need
		e, err := x.core.View().Offers("amy", false, s)
		if err != nil || len(e.Later) != 1 || e.Later[0].Why != c.want {
			t.Errorf("%+v: %+v, %v, want %q", c.need, e.Later, err, c.want)
		}
	}
	_, task := x.waits(t, func(s *job.Spec) { s.Resources = job.Resources{CPUs: 1, GPUs: 1} })
	if got, want := task().Reason.Detail, "w0: 61GiB of 80GiB of GPU 5 are used by PID 4711, not muster's"; !strings.Contains(got, want) {
		t.Errorf("reason %q, want %q in it", got, want)
	}
}
