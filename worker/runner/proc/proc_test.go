package proc_test

import (
	"os"
	"slices"
	"testing"

	"github.com/musterhq/muster/worker/runner/proc"
)

// TestEnvironOfANewProcess checks that a process that has just been started shows the environment that it was given,
// even while the kernel still loads its program.
func TestEnvironOfANewProcess(t *testing.T) {
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
			t.Errorf("the environment is %q, %v", env, err)
		}
		_ = p.Kill()
		_, _ = p.Wait()
		if _, err := proc.Environ(p.Pid); err == nil {
			t.Error("a process that is gone has an environment")
		}
		if t.Failed() {
			return
		}
	}
}

// TestEnvironThatIsEmpty checks that a process may have an empty environment. Environ does not wait for one.
func TestEnvironThatIsEmpty(t *testing.T) {
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
		t.Errorf("the environment is %q, %v", env, err)
	}
}
