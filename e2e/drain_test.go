//go:build e2e

package e2e

// Hosts are drained and resumed, and their tasks are not lost.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

func (d *daemon) node(name string) api.Node {
	d.t.Helper()
	var doc api.Node
	text := d.ok("node", "show", name, "--json")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		d.t.Fatalf("node show %s: %v\n%s", name, err, text)
	}
	return doc
}

// untilNode polls until the node is as wanted.
func (d *daemon) untilNode(name, what string, as func(api.Node) bool) api.Node {
	d.t.Helper()
	client := d.asker()
	defer client.Close()
	look := func() api.Node {
		return asked(d, func(ctx context.Context) (api.Node, error) { return client.Node(ctx, name) })
	}
	return until(d, "node "+name, what, look, as)
}

// pair starts two daemons without GPUs.
func pair(t *testing.T) (amy, ben *daemon) {
	t.Helper()
	amy = newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	ben = newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(amy.invite().flags()...)
	amy.untilNodes(2)
	ben.untilNodes(2)
	return amy, ben
}

// stop sends SIGTERM, like an init system, and waits for the end of the process.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(patience):
		d.t.Fatalf("%s did not stop", d.name)
	}
}

func TestDrainMovesRunningTasks(t *testing.T) {
	t.Parallel()
	amy, ben := pair(t)
	dir := t.TempDir()
	// The first attempt runs until it is ended. The second one ends by itself.
	script := fmt.Sprintf(`echo here >> %s/$MUSTER_ATTEMPT; [ $MUSTER_ATTEMPT = 2 ] && exit 0; sleep 600`, dir)
	moved := amy.ok("submit", "-c", "4", "--", "sh", "-c", script)
	doc := amy.untilState(moved, "RUNNING")
	from, to := doc.Tasks[0].Node, "amy"
	if from == "amy" {
		to = "ben"
	}
	other := amy
	if to == "amy" {
		other = ben
	}
	// Drain through the other daemon, with a part of the node's ID.
	id := string(amy.node(from).ID)
	r := other.muster("node", "drain", id[:len(id)-2], "--reason", "new fans", "--deadline", "1s")
	if r.code != 0 || !strings.Contains(r.stderr, "node "+from+": draining, 1 task runs on until ") {
		t.Fatalf("drain: exit %d, %s%s, want 0 and the running task", r.code, r.stdout, r.stderr)
	}
	if out := other.ok("nodes"); !strings.Contains(out, "draining") || !strings.Contains(out, "new fans") {
		t.Errorf("nodes: want draining with the reason, got\n%s", out)
	}
	doc = amy.untilState(moved, "SUCCEEDED")
	if doc.Tasks[0].Node != to || doc.Tasks[0].Attempt != 2 {
		t.Errorf("ended on %s in attempt %d, want %s in 2", doc.Tasks[0].Node, doc.Tasks[0].Attempt, to)
	}
	for _, n := range []string{"1", "2"} {
		if _, err := os.Stat(filepath.Join(dir, n)); err != nil {
			t.Errorf("attempt %s: got %v, want its file", n, err)
		}
	}
	// A job that only the drained host could run waits and says why.
	waits := amy.ok("submit", "-w", from, "--", "true")
	amy.until(waits, "PENDING for the drain", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "NodesDraining" })
	if out := amy.ok("why", waits); !strings.Contains(out, "new fans") {
		t.Errorf("why: want the reason, got\n%s", out)
	}
	amy.ok("node", "resume", from)
	amy.untilState(waits, "SUCCEEDED")
	if n := amy.node(from); n.State != "ready" || n.Drain != nil {
		t.Errorf("after resume: got %+v, want ready", n)
	}
}

func TestDrainEndsATaskWithoutRequeue(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	id := amy.ok("submit", "--no-requeue", "--", "sleep", "600")
	amy.untilState(id, "RUNNING")
	amy.ok("node", "drain", "amy", "--deadline", "0s")
	doc := amy.untilState(id, "PREEMPTED")
	if !strings.Contains(doc.Tasks[0].Reason, "drained") && !strings.Contains(doc.Reason, "drained") {
		t.Errorf("got %+v, want the drain as the reason", doc)
	}
}

func TestDrainSurvivesRestart(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "--"}, g.script("exit 3")...)...)
	pid := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 }).Tasks[0].PID
	amy.ok("node", "drain", "amy", "--reason", "disk swap")
	amy.kill()
	amy.start()
	if n := amy.node("amy"); n.State != "draining" || !strings.Contains(n.Detail, "disk swap") || n.Drain == nil {
		t.Errorf("after kill -9: got %+v, want draining with the reason", n)
	}
	doc := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	if doc.Tasks[0].PID != pid {
		t.Errorf("got pid %d, want %d", doc.Tasks[0].PID, pid)
	}
	waits := amy.ok("submit", "--", "true")
	amy.until(waits, "PENDING", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "NodesDraining" })
	g.open()
	if doc := amy.untilState(id, "FAILED"); *doc.ExitCode != 3 {
		t.Errorf("exit code %d, want 3", *doc.ExitCode)
	}
	amy.ok("node", "resume", "amy")
	amy.untilState(waits, "SUCCEEDED")
	amy.stop()
	amy.start()
	if n := amy.node("amy"); n.State != "ready" {
		t.Errorf("after resume and restart: got %+v, want ready", n)
	}
}

// TestStoppedDaemonSaysGoodbye checks that a daemon that is stopped says goodbye and leaves its tasks running. The next
// daemon adopts them.
func TestStoppedDaemonSaysGoodbye(t *testing.T) {
	amy, ben := pair(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-w", "ben", "--"}, g.script("exit 9")...)...)
	running := func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 }
	pid := amy.until(id, "RUNNING with a pid", running).Tasks[0].PID
	ben.stop()
	start := time.Now()
	amy.untilNode("ben", "lost", func(n api.Node) bool {
		if n.State == "suspect" {
			t.Errorf("suspected though it said goodbye: got %+v", n)
		}
		return n.State == "lost" && strings.Contains(n.Detail, "was stopped")
	})
	amy.untilState(id, "UNREACHABLE")
	if took := time.Since(start); took > time.Second {
		t.Errorf("known as stopped after %s, want at most 1 s", took)
	}
	if !alive(pid) {
		t.Fatalf("process %d ended with its daemon", pid)
	}
	ben.start()
	if after := amy.until(id, "RUNNING with a pid", running); after.Tasks[0].PID != pid || after.Tasks[0].Attempt != 1 {
		t.Errorf("after: got %+v, want pid %d", after.Tasks[0], pid)
	}
	amy.untilNodes(2)
	g.open()
	if doc := amy.untilState(id, "FAILED"); *doc.ExitCode != 9 {
		t.Errorf("exit code %d, want 9", *doc.ExitCode)
	}
}
