package runner

// A runner that was paused: first it reads what has happened, then it decides.

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestPausedRunnerReadsBeforeItDecides stops the runner until all leases are over by what it knows. Meanwhile one task
// exits with 0, one is renewed, and about one there is no message.
func TestPausedRunnerReadsBeforeItDecides(t *testing.T) {
	t.Parallel()
	const exits, renewed, silent = 1, 2, 3
	const lease = 3 * sec
	d := newDaemon(t, polls)
	soon := d.start(exits, lease)
	soon.Command = []string{"sleep", "1"}
	deadline := soon.Deadline
	d.ask(protocol.Request{Start: soon})
	for _, n := range []int{renewed, silent} {
		s := d.start(n, lease)
		s.Deadline = deadline
		d.ask(protocol.Request{Start: s})
	}
	for begun := 0; begun < 3; {
		if m := d.next(); m.Started != nil {
			begun++
		}
	}
	if err := unix.Kill(d.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.ask(protocol.Request{Extend: []protocol.Extension{{Attempt: nameOf(renewed), Deadline: deadline + 600*sec, Skew: soon.Skew}}})
	time.Sleep(deadline + lateBy - d.read().Boot) // real processes: their leases end only as time passes
	if err := unix.Kill(d.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ends := d.ends(exits, silent)
	if e := ends[exits]; e.State != job.Succeeded {
		t.Errorf("a task that exited with 0 meanwhile: %+v, want State %v", e, job.Succeeded)
	}
	if e := ends[silent]; e.State != job.NodeFail || e.Reason != "lease ran out" {
		t.Errorf(`a task without a renewal: %+v, want State %v and Reason "lease ran out"`, e, job.NodeFail)
	}
	d.ask(protocol.Request{Stop: &protocol.Stop{Attempt: nameOf(renewed), Reason: "enough"}})
	if e := d.ends(renewed)[renewed]; e.State != job.Cancelled {
		t.Errorf("a task that was renewed meanwhile: %+v, want State %v", e, job.Cancelled)
	}
}
