//go:build e2e

package e2e

// Confinement of tasks by the real program: as root with cgroups, and as an ordinary user without.

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nobody = 65534

func TestTasksAreConfined(t *testing.T) {
	t.Run("root", func(t *testing.T) { bounded(t, newDaemon(t, "amy", "--gpus", "none").start()) })
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("the other test runs as this user")
		}
		d := newDaemon(t, "ben", "--gpus", "none", "--config", os.DevNull) // it may not read root's
		if err := os.Chown(d.dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		d.as = &syscall.Credential{Uid: nobody, Gid: nobody}
		d.user = d.as // it runs only the tasks of its own user
		bounded(t, d.start())
	})
}

// bounded submits jobs that exceed their limits, and checks how they end.
func bounded(t *testing.T, d *daemon) {
	id := d.ok("submit", "--", "true")
	d.untilState(id, "SUCCEEDED")
	isolation := d.show(id).Tasks[0].Isolation
	if isolation == "" || !strings.Contains(d.ok("show", id), isolation) || !strings.Contains(d.ok("doctor"), isolation) {
		t.Errorf("show and doctor: want how the task was confined: %q", isolation)
	}
	t.Log("confined by " + isolation)
	unbounded := func(what string) bool {
		if !strings.Contains(isolation, what) {
			t.Logf("%s does not bound %s", isolation, what)
			return true
		}
		return false
	}

	if !unbounded("memory") {
		hog := d.ok("submit", "--mem", "32MiB", "--", "sh", "-c", `x=$(head -c 314572800 /dev/zero | tr '\0' x); echo ${#x}`)
		if doc := d.untilState(hog, "OUT_OF_MEMORY"); *doc.ExitCode != 137 || !strings.Contains(doc.Reason, "it reached its limit of 32MiB; give it more with --mem") {
			t.Errorf("a task above its memory limit: got %+v, want 137 with the limit", doc)
		}
	}

	late := time.Duration(-1)
	for i := 0; i < 5 && (late < 0 || late >= 200*time.Millisecond); i++ { // a busy machine may cause a single delay
		id := d.ok("submit", "-t", "400ms", "--", "sleep", "100")
		task := d.untilState(id, "TIMEOUT").Tasks[0]
		late = task.EndedAt.Sub(*task.StartedAt) - 400*time.Millisecond
		if late < 0 {
			t.Errorf("ended %s before its time limit, want late at least 0", -late)
		}
	}
	if t.Logf("ended %s after the time limit", late); late >= 200*time.Millisecond {
		t.Errorf("ended %s after its time limit, five times, want less than 200 ms", late)
	}

	id = d.ok("submit", "-t", "2s", "--grace", "300ms", "--signal", "USR1@1700ms", "--", "sh", "-c", `trap 'echo warned' USR1; trap '' TERM; while :; do sleep 0.05; done`)
	task := d.untilState(id, "TIMEOUT").Tasks[0]
	if took := task.EndedAt.Sub(*task.StartedAt); took < 2300*time.Millisecond || took > 4*time.Second {
		t.Errorf("a task that ignores TERM ended after %s, want 2.3 to 4 s", took)
	}
	if out := d.ok("logs", id); out != "warned" {
		t.Errorf("output of a task that was warned before its limit: got %q, want %q", out, "warned")
	}
	d.fails(2, []string{"signal", "time limit"}, "submit", "--signal", "USR1@5s", "--", "true")

	id = d.ok("submit", "-D", "/no/such/dir", "--", "true")
	if doc := d.untilState(id, "FAILED"); !strings.Contains(doc.Tasks[0].Reason, "workdir /no/such/dir: no such directory on this node") {
		t.Errorf("got %+v, want that the directory does not exist", doc.Tasks[0])
	}

	left := d.ok("submit", "--", "sh", "-c", `(env -i setsid sleep 7654 &) ; sleep 0.2`)
	d.untilState(left, "SUCCEEDED")
	if pids := running("sleep\x007654\x00"); len(pids) > 0 {
		t.Errorf("processes of the task: got %v, want none", pids)
	}
}

// running returns the processes with a command line.
func running(line string) (pids []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err == nil && string(b) == line {
			pids = append(pids, e.Name())
		}
	}
	return pids
}
