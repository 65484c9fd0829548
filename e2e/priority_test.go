//go:build e2e

package e2e

// The highest priority of users, and the state after urgent tasks.

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
)

// A user may give a priority of 50 at most, in whatever way, and an operator any. The refusal names the limit. A reload
// raises it.
func TestPriorityOfAUserIsLimited(t *testing.T) {
	asRoot(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}\n")
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--config", file).start()
	given := func(name, text string) string {
		path := filepath.Join(amy.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // the user reads and executes it
			t.Fatal(err)
		}
		return path
	}
	script := given("s.sh", "#!/bin/sh\n#MUSTER --priority=51\ntrue\n")
	file2 := given("job.yaml", "command: [\"true\"]\npriority: 51\n")
	words := []string{"priority 51 of user nobody is above 50", "limits.per_user.priority"}
	amy.user = ordinary
	for _, args := range [][]string{
		{"submit", "--priority", "51", "--", "true"},
		{"submit", "--hold", "--priority", "51", "--", "true"},
		{"submit", "--dry-run", "--priority", "51", "--", "true"},
		{"run", "--priority", "51", "--", "true"},
		{"offers", "--priority", "51", "--", "true"},
		{"submit", script},
		{"submit", "-F", file2},
		{"alloc", "--priority", "51", "--", "true"},
	} {
		amy.fails(3, words, args...)
	}
	id := amy.ok("submit", "--priority", "50", "--", "true")
	amy.untilState(id, "SUCCEEDED")
	if out := amy.ok("users"); !strings.Contains(out, "priority=50 on 1 node") {
		t.Errorf("users: want the limit, got\n%s", out)
	}
	amy.user = nil
	id = amy.ok("submit", "--priority", "100", "--", "true")
	amy.untilState(id, "SUCCEEDED")
	if out := amy.ok("config", "show", "--config", file); !strings.Contains(out, "per_user.priority=50") {
		t.Errorf("config show: want the limit, got\n%s", out)
	}

	from := amy.logged()
	write("limits: {users: {nobody: {priority: 80}}}\n")
	amy.signal(syscall.SIGHUP)
	amy.waitLog(from, "reloaded", "changed=[limits]")
	amy.user = ordinary
	id = amy.ok("submit", "--priority", "80", "--", "true")
	amy.untilState(id, "SUCCEEDED")
	amy.fails(3, []string{"above 80", "limits.users.nobody.priority"}, "submit", "--priority", "81", "--", "true")
}

// A scheduler lets its users give any priority. A job that no host takes because of its priority is refused with the
// limit's name. If such a job was accepted, it waits and says why; no host ends another task for it, and the others
// run. When the host raises the limit, it runs there at once.
func TestHostDecidesTheHighestPriority(t *testing.T) {
	asRoot(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "1", "--config", file).start()
	liar := newDaemon(t, "liar", "--gpus", "none", "--no-worker", "--limits", "per_user.priority=100").start(amy.invite().flags()...)
	amy.untilNodes(2)
	liar.untilNodes(2)
	if err := os.Chmod(amy.dir, 0o711); err != nil { //nolint:gosec // so that the user's tasks start there
		t.Fatal(err)
	}
	low := amy.ok("submit", "-c", "1", "--preemptible", "--priority", "10", "--grace", "1s", "--", "sleep", "600")
	amy.untilState(low, "RUNNING")

	liar.user = ordinary
	const why = "priority 100 of user nobody is above 50, the highest here (limits.per_user.priority)"
	liar.fails(3, []string{why, "ask an operator of a node to raise the limit"}, "submit", "-c", "1", "--priority", "100", "--", "true")
	high := liar.ok("submit", "--hold", "-c", "1", "--priority", "100", "--", "true")
	liar.ok("release", high)
	liar.until(high, "declined for its priority", func(j api.Job) bool {
		return j.State == "PENDING" && j.Reason == "NoMatch" && strings.Contains(j.ReasonDetail, why)
	})
	if out := liar.ok("why", high); !strings.Contains(out, why) {
		t.Errorf("why: want the limit, got\n%s", out)
	}
	other := liar.ok("submit", "-c", "1", "--priority", "50", "--", "true") // it needs the same, and is not mistaken for that job
	liar.untilState(other, "SUCCEEDED")
	if j := amy.show(low); j.Tasks[0].Attempt != 2 {
		t.Errorf("the preemptible task is at attempt %d, want 2, because only the task of priority 50 may end it", j.Tasks[0].Attempt)
	}

	from := amy.logged()
	if err := os.WriteFile(file, []byte("limits: {per_user: {priority: 100}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	amy.signal(syscall.SIGHUP)
	amy.waitLog(from, "reloaded", "changed=[limits]")
	liar.untilState(high, "SUCCEEDED")
}

// Urgent tasks preempt as many tasks as they need at once, and when they have ended, the preempted ones go on at once.
func TestNothingIdlesAfterPreemption(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	var lows []string
	for range 4 {
		lows = append(lows, amy.ok("submit", "-c", "1", "--preemptible", "--priority", "20", "--grace", "1s", "--", "sleep", "600"))
	}
	for _, id := range lows {
		amy.untilState(id, "RUNNING")
	}
	var highs []string
	for range 12 {
		highs = append(highs, amy.ok("submit", "-c", "1", "--priority", "90", "--", "sleep", "0.5"))
	}
	for _, id := range highs {
		amy.untilState(id, "SUCCEEDED")
	}
	for _, id := range lows {
		amy.untilState(id, "RUNNING")
	}
}
