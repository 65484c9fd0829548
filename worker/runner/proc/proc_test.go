package proc_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
)

// TestNewProcessShowsItsEnvironment checks that a new process shows the environment that it was given, even while the kernel
// still loads its program.
func TestNewProcessShowsItsEnvironment(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for range 500 {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "10"}, &os.ProcAttr{Env: []string{"MARK=1"}, Files: []*os.File{null, null, null}})
		if err != nil {
			t.Fatal(err)
		}
		env, err := proc.Environ(p.Pid)
		if err != nil || !slices.Equal(env, []string{"MARK=1"}) {
			t.Errorf("the environment is %q, %v, want no error and %v", env, err, []string{"MARK=1"})
		}
		_ = p.Kill()
		_, _ = p.Wait()
		if _, err := proc.Environ(p.Pid); err == nil {
			t.Error("a process that has ended has an environment")
		}
		if t.Failed() {
			return
		}
	}
}

// A new process belongs to the attempt that its environment names, even while the kernel still loads its program.
func TestNewProcessBelongsToItsAttempt(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	want := job.Attempt{Job: job.NewID(1, 2), Task: 3, N: 4}
	env := []string{"MUSTER_JOB_ID=" + string(want.Job), "MUSTER_TASK=3", "MUSTER_ATTEMPT=4"}
	for range 500 {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "10"}, &os.ProcAttr{Env: env, Files: []*os.File{null, null, null}})
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(proc.ExecTime)
		if a, ok := proc.AttemptOf(p.Pid, end); !ok || a != want {
			t.Errorf("the attempt is %v, %v, want that of the environment", a, ok)
		}
		_ = p.Kill()
		_, _ = p.Wait()
		if a, ok := proc.AttemptOf(p.Pid, end); ok {
			t.Errorf("a process that has ended belongs to %v", a)
		}
		if t.Failed() {
			return
		}
	}
}

// TestEmptyEnvironmentIsReadWithoutWaiting checks that a process may have an empty environment. Environ does not wait
// for one.
func TestEmptyEnvironmentIsReadWithoutWaiting(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "10"}, &os.ProcAttr{Env: []string{}, Files: []*os.File{null, null, null}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
	}()
	if env, err := proc.Environ(p.Pid); err != nil || len(env) != 0 {
		t.Errorf("the environment is %q, %v, want no error and none", env, err)
	}
}
