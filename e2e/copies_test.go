//go:build e2e

package e2e

// Two daemons on copies of one data directory.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// copyOf returns a daemon on a copy of the data directory of another one.
func copyOf(d *daemon) *daemon {
	d.t.Helper()
	twin := newDaemon(d.t, d.name)
	if out, err := exec.Command("cp", "-a", filepath.Join(d.dir, "data"), filepath.Join(twin.dir, "data")).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %s", err, out)
	}
	// On the host of a real copy none of the processes lives that the files of the runners name.
	if err := os.RemoveAll(filepath.Join(twin.dir, "data", "run")); err != nil {
		d.t.Fatal(err)
	}
	return twin
}

// untilTwin waits until a daemon has ended because an older one has its identity.
func (d *daemon) untilTwin() {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(time.Minute):
		d.t.Fatalf("the copy runs, want that it ends:\n%s", d.log())
	}
	<-d.said
	if code := d.cmd.ProcessState.ExitCode(); code != 78 {
		d.t.Errorf("the copy: exit %d, want 78:\n%s", code, d.log())
	}
}

// A daemon that stops because of an older one ends its tasks, because their owners mistake the other daemon for their
// host. That holds for a daemon that learns of the other while it runs, and for one that was killed and starts again.
func TestTasksOfACopiedDaemonEnd(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy").start()
	bob := newDaemon(t, "bob")
	bob.start(amy.invite().flags()...)
	amy.untilNodes(2)
	second, third := copyOf(bob), copyOf(bob)

	amy.kill() // no member tells the copies of each other
	time.Sleep(2100 * time.Millisecond)
	lives := func(d *daemon) func() bool {
		path := filepath.Join(d.dir, "beats")
		d.untilState(d.ok("submit", "--on-partition", "hold", "--", "sh", "-c", "trap '' TERM; while :; do echo >> "+path+"; sleep 0.1; done"), "RUNNING")
		size := func() int64 {
			info, err := os.Stat(path)
			if err != nil {
				return 0
			}
			return info.Size()
		}
		for size() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		return func() bool {
			before := size()
			time.Sleep(time.Second)
			return size() > before
		}
	}
	second.start()
	learns := lives(second)
	third.start()
	restarts := lives(third)
	third.kill()
	if !learns() || !restarts() {
		t.Fatal("a task does not run")
	}
	amy.start()
	second.untilTwin()
	if learns() {
		t.Error("the task of the copy that learnt of the older one runs on")
	}
	third.launch()
	third.untilTwin()
	if restarts() {
		t.Error("the task of the copy that started again runs on")
	}
	if id := strings.TrimSpace(amy.ok("submit", "-w", "bob", "--", "true")); id != "" {
		amy.untilState(id, "SUCCEEDED")
	}
}

// A daemon on a copy of the data directory of a running one ends with 78 before it starts anything, and names both
// addresses. The other one goes on, and the member that reached both says so.
func TestCopyOfARunningDaemonDoesNotStart(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy").start()
	bob := newDaemon(t, "bob")
	bob.start(amy.invite().flags()...)
	amy.untilNodes(2)

	twin := copyOf(bob)
	time.Sleep(2100 * time.Millisecond) // so that the older one is older for certain
	twin.launch()
	twin.untilTwin()
	port := func(d *daemon) string {
		listen := d.args[slices.Index(d.args, "--listen")+1]
		return listen[strings.LastIndex(listen, "/")+1:]
	}
	if text := twin.log(); !strings.Contains(text, "runs at /ip4/127.0.0.1/") || !strings.Contains(text, port(bob)) || strings.Contains(text, "msg=ready") {
		t.Errorf("the copy: want both addresses, got\n%s", text)
	}
	if out := amy.muster("doctor"); !strings.Contains(out.stdout, "two daemons with the identity") || !strings.Contains(out.stdout, port(bob)) || !strings.Contains(out.stdout, port(twin)) {
		t.Errorf("doctor of a member: got %s, want two daemons with one identity", out.stdout)
	}
	if id := strings.TrimSpace(amy.ok("submit", "-w", "bob", "--", "true")); id != "" {
		amy.untilState(id, "SUCCEEDED")
	}
}
