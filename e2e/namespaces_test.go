//go:build e2e

package e2e

// The PID namespaces of tasks: what ends with a runner, and what programs in a task see.

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
)

// daemonWithNamespaces returns a daemon whose tasks have PID namespaces.
func daemonWithNamespaces(t *testing.T, flags ...string) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes PID namespaces")
	}
	d := newDaemon(t, "amy", append([]string{"--gpus", "none"}, flags...)...).start()
	id := d.ok("submit", "--", "true")
	d.untilState(id, "SUCCEEDED")
	if held := d.show(id).Tasks[0].Isolation; !strings.Contains(held, "PID namespace") {
		t.Skipf("no PID namespaces on this host: %s", held)
	}
	return d
}

// TestNothingOutlivesDaemonAndRunner kills both at once. No process of a task may go on, because the owner could run
// the task elsewhere.
func TestNothingOutlivesDaemonAndRunner(t *testing.T) {
	d := daemonWithNamespaces(t)
	const (
		main    = "sleep\x007651\x00"
		session = "sleep\x007652\x00" // in a session of its own
		forked  = "sleep\x007653\x00" // its parents have ended
		bare    = "sleep\x007654\x00" // and it has no environment
		typed   = "sleep\x007655\x00" // by muster exec
	)
	id := d.ok("submit", "--", "sh", "-c", `setsid sleep 7652 & (setsid sh -c 'sleep 7653 &' &); (env -i setsid sleep 7654 &); exec sleep 7651`)
	d.untilState(id, "RUNNING")
	client := exec.Command(binary(t), "exec", id, "--", "sh", "-c", "setsid sleep 7655 & wait")
	client.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Wait() }()
	all := []string{main, session, forked, bare, typed}
	eventually(t, "all processes run", func() bool {
		for _, line := range all {
			if len(running(line)) != 1 {
				return false
			}
		}
		return true
	})
	runners := d.runners()
	if len(runners) != 1 {
		t.Fatalf("got runners %v, want one", runners)
	}
	d.kill()
	_ = syscall.Kill(runners[0], syscall.SIGKILL)
	for _, line := range all {
		eventually(t, "the end of "+strings.ReplaceAll(line, "\x00", " "), func() bool { return len(running(line)) == 0 })
	}
	d.start()
	d.until(id, "the end", func(j api.Job) bool { return j.State != "RUNNING" && j.State != "UNREACHABLE" })
}

// TestProgramsSeeTheirOwnNamespaceOnly checks what programs see that list processes, and how a task ends.
func TestProgramsSeeTheirOwnNamespaceOnly(t *testing.T) {
	d := daemonWithNamespaces(t)
	const list = "ps -e -o comm="
	if out := strings.Fields(d.ok("run", "--", "sh", "-c", list+"; true")); strings.Join(out, " ") != "muster-init sh ps" {
		t.Errorf("ps shows %q, want muster-init sh ps", out)
	}
	for script, code := range map[string]int{
		"kill -SEGV $$": 128 + 11, "kill -KILL $$": 128 + 9, "exit 33": 33, "kill -KILL 1; exit 5": 5, "test $(readlink /proc/self) != 1": 0,
	} {
		if r := d.muster("run", "--", "sh", "-c", script); r.code != code {
			t.Errorf("%s: got %+v, want exit code %d", script, r, code)
		}
	}
	id := d.ok("submit", "--", "sh", "-c", "sleep 7656; true")
	d.untilState(id, "RUNNING")
	pid := d.show(id).Tasks[0].PID
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err != nil || !strings.HasPrefix(string(text), "sh\x00-c\x00sleep 7656") {
		t.Errorf("process %d, as in show, is %q, %v, want the shell of the task", pid, text, err)
	}
	if out := d.ok("exec", id, "--", "sh", "-c", "pgrep -x sleep | wc -l"); strings.TrimSpace(out) != "1" {
		t.Errorf("exec sees %q processes, want 1", out)
	}
	d.muster("exec", id, "--", "pkill", "-x", "sleep") // the task ends by it, and the command may be killed with the task
	d.untilState(id, "SUCCEEDED")
	for _, x := range []struct{ program, script, want string }{
		{"gdb", "sleep 100 & gdb -nx -batch -p $! -ex 'info proc' 2>&1; kill $!", "exe = "},
		{"strace", "strace -f -e trace=exit_group sh -c 'true & wait' 2>&1", "exited with 0"},
	} {
		if _, err := exec.LookPath(x.program); err != nil {
			t.Logf("no %s here", x.program)
			continue
		}
		if out := d.muster("run", "--", "sh", "-c", x.script).stdout; !strings.Contains(out, x.want) {
			t.Errorf("%s: got %s, want %q", x.program, out, x.want)
		}
	}
}
