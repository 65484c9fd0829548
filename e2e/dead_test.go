//go:build e2e

package e2e

// A host is gone for good, and an operator declares it dead.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// heldOnCat starts an owner that runs nothing, and two workers. The job of each gate runs on cat, with partition: hold.
func heldOnCat(t *testing.T, gates ...gate) (amy, ben, cat *daemon, held []api.Job) {
	t.Helper()
	amy = newDaemon(t, "amy", "--no-worker").start()
	inv := amy.invite("--uses", "2")
	ben = newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(inv.flags()...)
	cat = newDaemon(t, "cat", "--gpus", "none", "--cpus", "4").start(inv.flags()...)
	for _, d := range []*daemon{amy, ben, cat} {
		d.untilNodes(3)
	}
	amy.ok("node", "drain", "ben")
	for _, g := range gates {
		file := filepath.Join(t.TempDir(), "job.yaml")
		text := "partition: hold\ncommand: [sh, -c, '" + g.script("exit 7")[2] + "']\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		id := amy.ok("submit", "-F", file)
		held = append(held, amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 }))
	}
	ben.ok("node", "resume", "ben")
	return amy, ben, cat, held
}

func (d *daemon) untilSilent(name string) {
	d.t.Helper()
	d.untilNode(name, "silent", func(n api.Node) bool { return n.State == "suspect" || n.State == "lost" })
}

func TestDeclaredDeadHostGivesUpItsTasks(t *testing.T) {
	t.Parallel()
	g, never := newGate(t), newGate(t)
	amy, ben, cat, held := heldOnCat(t, g, never)
	again, gone := string(held[0].ID), string(held[1].ID)
	ben.fails(1, []string{"node cat: conflict: it answers ben", "drain it instead"}, "node", "declare-dead", "cat")
	ben.fails(1, []string{"it answers you"}, "node", "declare-dead", "ben")
	cat.kill()
	cat.killRunners()
	for _, j := range held {
		untilGone(t, j.Tasks[0].PID)
		amy.untilState(string(j.ID), "UNREACHABLE")
	}
	amy.ok("cancel", gone)
	hint := "if that host is gone for good: muster node declare-dead cat"
	for _, out := range []string{amy.ok("show", gone), ben.ok("why", again)} {
		if !strings.Contains(out, "UNREACHABLE") || !strings.Contains(out, hint) {
			t.Errorf("want UNREACHABLE with the way to end it, got\n%s", out)
		}
	}
	ben.untilSilent("cat")
	r := ben.muster("node", "declare-dead", "cat")
	if r.code != 0 || r.stderr != "cat declared dead: 2 tasks given up by 1 daemon\n" {
		t.Fatalf("declare-dead: exit %d, %q %q, want 0 with 2 tasks", r.code, r.stdout, r.stderr)
	}
	if doc := ben.show(gone); doc.State != "CANCELLED" {
		t.Errorf("the cancelled job is %s, want CANCELLED", doc.State)
	}
	for _, d := range []*daemon{ben, amy} {
		d.waitLog(0, "node declared dead", "node=cat", "user=")
	}
	doc := amy.until(again, "RUNNING again", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	if doc.Tasks[0].Node != "ben" || doc.Tasks[0].Attempt != 2 {
		t.Errorf("runs on %s as attempt %d, want ben, 2", doc.Tasks[0].Node, doc.Tasks[0].Attempt)
	}
	if r := amy.muster("node", "declare-dead", "cat"); r.code != 0 || r.stderr != "cat declared dead: it had no tasks\n" {
		t.Errorf("declared dead again: exit %d, %q, want 0 with no tasks", r.code, r.stderr)
	}
	cat.start() // it was repaired and is a normal node again
	amy.untilNodes(3)
	amy.untilState(amy.ok("submit", "-w", "cat", "--", "true"), "SUCCEEDED")
	g.open()
	if doc := amy.untilState(again, "FAILED"); *doc.ExitCode != 7 || doc.Tasks[0].Attempt != 2 {
		t.Errorf("got %+v, want exit code 7 in attempt 2", doc.Tasks[0])
	}
}

// TestDeclaredDeadByMistakeEndsTheOldTasks declares a host dead whose runner is still running. Its tasks are ended as
// soon as its daemon is back. The new attempts go on.
func TestDeclaredDeadByMistakeEndsTheOldTasks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	amy, ben, cat, held := heldOnCat(t, g)
	id, pid := string(held[0].ID), held[0].Tasks[0].PID
	cat.kill()
	amy.untilState(id, "UNREACHABLE")
	ben.untilSilent("cat")
	ben.ok("node", "declare-dead", "cat", "--json")
	running := func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 && j.Tasks[0].Attempt == 2 }
	doc := amy.until(id, "RUNNING again", running)
	if doc.Tasks[0].Node != "ben" || !alive(pid) {
		t.Fatalf("runs on %s with the first process alive: got %v, want ben, true", doc.Tasks[0].Node, alive(pid))
	}
	cat.start()
	untilGone(t, pid)
	if after := amy.show(id); !running(after) || after.Tasks[0].PID != doc.Tasks[0].PID {
		t.Errorf("before %+v, after %+v, want the same process", doc.Tasks[0], after.Tasks[0])
	}
	g.open()
	if doc := amy.untilState(id, "FAILED"); *doc.ExitCode != 7 || doc.Tasks[0].Attempt != 2 {
		t.Errorf("got %+v, want exit code 7 in attempt 2", doc.Tasks[0])
	}
}
