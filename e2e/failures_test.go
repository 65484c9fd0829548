//go:build e2e

package e2e

// Daemons are killed, and no job is lost.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestClusterSurvivesItsBootstrapDaemon(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	amy.kill()
	id := ben.ok("submit", "-G", "H100:1", "--", "echo", "still here")
	if doc := ben.untilState(id, "SUCCEEDED"); doc.Tasks[0].Node != "cat" {
		t.Errorf("ran on %s, want cat", doc.Tasks[0].Node)
	}
	if out := cat.ok("logs", id); out != "still here" {
		t.Errorf("logs at cat: got %q, want %q", out, "still here")
	}
	ben.kill()
	start := time.Now()
	ben.start() // without an invitation, while its bootstrap host is gone
	ben.untilNodes(2)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("connected after %s, want at most 5 s", took)
	}
	id = ben.ok("submit", "-G", "H100:1", "--", "true")
	ben.untilState(id, "SUCCEEDED")
	id = cat.ok("submit", "-w", "ben", "--", "true")
	if doc := cat.untilState(id, "SUCCEEDED"); doc.Tasks[0].Node != "ben" {
		t.Errorf("ran on %s, want ben", doc.Tasks[0].Node)
	}
}

// An owner that cannot be reached is named in one line, with its addresses and what to do.
func TestSilentOwnerIsNamedInOneLine(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	id := amy.ok("submit", "--hold", "true")
	amy.kill()
	want := []string{"muster: owner amy of job " + id + " does not answer: no connection at ", "127.0.0.1:", "; try again when its daemon runs"}
	for _, verb := range []string{"show", "why", "cancel", "release"} {
		eventually(t, verb+" says who does not answer", func() bool {
			r := ben.muster(verb, id)
			if r.code != 1 || strings.Count(r.stderr, "\n") != 1 {
				t.Fatalf("%s: got %+v, want exit code 1 and one line", verb, r)
			}
			return containsAll(r.stderr, want) // an open connection may break first
		})
	}
	amy.start()
	ben.ok("cancel", id)
}

func TestTaskSurvivesItsDaemon(t *testing.T) {
	t.Parallel()
	amy, _, cat := three(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-G", "2", "--"}, g.script("echo after $$; exit 9")...)...)
	before := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	pid := before.Tasks[0].PID
	if since := time.Since(*before.Tasks[0].StartedAt); since < 0 || since > 30*time.Second {
		t.Errorf("its process began %s ago, want 0 to 30 s", since)
	}
	cat.kill()
	amy.untilState(id, "UNREACHABLE")
	if !alive(pid) {
		t.Fatalf("process %d ended with its daemon", pid)
	}
	cat.start()
	after := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	if after.Tasks[0].PID != pid || after.Tasks[0].Attempt != before.Tasks[0].Attempt || !alive(pid) ||
		!after.Tasks[0].StartedAt.Equal(*before.Tasks[0].StartedAt) {
		t.Errorf("before %+v, after %+v, want the same process", before.Tasks[0], after.Tasks[0])
	}
	g.open()
	doc := amy.until(id, "FAILED", func(j api.Job) bool { return j.State == "FAILED" })
	if doc.ExitCode == nil || *doc.ExitCode != 9 {
		t.Errorf("exit code %v, want 9", doc.ExitCode)
	}
	if !doc.Tasks[0].StartedAt.Equal(*before.Tasks[0].StartedAt) {
		t.Errorf("it began at %s while it ran, and at %s after its end, want the same", before.Tasks[0].StartedAt, doc.Tasks[0].StartedAt)
	}
	var first, second int // the pid that the process itself sees
	out := amy.ok("logs", id)
	if _, err := fmt.Sscanf(out, "before %d\nafter %d", &first, &second); err != nil || first != second {
		t.Errorf("logs: got %q, want the same pid twice", out)
	}
}

func TestEndWithoutADaemonIsReportedLater(t *testing.T) {
	t.Parallel()
	amy, _, cat := three(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-G", "8", "--"}, g.script("exit 6")...)...)
	doc := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	cat.kill()
	g.open()
	untilGone(t, doc.Tasks[0].PID)
	amy.untilState(id, "UNREACHABLE")
	cat.start()
	if doc := amy.until(id, "FAILED", func(j api.Job) bool { return j.State == "FAILED" }); *doc.ExitCode != 6 {
		t.Errorf("exit code %d, want 6", *doc.ExitCode)
	}
	id = amy.ok("submit", "-G", "8", "--", "true") // the devices are free again
	amy.untilState(id, "SUCCEEDED")
}

func untilGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for alive(pid) {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("process %d did not end", pid)
		}
	}
}

func TestJobsSurviveTheirOwner(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g := newGate(t)
	running := amy.ok(append([]string{"submit", "-G", "4", "--"}, g.script("exit 4")...)...)
	doc := amy.until(running, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	g2 := newGate(t)
	ends := amy.ok(append([]string{"submit", "-G", "4", "--"}, g2.script("exit 5")...)...)
	doc2 := amy.until(ends, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	pending := amy.ok("submit", "-G", "8", "--", "echo", "last")
	amy.kill()
	g2.open()
	untilGone(t, doc2.Tasks[0].PID)
	if !alive(doc.Tasks[0].PID) {
		t.Fatal("a task ended with the daemon that accepted it")
	}
	amy.start()
	known := func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 }
	if got := amy.until(running, "RUNNING with a pid", known); got.Tasks[0].PID != doc.Tasks[0].PID || got.Tasks[0].Attempt != doc.Tasks[0].Attempt ||
		!got.Tasks[0].StartedAt.Equal(*doc.Tasks[0].StartedAt) {
		t.Errorf("before %+v, after %+v, want the same process", doc.Tasks[0], got.Tasks[0])
	}
	if got := amy.untilState(ends, "FAILED"); *got.ExitCode != 5 {
		t.Errorf("exit code %d, want 5", *got.ExitCode)
	}
	g.open()
	if got := ben.untilState(running, "FAILED"); *got.ExitCode != 4 {
		t.Errorf("exit code %d, want 4", *got.ExitCode)
	}
	ben.untilState(pending, "SUCCEEDED")
	if out := ben.ok("logs", pending); out != "last" {
		t.Errorf("logs: got %q, want %q", out, "last")
	}
}

func TestSingleDaemonKeepsItsJobsOverARestart(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "sim:2xH100-80GB").start()
	id := amy.ok("submit", "-G", "1", "--", "echo", "alone")
	amy.untilState(id, "SUCCEEDED")
	amy.kill()
	amy.start()
	if doc := amy.show(id); doc.State != "SUCCEEDED" {
		t.Errorf("after a restart: got %+v, want SUCCEEDED", doc)
	}
	if out := amy.ok("logs", id); out != "alone" {
		t.Errorf("logs: got %q, want %q", out, "alone")
	}
}

// TestFullDiskRefusesJobsAndLosesNone fills the small file system of the data directory. While it is full, jobs are
// refused with that reason, and nothing is lost.
func TestFullDiskRefusesJobsAndLosesNone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	amy := newDaemon(t, "amy", "--gpus", "none")
	data := amy.dir + "/data"
	mountSmall(t, data, "96m")
	amy.start()
	id := amy.ok("submit", "--", "echo", "kept")
	amy.untilState(id, "SUCCEEDED")
	fill := fillDisk(t, data)
	amy.fails(1, []string{"disk"}, "submit", "--", "true")
	if doc := amy.show(id); doc.State != "SUCCEEDED" {
		t.Errorf("on a full disk the old job is %+v, want SUCCEEDED", doc)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	var again string
	deadline := time.Now().Add(patience)
	for again == "" && time.Now().Before(deadline) {
		if r := amy.muster("submit", "--", "echo", "again"); r.code == 0 {
			again = strings.TrimSpace(r.stdout)
		}
	}
	amy.untilState(again, "SUCCEEDED")
	amy.kill()
	amy.start()
	if doc := amy.show(id); doc.State != "SUCCEEDED" {
		t.Errorf("after a full disk and a restart: got %+v, want SUCCEEDED", doc)
	}
}
