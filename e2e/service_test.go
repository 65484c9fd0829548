//go:build e2e

package e2e

// The daemon as a service: its messages to systemd, settings that it reloads without a restart, and upgrades with
// running tasks.

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// manager is the socket on which systemd would listen.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T, dir string, watchdog time.Duration) manager {
	t.Helper()
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint(watchdog.Microseconds()))
	return manager{t, conn}
}

// until waits for a message with this prefix.
func (m manager) until(prefix string) string {
	m.t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	for {
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("waiting for %q: %v", prefix, err)
		}
		if text := string(buf[:n]); strings.HasPrefix(text, prefix) {
			return text
		}
	}
}

func (d *daemon) write(text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "config.yaml"), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) signal(sig os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
}

func TestServiceNotifiesSystemd(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none")
	amy.write("label: {rack: r1}\n")
	amy.args = append(amy.args, "--config", filepath.Join(amy.dir, "config.yaml"))
	m := newManager(t, amy.dir, 600*time.Millisecond)
	amy.start()
	if said := m.until("READY=1"); !strings.Contains(said, "STATUS=cluster ") {
		t.Errorf("ready: got %q, want the cluster", said)
	}
	m.until("WATCHDOG=1")

	from := amy.logged()
	amy.write("label: {rack: r2}\ncpus: 7\n")
	amy.signal(syscall.SIGHUP)
	if said := m.until("RELOADING=1"); !strings.Contains(said, "MONOTONIC_USEC=") {
		t.Errorf("reloading: got %q, want a time", said)
	}
	m.until("READY=1")
	amy.waitLog(from, "reloaded", "changed=[label]")
	amy.waitLog(from, "needs a restart", "setting=cpus")
	id := amy.ok("submit", "-C", "rack=r2", "--", "true")
	amy.untilState(id, "SUCCEEDED")
	amy.fails(3, []string{"rack"}, "submit", "-C", "rack=r1", "--", "true")

	from = amy.logged()
	amy.write("label: {rack: r3}\nbogus: 1\n")
	amy.signal(syscall.SIGHUP)
	amy.waitLog(from, "not reloaded", "config.yaml:2", "bogus")
	id = amy.ok("submit", "-C", "rack=r2", "--", "true")
	amy.untilState(id, "SUCCEEDED")

	m.until("WATCHDOG=1")
	amy.signal(syscall.SIGTERM)
	m.until("STOPPING=1")
	<-amy.done
}

// build builds the program with the given version.
func build(t *testing.T, path, version string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-pgo=auto", "-ldflags", "-s -w -X main.version="+version, "-o", path, "./cmd/muster")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations") // as in the Makefile
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

func TestUpgradeKeepsTasks(t *testing.T) {
	t.Parallel()
	cat := newDaemon(t, "cat", "--gpus", "sim:4xH100-80GB")
	cat.program = filepath.Join(cat.dir, "muster")
	build(t, cat.program, "v1.0.0")
	build(t, cat.program+".new", "v1.1.0")
	cat.start()
	running := func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 }
	g := newGate(t)
	old := cat.ok(append([]string{"submit", "-G", "2", "--"}, g.script("exit 9")...)...)
	before := cat.until(old, "RUNNING", running)
	g2 := newGate(t) // ends while no daemon runs
	ends := cat.ok(append([]string{"submit", "-G", "1", "--"}, g2.script("exit 6")...)...)
	short := cat.until(ends, "RUNNING", running)

	if err := os.Rename(cat.program+".new", cat.program); err != nil {
		t.Fatal(err)
	}
	cat.signal(syscall.SIGTERM)
	<-cat.done
	g2.open()
	untilGone(t, short.Tasks[0].PID)
	if !alive(before.Tasks[0].PID) {
		t.Fatal("a task ended with the daemon that was stopped")
	}
	from := cat.logged()
	cat.start()
	cat.waitLog(from, "runner connected", "version=v1.0.0")
	if got := cat.until(ends, "FAILED", func(j api.Job) bool { return j.State == "FAILED" }); *got.ExitCode != 6 {
		t.Errorf("exit code %d, want 6", *got.ExitCode)
	}
	after := cat.until(old, "RUNNING", running)
	if a, b := after.Tasks[0], before.Tasks[0]; a.PID != b.PID || a.Attempt != b.Attempt {
		t.Errorf("before %+v, after %+v, want the same process", b, a)
	}
	parent := func(pid int) string {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))[1]
	}
	g3 := newGate(t)
	fresh := cat.ok(append([]string{"submit", "-G", "1", "--"}, g3.script("exit 0")...)...)
	newest := cat.until(fresh, "RUNNING", running)
	cat.waitLog(from, "runner connected", "version=v1.1.0")
	if parent(newest.Tasks[0].PID) == parent(after.Tasks[0].PID) {
		t.Error("a new task went to the runner of the old version")
	}
	g.open()
	if got := cat.until(old, "FAILED", func(j api.Job) bool { return j.State == "FAILED" }); *got.ExitCode != 9 {
		t.Errorf("exit code %d, want 9", *got.ExitCode)
	}
	cat.waitLog(from, "runner is gone", "generation=1") // it had no tasks left
	g3.open()
	cat.untilState(fresh, "SUCCEEDED")
}
