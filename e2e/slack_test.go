//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A daemon, whatever starts it, has the timer slack of our programs, and its tasks have that of the kernel.
func TestTimerSlackOfDaemonAndTasks(t *testing.T) {
	d := newDaemon(t, "amy", "--gpus", "none").start()
	slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", d.cmd.Process.Pid))
	if got := strings.TrimSpace(string(slack)); err != nil || got != "1000000" {
		t.Errorf("timer slack of the daemon: got %s ns, %v; want 1 ms", got, err)
	}
	const read = "cat /proc/self/timerslack_ns"
	if out := d.ok("run", "--", "sh", "-c", read); strings.TrimSpace(out) != "50000" {
		t.Errorf("timer slack of a task: got %q ns, want 50 µs", out)
	}
	id := strings.TrimSpace(d.ok("submit", "--", "sleep", "60"))
	d.untilState(id, "RUNNING")
	if out := d.ok("exec", id, "--", "sh", "-c", read); strings.TrimSpace(out) != "50000" {
		t.Errorf("timer slack of a command in a task: got %q ns, want 50 µs", out)
	}
}
