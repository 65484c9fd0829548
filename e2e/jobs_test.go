//go:build e2e

package e2e

// The main path: jobs run where they fit, and any daemon shows them.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

func TestGPUJobRunsOnHostWithGPUs(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)

	id := amy.ok("submit", "-J", "train", "-G", "H100:2", "--", "sh", "-c", `echo "on $CUDA_VISIBLE_DEVICES"; echo done >&2`)
	out := ben.muster("logs", "-f", "--stdout", id)
	doc := ben.untilState(id, "SUCCEEDED")
	task := doc.Tasks[0]
	if task.Node != "cat" || len(task.GPUs) != 2 || task.ExitCode == nil || *task.ExitCode != 0 || task.StartedAt == nil || task.EndedAt == nil || task.EndedAt.Before(*task.StartedAt) {
		t.Errorf("show at ben: got %+v, want cat with 2 GPUs", task)
	}
	if want := "on " + strings.Join(task.GPUs, ",") + "\n"; out.stdout != want {
		t.Errorf("followed at ben: got %q, want %q", out.stdout, want)
	}
	if got := cat.ok("logs", "--stderr", id); got != "done" {
		t.Errorf("stderr: got %q, want %q", got, "done")
	}
	if gpus := amy.ok("gpus"); strings.Count(gpus, "Simulated") != 8 {
		t.Errorf("gpus: want each of the eight marked as simulated, got\n%s", gpus)
	}
	for _, uuid := range task.GPUs {
		if !strings.Contains(strings.ToLower(uuid), "sim") {
			t.Errorf("the UUID %s does not show that the GPU is simulated, want strings.ToLower(uuid) with %q", uuid, "sim")
		}
	}
	for _, word := range []string{"cat", "SUCCEEDED", "train", task.GPUs[0], "(sim)"} {
		if text := amy.ok("show", id) + amy.ok("gpus") + amy.ok("nodes"); !strings.Contains(text, word) {
			t.Errorf("show and gpus: want %q, got\n%s", word, text)
		}
	}
}

func TestRunExitsWithCodeOfJob(t *testing.T) {
	t.Parallel()
	amy, _, _ := three(t)
	if r := amy.muster("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); r.code != 7 || r.stdout != "out\n" || !strings.Contains(r.stderr, "err") {
		t.Errorf("exit %d, stdout %q, stderr %q, want 7, out, err", r.code, r.stdout, r.stderr)
	}
	if r := amy.muster("run", "--", "sh", "-c", "kill -9 $$"); r.code != 128+9 {
		t.Errorf("killed by signal 9: exit %d, want 137", r.code)
	}
	if r := amy.muster("run", "-t", "1s", "--grace", "1s", "--", "sleep", "60"); r.code != 124 {
		t.Errorf("time limit: exit %d, want 124\n%s", r.code, r.stderr)
	}
	r := amy.muster("run", "--", "no-such-program-xyz")
	if r.code != 127 || !strings.Contains(r.stderr, "no-such-program-xyz") {
		t.Errorf("a command that does not exist: exit %d, %s, want 127 and its name", r.code, r.stderr)
	}
	if doc := amy.show("last"); doc.State != "FAILED" || !strings.Contains(doc.Reason+doc.Tasks[0].Reason, "no-such-program-xyz") {
		t.Errorf("a command that does not exist: got %+v, want FAILED with its name", doc)
	}
}

func TestSecondJobWaitsForTheDevices(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g := newGate(t)
	first := amy.ok(append([]string{"submit", "-G", "8", "--"}, g.script("true")...)...)
	amy.untilState(first, "RUNNING")
	second := ben.ok("submit", "-G", "H100:8", "--", "true")
	doc := amy.until(second, "PENDING with a reason", func(j api.Job) bool { return j.State == "PENDING" && j.Reason != "" })
	if !strings.HasPrefix(doc.Reason, "Resources") {
		t.Errorf("the reason is %q, want Resources", doc.Reason)
	}
	if why := amy.ok("why", second); !strings.Contains(why, "Resources") || !strings.Contains(why, "gpus") {
		t.Errorf("why: want Resources and gpus, got\n%s", why)
	}
	g.open()
	a, b := amy.untilState(first, "SUCCEEDED"), ben.untilState(second, "SUCCEEDED")
	if gap := b.Tasks[0].StartedAt.Sub(*a.Tasks[0].EndedAt); gap < 0 {
		t.Errorf("the second started %s after the first ended, want at least 0", gap)
	}
}

func TestCancelFromAnotherDaemon(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-G", "1", "--"}, g.script("true")...)...)
	amy.untilState(id, "RUNNING")
	ben.ok("cancel", id, "--reason", "not needed")
	doc := cat.untilState(id, "CANCELLED")
	if alive(doc.Tasks[0].PID) {
		t.Errorf("process %d is still running", doc.Tasks[0].PID)
	}
	waiting := amy.ok(append([]string{"submit", "-G", "8", "--"}, g.script("true")...)...)
	amy.untilState(waiting, "RUNNING")
	pending := amy.ok("submit", "-G", "8", "--", "true")
	cat.ok("cancel", pending)
	if doc := amy.show(pending); doc.State != "CANCELLED" {
		t.Errorf("a pending job after cancel: got %s, want CANCELLED", doc.State)
	}
	cat.ok("cancel", waiting)
	amy.untilState(waiting, "CANCELLED")
}

func alive(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", itoa(pid)))
	return pid > 0 && err == nil
}

func TestImpossibleRequestIsRefusedWithReasons(t *testing.T) {
	t.Parallel()
	amy, _, _ := three(t)
	r := amy.fails(3, []string{"gpus"}, "submit", "-G", "A100:2", "--mem", "1MiB", "--", "true")
	for _, name := range []string{"amy", "ben", "cat"} {
		if !strings.Contains(r.stderr, name) {
			t.Errorf("the reason does not name %s:\n%s", name, r.stderr)
		}
	}
	if r.stdout != "" {
		t.Errorf("stdout %q, want nothing: it was not accepted", r.stdout)
	}
	if text := amy.ok("offers", "-G", "H100:4"); !strings.Contains(text, "cat") {
		t.Errorf("offers: want cat, got\n%s", text)
	}
}

func TestWaitExitsWithCodeOfJob(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	id := amy.ok("submit", "--", "sh", "-c", "exit 3")
	if r := ben.muster("wait", id); r.code != 3 {
		t.Errorf("wait: exit %d, want 3\n%s", r.code, r.stderr)
	}
	g := newGate(t)
	id = amy.ok(append([]string{"submit", "--"}, g.script("exit 5")...)...)
	amy.untilState(id, "RUNNING")
	g.open()
	if r := ben.muster("wait", id, "--timeout", "20s"); r.code != 5 {
		t.Errorf("wait: exit %d, want 5\n%s", r.code, r.stderr)
	}
}

func TestIdempotencyKeyGivesOneJob(t *testing.T) {
	t.Parallel()
	amy, _, _ := three(t)
	a := amy.ok("submit", "--idempotency-key", "k1", "--", "true")
	b := amy.ok("submit", "--idempotency-key", "k1", "--", "true")
	if a != b {
		t.Errorf("the same key gave %s and %s, want one job", a, b)
	}
	amy.fails(1, []string{"k1"}, "submit", "--idempotency-key", "k1", "--", "false")
}
