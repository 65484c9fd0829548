package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestExecOnAStoppedRunnerCanBeCancelled checks that a caller can stop waiting for a runner that is stopped.
func TestExecOnAStoppedRunnerCanBeCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(0, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	stoppedRunner(t, r)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.d.Exec(soon, k.Attempt, protocol.Command{Command: []string{"true"}}, os.Geteuid()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want context.DeadlineExceeded", err)
	}
}

func TestCommandRunsInATask(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		r := newRig(t, mode, dir, "1")
		long := fmt.Sprintf("1000.%d", time.Now().UnixNano()) // no other process of the host has it
		k := r.task(0, "sleep", long)
		r.start(k)
		r.expect(driver.Started)
		run := func(script string) (string, int) {
			s, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: []string{"sh", "-c", script}}, os.Geteuid())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			out, err := io.ReadAll(s.Stdout)
			if err != nil {
				t.Fatal(err)
			}
			code, err := s.Wait()
			if err != nil {
				t.Fatal(err)
			}
			return string(out), code
		}
		out, code := run(fmt.Sprintf(`cmp /proc/$$/cgroup /proc/$(pgrep -x -f "sleep %s")/cgroup && echo "$MUSTER_SCRATCH" && pwd; exit 4`, long))
		if lines := strings.Fields(out); code != 4 || len(lines) != 2 || lines[0] != lines[1] || lines[0] != filepath.Join(r.d.dir.Task(k.Attempt), "scratch") {
			t.Errorf("%q, exit %d, want two equal paths of the scratch directory and exit 4", out, code)
		}
		if _, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: []string{"no-such-xyz"}}, 0); CodeOf(err) != 127 {
			t.Errorf("%v, want exit code 127", err)
		}
		at := filepath.Join(dir, "hidden")
		if _, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: []string{"sh", "-c", fmt.Sprintf(hiding, at)}}, 0); err != nil {
			t.Fatal(err)
		}
		hidden := writerOf(t, at)
		if err := r.d.Stop(k.Attempt, 0, "enough"); err != nil {
			t.Fatal(err)
		}
		r.expect(driver.Exited)
		if alive(hidden) {
			t.Error("a process that the command left is alive after the end of the task")
		}
		if _, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: []string{"true"}}, 0); err == nil {
			t.Error("a command ran in a task that has ended")
		}
	})
}
