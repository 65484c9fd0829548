package scheduler

// Jobs that depend on others: bounds, many of them, and what a bad owner can do.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

func (x *bench) submitAfter(dependency string) job.ID {
	s := benchSpec(0)
	s.Dependency = []string{dependency}
	x.index++
	id := job.NewID(7, x.index)
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: s, At: x.now}}}})
	return id
}

// far is a job of another owner.
func far(n int) job.ID { return job.NewID(8, uint64(n)) }

// 10,000 jobs that wait for one job are all ready in the step after its end, and have no soft state before. If that job
// belongs to another owner, it is followed once.
func TestManyJobsThatWaitForOneBecomeReadyAtOnce(t *testing.T) {
	for name, parent := range map[string]job.ID{"own": job.NewID(7, 1<<40), "other": far(1)} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, 1, 1)
			x.index++
			x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
				job.SubmitRecord{Job: job.NewID(7, 1<<40), User: "amy", Spec: benchSpec(0), At: x.now},
			}}})
			const n = 10_000
			var last job.ID
			for range n {
				last = x.submitAfter("afterok:" + string(parent))
			}
			ps := x.core.pending.parents
			if e := x.core.entries.byID[last]; len(e.tasks) > 0 || len(ps.followed) != map[bool]int{true: 1}[name == "other"] {
				t.Fatalf("%d tasks have soft state, %d jobs are followed, want none and %v", len(e.tasks), len(ps.followed), map[bool]int{true: 1}[name == "other"])
			}
			cpu := startCPU(t)
			cpu.start()
			if name == "other" {
				x.step(step.ParentSeen{Progress: job.Progress{Job: parent, State: job.Succeeded, Started: true}})
			} else {
				x.serve()
				x.serve()
			}
			if cpu.stop(); cpu.sum > 5*time.Second {
				t.Errorf("it took %s, want at most %v", cpu.sum, 5*time.Second)
			}
			for _, e := range x.core.entries.byID {
				if len(e.job.Waits.List()) > 0 && len(e.tasks) == 0 && !e.job.Ended() {
					t.Fatalf("%s does not wait for room: %v, want tasks without dependencies, or the end of the job", e.job.ID, e.job.Waits.List())
				}
			}
			if x.core.entries.table.Parents.Links() != 0 || len(ps.followed) != 0 {
				t.Errorf("%d dependencies are waited for, %d jobs are followed, want 0 and none", x.core.entries.table.Parents.Links(), len(ps.followed))
			}
		})
	}
}

// Each element of a large array waits for an element of another array. These end in any order. No event looks at all
// elements.
func TestElementsOfALargeArrayFollowAnotherArray(t *testing.T) {
	const n = 20_000
	x := newBench(t, 1, 4)
	s := benchSpec(0)
	s.Array, s.Dependency = fmt.Sprintf("0-%d", n-1), []string{"aftercorr:" + string(far(1))}
	id := job.NewID(7, 99)
	x.index++
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
		job.SubmitRecord{Job: id, User: "amy", Spec: s, At: x.now, Tasks: n},
	}}})
	e := x.core.entries.byID[id]
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	cpu := startCPU(t)
	cpu.start()
	for k := 0; k < n; k += 100 {
		p := job.Progress{Job: far(1), State: job.Running}
		for _, i := range order[k : k+100] {
			p.Tasks.Succeeded = append(p.Tasks.Succeeded, job.Range{First: i, Last: i})
		}
		x.now = x.now.Add(time.Second)
		x.step(step.ParentSeen{Progress: p})
		for range 8 {
			x.serve()
		}
		if e.parents.ready.Len() > k+100-x.ended || len(e.tasks) > 300 {
			t.Fatalf("after %d: %d are ready, %d have ended, %d have soft state, want at most %v and at most 300", k+100, e.parents.ready.Len(), x.ended, len(e.tasks), k+100-x.ended)
		}
	}
	for len(x.sent) > 0 {
		x.serve()
	}
	if x.ended != n {
		t.Errorf("%d tasks have ended, want %d: %v", x.ended, n, e.job.Counts())
	}
	if cpu.stop(); cpu.sum > 30*time.Second {
		t.Errorf("it took %s, want at most %v", cpu.sum, 30*time.Second)
	}
}

// At most MaxParents jobs are followed. When one of them is no longer followed, the next in line is.
func TestFollowedJobsAreBounded(t *testing.T) {
	x := newBench(t, 1, 1)
	var ids []job.ID
	for i := range MaxParents/500 + 2 {
		var names []string
		for k := range 500 {
			names = append(names, string(far(i*500+k+1)))
		}
		ids = append(ids, x.submitAfter("afterany:"+strings.Join(names, ":")))
	}
	ps := x.core.pending.parents
	lined := (MaxParents/500+2)*500 - MaxParents
	if len(ps.followed) != MaxParents || len(ps.line) != lined {
		t.Fatalf("%d jobs are followed, %d are in line, want %v and %v", len(ps.followed), len(ps.line), MaxParents, lined)
	}
	j, _ := x.core.View().Job(ids[len(ids)-1])
	if d := j.Depends[499].Detail; !strings.Contains(d, "in line") {
		t.Errorf(`the last one: %q, want "in line" in it`, d)
	}
	x.step(step.ParentSeen{Progress: job.Progress{Job: far(1), State: job.Failed, Started: true}})
	if len(ps.followed) != MaxParents || len(ps.line) != lined-1 {
		t.Errorf("then %d jobs are followed, %d are in line, want %v and %v", len(ps.followed), len(ps.line), MaxParents, lined-1)
	}
}

// An owner that changes its reports without end does not fill the journal.
func TestReportsThatChangeWithoutEndAreLimited(t *testing.T) {
	x := newBench(t, 1, 1)
	x.submitAfter("afterok:" + string(far(1)))
	before := x.index
	const seconds = 100
	for i := range seconds * 100 {
		x.now = x.now.Add(10 * time.Millisecond)
		x.step(step.ParentSeen{Progress: job.Progress{Job: far(1), State: []job.State{job.Failed, job.Pending}[i%2], Started: i%2 == 0}})
	}
	if n := int(x.index - before); n > parentBurst+seconds*11 || n < seconds {
		t.Errorf("it caused %d records, want at most %v and at least %v", n, parentBurst+seconds*11, seconds)
	}
	x.now = x.now.Add(time.Minute)
	x.step()
	x.step(step.ParentSeen{Progress: job.Progress{Job: far(1), State: job.Succeeded, Started: true}})
	if n := x.core.entries.table.Parents.Links(); n != 0 {
		t.Error("the last report of the owner is not believed")
	}
}

// A delay after the start of a job that is already followed counts from that start, whenever its owner reported it.
func TestDelayCountsFromAStartThatIsAlreadyKnown(t *testing.T) {
	x := newBench(t, 1, 1)
	x.submitAfter("afterok:" + string(far(1)))
	x.step(step.ParentSeen{Progress: job.Progress{Job: far(1), State: job.Running, Started: true, Ago: time.Minute}})
	x.now = x.now.Add(6 * time.Minute)
	id := x.submitAfter("after:" + string(far(1)) + "+10")
	if left := x.core.entries.byID[id].job.Waits.DueAt().Sub(x.now).Round(time.Second); left != 3*time.Minute {
		t.Errorf("7 minutes after the start it goes %s later, want 3 minutes later", left)
	}
}

// A deposed owner follows nothing. The next owner follows all parents that are still needed.
func TestDeposedOwnerFollowsNoParents(t *testing.T) {
	x := newBench(t, 1, 1)
	x.submitAfter("afterok:" + string(far(1)))
	fx := x.core.Step(x.now, step.Deposed{Epoch: job.Epoch{Term: 1}})
	if !slices.Equal(fx.Unfollow, []job.ID{far(1)}) {
		t.Errorf("deposed, it leaves %v, want %v", fx.Unfollow, []job.ID{far(1)})
	}
	fx = x.core.Step(x.now, step.ParentSeen{Progress: job.Progress{Job: far(1), State: job.Succeeded, Started: true}})
	if len(fx.Propose)+len(fx.Follow) > 0 {
		t.Errorf("deposed, it proposes %v and follows %v, want none and none", fx.Propose, fx.Follow)
	}
	x.index++
	fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 2}, Lead: true}})
	if want := []job.Follow{{Job: far(1)}}; !slices.Equal(fx.Follow, want) {
		t.Errorf("owner again, it follows %v, want %v", fx.Follow, want)
	}
}

// A job may not depend on a job that does not exist. A retry with the same key still gets the answer of the first
// submission.
func TestJobWithAnUnknownParentIsRefused(t *testing.T) {
	x := newBench(t, 1, 1)
	s := benchSpec(0)
	s.Dependency = []string{"afterok:" + string(far(1))}
	submit := func(tok step.Token, unknown ...job.ID) step.Reply {
		t.Helper()
		fx := x.core.Step(x.now, step.Submit{Token: tok, Submission: job.Submission{User: "amy", Key: "k", Spec: s, Unknown: unknown}})
		if len(fx.Propose) > 0 {
			x.index++
			fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
		}
		if len(fx.Reply) != 1 {
			t.Fatalf("%d replies, want 1", len(fx.Reply))
		}
		return fx.Reply[0]
	}
	if r := submit(1, far(1)); !errors.Is(r.Err, step.ErrInvalid) || !strings.Contains(r.Err.Error(), string(far(1))) {
		t.Errorf("unknown: %v, want ErrInvalid and %v in it", r.Err, string(far(1)))
	}
	first := submit(2)
	if again := submit(3, far(1)); first.Err != nil || again.Err != nil || first.Job.ID != again.Job.ID {
		t.Errorf("accepted %s, %v; and later %s, %v, want the same job twice without an error", first.Job.ID, first.Err, again.Job.ID, again.Err)
	}
}
