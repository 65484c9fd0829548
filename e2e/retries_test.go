//go:build e2e

package e2e

// Tasks that run again: after some exit codes, because they ask for it, and because a person does.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// attempts returns the attempts of a job of one task in a few words.
func attempts(j api.Job) string {
	var words []string
	for _, a := range j.Tasks[0].Attempts {
		text := fmt.Sprintf("%d %s", a.Attempt, a.State)
		if a.ExitCode != nil {
			text += fmt.Sprintf(" %d", *a.ExitCode)
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// A task runs again only after the named exit codes, and each time on another node. All its attempts are shown, and
// their output can be read at every daemon.
func TestRetryOnlyOnNamedExitCodes(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	id := amy.ok("submit", "--retries", "5", "--retry-on", "75,137", "--", "sh", "-c",
		"echo attempt $MUSTER_ATTEMPT; [ $MUSTER_ATTEMPT = 2 ] && kill -9 $$; exit $((74 + MUSTER_ATTEMPT))")
	doc := amy.untilState(id, "FAILED")
	if got, want := attempts(doc), "1 FAILED 75, 2 FAILED 137, 3 FAILED 77"; got != want {
		t.Fatalf("got attempts %q, want %q", got, want)
	}
	list := doc.Tasks[0].Attempts
	for i := range list[1:] {
		if list[i].NodeID == list[i+1].NodeID {
			t.Errorf("attempts %d and %d ran on %s, want different nodes", list[i].Attempt, list[i+1].Attempt, list[i].Node)
		}
	}
	if list[1].Signal != 9 || list[0].StartedAt == nil || list[0].EndedAt == nil || list[0].EndedAt.Before(*list[0].StartedAt) {
		t.Errorf("got attempts %+v, want signal 9 and their times", list)
	}
	for n := 1; n <= 3; n++ {
		if out := ben.ok("logs", "--attempt", itoa(n), id); out != "attempt "+itoa(n) {
			t.Errorf("output of attempt %d: got %q, want %q", n, out, "attempt "+itoa(n))
		}
	}
	if out := ben.ok("logs", id); out != "attempt 3" {
		t.Errorf("output: got %q, want %q", out, "attempt 3")
	}
	if out := ben.ok("logs", "-n", "1", "-f", "--attempt", "2", id); out != "attempt 2" {
		t.Errorf("last line of attempt 2: got %q, want %q", out, "attempt 2")
	}
	if text := ben.ok("show", id); !containsAll(text, []string{"TASK  ATTEMPT", "0     1        " + list[0].Node, "signal 9", "0     3"}) {
		t.Errorf("show: want all attempts, got\n%s", text)
	}
	ben.fails(1, []string{"attempt \"4\": not found", "the newest attempt of job " + id + " is 3"}, "logs", "--attempt", "4", id)

	gone := list[0]
	for _, d := range []*daemon{amy, ben} {
		if d.name != gone.Node {
			continue
		}
		dirs, err := filepath.Glob(filepath.Join(d.dir, "data/run/tasks", id+"*.1"))
		if err != nil || len(dirs) != 1 {
			t.Fatalf("the output of attempt 1 is in %q, %v, want one directory", dirs, err)
		}
		if err := os.RemoveAll(dirs[0]); err != nil {
			t.Fatal(err)
		}
		amy.fails(1, []string{"output of attempt", ".1: not found: its node has never started it, or its output is gone: it is kept for 7 days"}, "logs", "--attempt", "1", id)
	}
	amy.fails(2, []string{"retry_on: it needs retries"}, "submit", "--retry-on", "75", "--", "true")
}

// A task that saves its state runs again soon. That costs no retry, and a wait goes on until the end.
func TestCheckpointExitCodeCostsNoRetry(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	dir := t.TempDir()
	id := amy.ok("submit", "--checkpoint-exit-code", "85", "--", "sh", "-c",
		fmt.Sprintf("echo $MUSTER_ATTEMPT >>%s/state; [ $(wc -l <%s/state) -lt 3 ] && exit 85; exit 0", dir, dir))
	amy.until(id, "waiting after a checkpoint", func(j api.Job) bool {
		return j.State == "PENDING" && j.Reason == "Backoff" && strings.Contains(j.ReasonDetail, "after it saved its state (exit code 85)")
	})
	if r := amy.muster("wait", id); r.code != 0 {
		t.Errorf("wait: exit %d, want 0: %s", r.code, r.stderr)
	}
	doc := amy.show(id)
	if got, want := attempts(doc), "1 PREEMPTED 85, 2 PREEMPTED 85, 3 SUCCEEDED 0"; got != want || doc.Tasks[0].Runs != 1 {
		t.Errorf("got attempts %q, want %q; got %d runs, want 1", got, want, doc.Tasks[0].Runs)
	}
	if state, err := os.ReadFile(filepath.Join(dir, "state")); err != nil || string(state) != "1\n2\n3\n" {
		t.Errorf("MUSTER_ATTEMPT: got %q, %v, want 1, 2 and 3", state, err)
	}
	if text := amy.ok("show", id); !strings.Contains(text, "it saved its state") {
		t.Errorf("show: want that it saved its state, got\n%s", text)
	}
	// It may also do so at its time limit.
	late := amy.ok("submit", "-t", "1s", "--checkpoint-exit-code", "85", "--", "sh", "-c",
		"[ $MUSTER_ATTEMPT = 2 ] && exit 0; trap 'exit 85' TERM; while :; do sleep 0.1; done")
	if r := amy.muster("wait", late); r.code != 0 {
		t.Errorf("wait: exit %d, want 0: %s", r.code, r.stderr)
	}
	// Another exit code is a failure, and hosts that run many such tasks are not paused.
	for range 6 {
		amy.ok("submit", "--checkpoint-exit-code", "85", "--", "sh", "-c", "[ $MUSTER_ATTEMPT = 1 ] && exit 85; exit 0")
	}
	failed := amy.ok("submit", "--checkpoint-exit-code", "85", "--", "sh", "-c", "exit 84")
	if r := amy.muster("wait", failed); r.code != 84 {
		t.Errorf("wait: exit %d, want 84: %s", r.code, r.stderr)
	}
}

// A requeue runs an ended job again, also after a restart of its owner, when only the disk has the job. A restart of
// the owner right after the requeue loses nothing.
func TestRequeueWorksAfterARestart(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	dir := t.TempDir()
	id := amy.ok("submit", "--", "sh", "-c", fmt.Sprintf("echo attempt $MUSTER_ATTEMPT; test -e %s/ready", dir))
	amy.untilState(id, "FAILED")
	amy.fails(1, []string{id + ".3", "not found"}, "requeue", id+".3")
	for range 2 {
		amy.kill()
		amy.start()
		newest := amy.show(id).Tasks[0].Attempt
		amy.ok("requeue", "--failed", id)
		amy.kill() // the rows of the job may not be saved yet
		amy.start()
		amy.until(id, "FAILED again", func(j api.Job) bool { return j.State == "FAILED" && j.Tasks[0].Attempt > newest })
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	amy.ok("requeue", id)
	if r := amy.muster("wait", id); r.code != 0 {
		t.Errorf("wait: exit %d, want 0: %s", r.code, r.stderr)
	}
	doc := amy.show(id)
	failed := 0
	for _, a := range doc.Tasks[0].Attempts {
		if a.ExitCode == nil || a.State == job.NodeFail {
			continue // the daemon was killed while or before it started this one
		}
		if out := amy.ok("logs", "--attempt", itoa(a.Attempt), id); out != "attempt "+itoa(a.Attempt) {
			t.Errorf("output of attempt %d: got %q, want %q", a.Attempt, out, "attempt "+itoa(a.Attempt))
		}
		failed += *a.ExitCode
	}
	if failed != 3 || doc.State != "SUCCEEDED" {
		t.Errorf("got attempts %q, want 3 failed ones and a success", attempts(doc))
	}
	amy.fails(1, []string{"none of its tasks has failed"}, "requeue", "--failed", id)
	if list := amy.ok("jobs", "--all"); strings.Count(list, id) != 1 {
		t.Errorf("jobs: want the job once, got\n%s", list)
	}
}

// A running task that is requeued ends before it runs again. A client that waits for the job or follows it does not see
// an end in between.
func TestRequeueOfARunningTaskShowsNoEnd(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	dir := t.TempDir()
	id := amy.ok("submit", "--", "sh", "-c", fmt.Sprintf("echo attempt $MUSTER_ATTEMPT; [ $MUSTER_ATTEMPT = 2 ] && exit 7; : >%s/runs; sleep 600", dir))
	first := amy.until(id, "RUNNING", func(j api.Job) bool {
		_, err := os.Stat(filepath.Join(dir, "runs"))
		return j.State == "RUNNING" && err == nil
	})
	waits, follows := make(chan result, 1), make(chan result, 1)
	go func() { waits <- ben.muster("wait", id) }()
	go func() { follows <- ben.muster("logs", "-f", id) }()
	time.Sleep(time.Second) // so that both wait; nothing shows that they do, and a later one sees the same
	ben.ok("requeue", "--reason", "stuck", id)
	if r := <-waits; r.code != 7 {
		t.Errorf("wait: exit %d, want 7: %s", r.code, r.stderr)
	}
	if r := <-follows; r.code != 0 || r.stdout != "attempt 1\nattempt 2\n" {
		t.Errorf("logs -f: exit %d, %q, %s, want 0 and both attempts", r.code, r.stdout, r.stderr)
	}
	doc := amy.show(id)
	if len(doc.Tasks[0].Attempts) != 2 {
		t.Fatalf("got attempts %q, want 2", attempts(doc))
	}
	if a := doc.Tasks[0].Attempts[0]; a.State != "CANCELLED" || a.Reason != "stuck" || a.NodeID != first.Tasks[0].NodeID {
		t.Errorf("attempt 1: got %+v, want CANCELLED with the reason", a)
	}
	if doc.State != "FAILED" || *doc.ExitCode != 7 {
		t.Errorf("the job is %s, want FAILED with 7", doc.State)
	}
}

// A requeued job has the files that were uploaded with it. If they are gone, it is refused.
func TestRequeueNeedsItsFiles(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := amy.in(dir, "submit", "--upload", ".", "--", "cat", "f").stdout
	id = strings.TrimSpace(id)
	amy.untilState(id, "SUCCEEDED")
	amy.kill()
	amy.start()
	amy.ok("requeue", id)
	doc := amy.until(id, "SUCCEEDED again", func(j api.Job) bool { return j.State == "SUCCEEDED" && j.Tasks[0].Attempt == 2 })
	if out := amy.ok("logs", id); out != "content" {
		t.Errorf("output: got %q, want %q", out, "content")
	}
	tree := filepath.Join(amy.dir, "data/blobs/trees", doc.Spec.Tree)
	if err := os.Remove(tree); err != nil {
		t.Fatal(err)
	}
	amy.fails(1, []string{"requeue " + id, "the files that were uploaded with it are gone (tree " + doc.Spec.Tree[:16], "submit it again"}, "requeue", id)
	if doc := amy.show(id); doc.State != "SUCCEEDED" || doc.Tasks[0].Attempt != 2 {
		t.Errorf("after that it is %s, want SUCCEEDED in attempt 2", doc.State)
	}
}
