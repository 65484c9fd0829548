//go:build e2e

package e2e

// An owner that is away for longer than a lease, and the tasks that it has on other hosts.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// TestOwnersAbsenceEndsFencedTasksOnly checks that by default no task ends, and that the owner learns of ends when it
// is back. With --lease a task ends when its lease is over, and runs again.
func TestOwnersAbsenceEndsFencedTasksOnly(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--no-worker").start()
	cat := newDaemon(t, "cat", "--gpus", "none", "--cpus", "8").start(amy.invite().flags()...)
	amy.untilNodes(2)
	runs := func(flags []string, g gate) (id string, pid int) {
		t.Helper()
		id = amy.ok(append(append(append([]string{"submit"}, flags...), "--"), g.script("exit 0")...)...)
		doc := amy.until(id, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
		return id, doc.Tasks[0].PID
	}
	stays, ends, fenced := newGate(t), newGate(t), newGate(t)
	goesOn, pid := runs(nil, stays)
	ended, short := runs([]string{"--on-partition", "hold"}, ends)
	lost, fencedPID := runs([]string{"--lease", job.Duration(job.MinLease).String()}, fenced)
	for id, want := range map[string]string{goesOn: "a task goes on without contact", lost: "a task that has had no contact with amy for 30s ends on its node"} {
		if out := amy.ok("show", id); !strings.Contains(out, want) {
			t.Errorf("show: want %q, got\n%s", want, out)
		}
	}
	amy.fails(2, []string{"lease 1m: with partition hold no lease ends a task"}, "submit", "--on-partition", "hold", "--lease", "1m", "--", "true")
	amy.kill()
	ends.open()
	untilGone(t, short)
	untilRight(t, 2*job.MinLease, func() string {
		if alive(fencedPID) {
			return "the fenced task runs without a lease"
		}
		return ""
	})
	if !alive(pid) {
		t.Fatal("a task on hold ended because its owner was away")
	}
	amy.start()
	if doc := amy.untilState(ended, "SUCCEEDED"); doc.Tasks[0].Attempt != 1 {
		t.Errorf("a task that ended meanwhile: got attempt %d, want 1", doc.Tasks[0].Attempt)
	}
	after := amy.until(goesOn, "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
	if after.Tasks[0].PID != pid || after.Tasks[0].Attempt != 1 {
		t.Errorf("got process %d, attempt %d; want %d, 1", after.Tasks[0].PID, after.Tasks[0].Attempt, pid)
	}
	again := amy.until(lost, "RUNNING again", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 && j.Tasks[0].Attempt == 2 })
	if again.Tasks[0].PID == fencedPID {
		t.Error("the fenced task did not run again")
	}
	stays.open()
	amy.untilState(goesOn, "SUCCEEDED")

	waits := newGate(t) // a silent host, for which a cancel is kept
	silent, _ := runs(nil, waits)
	cat.kill()
	amy.untilState(silent, "UNREACHABLE")
	if r := amy.muster("cancel", silent); r.code != 0 || !strings.Contains(r.stderr, "cat does not answer: the task ends when the node is back") {
		t.Errorf("cancel: exit %d, %s, want 0 and the hint that cat does not answer", r.code, r.stderr)
	}
	if out := amy.ok("show", silent); !strings.Contains(out, "it is told to end the task when it is back") {
		t.Errorf("show of a cancelled task on a silent host: want the hint, got\n%s", out)
	}
	cat.start()
	amy.untilState(silent, "CANCELLED")
	fenced.open()
	amy.untilState(lost, "SUCCEEDED")
}

// TestStoppedRunnerRunsNothingTwice stops the runner of a host for longer than a lease, once with its daemon, and once
// on a host that is cut off while its daemon goes on. The task ends there before it runs elsewhere: both attempts take
// a lock.
func TestStoppedRunnerRunsNothingTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.daemons(3, "--gpus", "none", "--cpus", "1")
	n[0].ok("node", "drain", "n1")
	dir := t.TempDir()
	var ids, starts []string
	hosts := map[string]*daemon{}
	for i := range 2 {
		starts = append(starts, filepath.Join(dir, fmt.Sprint("starts", i)))
		script := fmt.Sprintf("exec 9> %s.lock; flock -n 9 || echo twice >> %[1]s; echo $MUSTER_ATTEMPT >> %[1]s; [ $MUSTER_ATTEMPT -gt 1 ] || sleep 1000", starts[i])
		ids = append(ids, n[0].ok("submit", "--lease", job.MinLease.String(), "--", "sh", "-c", script))
		doc := n[0].until(ids[i], "RUNNING with a pid", func(j api.Job) bool { return j.State == "RUNNING" && j.Tasks[0].PID > 0 })
		hosts[doc.Tasks[0].Node] = n[slices.IndexFunc(n, func(d *daemon) bool { return d.name == doc.Tasks[0].Node })]
	}
	if len(hosts) != 2 {
		t.Fatalf("the tasks run on %d hosts, want 2", len(hosts))
	}
	n[0].ok("node", "resume", "n1")
	stop := func(pids ...int) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // the process may be gone
		}
	}
	stop(n[1].runners()...)
	stop(n[1].cmd.Process.Pid)
	stop(n[2].runners()...)
	l.unplug(2)
	for i, id := range ids {
		untilRight(t, 2*job.MinLease+patience, func() string {
			if doc := n[0].show(id); !doc.State.Ended() {
				return fmt.Sprintf("%s (%s)", doc.State, doc.ReasonDetail)
			}
			return ""
		})
		text, err := os.ReadFile(starts[i])
		if got := strings.Fields(string(text)); err != nil || !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("the attempts wrote %q, %v, want 1 and 2", got, err)
		}
	}
}
