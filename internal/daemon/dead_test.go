package daemon

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// DeclareDead refuses a host while its session lasts; afterwards it gives up the tasks there. When the host comes back,
// the success of the attempt that was given up counts.
func TestDeadHostThatComesBackIsANodeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, all := cluster(t, 2, shape{gpus: onLast(1, "sim:4xH100-80GB"), neighbour: 1})
		pass(10 * time.Second)
		owner := jobsBackend{owners: all[0].router.owners}
		spec := gpuJob("h100", 1)
		spec.Partition = "hold"
		j, err := all[0].sched.Submit(t.Context(), job.Submission{User: "u", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		pass(500 * time.Millisecond)
		nw.Blackhole(1, true)
		dead := nw.Peer(1)
		if _, err := owner.DeclareDead(t.Context(), dead, "", "root"); !errors.Is(err, api.ErrConflict) {
			t.Errorf("while the session lasts: got %v, want api.ErrConflict", err)
		}
		pass(time.Minute)
		state := func(want job.State) {
			t.Helper()
			if j, err = owner.Get(t.Context(), j.ID); err != nil || j.State() != want {
				t.Fatalf("the job is %s (%s), %v; want %s", j.State(), j.Tasks[0].Reason, err, want)
			}
		}
		state(job.Unreachable)
		if n, err := owner.MayBeDead(t.Context(), dead, ""); n != 1 || err != nil {
			t.Errorf("MayBeDead = %d, %v, want 1", n, err)
		}
		if n, err := owner.DeclareDead(t.Context(), dead, "", "root"); n != 1 || err != nil {
			t.Errorf("DeclareDead = %d, %v, want 1", n, err)
		}
		state(job.Pending)
		nw.Blackhole(1, false)
		pass(2 * time.Minute)
		state(job.Succeeded)
		if _, err := owner.MayBeDead(t.Context(), dead, ""); !errors.Is(err, api.ErrConflict) {
			t.Errorf("after the host is back: got %v, want api.ErrConflict", err)
		}
	})
}

// A daemon that accepts no jobs has no tasks to give up.
func TestDeclareDeadWithoutASchedulerGivesUpNothing(t *testing.T) {
	for _, do := range []func() (int, error){
		func() (int, error) { return jobsBackend{}.MayBeDead(t.Context(), "p", "") },
		func() (int, error) { return jobsBackend{}.DeclareDead(t.Context(), "p", "", "root") },
	} {
		if n, err := do(); n != 0 || err != nil {
			t.Errorf("got %d, %v, want 0", n, err)
		}
	}
}
