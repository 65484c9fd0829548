package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/timerslack"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A runner has our timer slack. Its tasks have the kernel's default, so that their sleeps do not get longer.
func TestTasksHaveTheDefaultTimerSlack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 20 {
		k := r.shell(i, "cat /proc/self/timerslack_ns; (cat /proc/self/timerslack_ns)")
		if e := r.run(k); e.State != job.Succeeded {
			t.Fatalf("%+v, want State %v", e, job.Succeeded)
		}
		if out, want := r.output(k.Attempt, output.Stdout), strings.Repeat(strconv.Itoa(int(timerslack.Default))+"\n", 2); out != want {
			t.Errorf("timer slacks of the task and its child: %q, want %q", out, want)
		}
	}
	info, err := protocol.Dir(r.dir).ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/proc", strconv.Itoa(info.PID), "timerslack_ns")
	own, err := os.ReadFile(path)
	if os.IsPermission(err) {
		t.Skip("the timer slack of another process may not be read here")
	}
	if got, want := strings.TrimSpace(string(own)), strconv.Itoa(int(timerslack.Ours)); err != nil || got != want {
		t.Errorf("timer slack of the runner: %s ns, %v; want %s", got, err, want)
	}
}
