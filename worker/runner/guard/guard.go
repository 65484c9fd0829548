// Package guard ends tasks whose lease is over if their runner does not: it was stopped, or hangs. The runner writes each
// task into a table in shared memory (Table), and both the runner and the daemon move deadlines later there. So a renewal
// counts even if a stopped runner has not read it.
//
// Two processes use the table. The guard is started by the runner, with its first task, and runs until the runner is
// dead; then it ends whatever the runner has left. The daemon looks a little later than the guard. Both wait for a moment
// after the deadline, so that usually the runner has ended the task in its own way, and both stay within the time after
// which the owner runs the task again (R4).
//
// A task has its place in the table before it has a process. So a runner that is stopped at any moment has no process of
// which the others do not know.
//
// See docs/adr, ADR 161.
package guard

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/proc"
)

const (
	// After is how long after a deadline the guard ends the task. R4 allows for 1 s and 3 % of the lease.
	After = 500 * time.Millisecond
	// DaemonAfter is how long after a deadline the daemon ends the task.
	DaemonAfter = time.Second
	// lookMost is the longest pause between two looks at the table. It is short enough, because no task is started with
	// less than 15 s of its lease.
	lookMost = 5 * time.Second
	// lateBy is how late a look may be before the process counts as one that stood still. Then it looks again after
	// hearFor, in which the others, who may have stood still too, can write what was renewed.
	lateBy  = time.Second
	hearFor = time.Second
)

// Watch finds the tasks of a table whose lease is over. Make one with NewWatch; one goroutine uses it.
type Watch struct {
	table *Table
	after time.Duration
	pause leaseclock.Watch
	next  time.Duration // when it should look next
	hears time.Duration // until when it finds nothing, so that others can write renewals
}

// NewWatch returns a watch that finds a task this long after its deadline.
func NewWatch(t *Table, after time.Duration) *Watch { return &Watch{table: t, after: after} }

// Look returns the tasks whose lease is over, and when to look again at the latest.
func (w *Watch) Look(r leaseclock.Reading) (over []Entry, wait time.Duration) {
	w.pause.Look(r)
	if w.next != 0 && r.Boot-w.next >= lateBy {
		w.hears = r.Boot + hearFor
	}
	next := r.Boot + lookMost
	for slot := 1; slot < w.table.used(); slot++ {
		e, ok := w.table.get(slot)
		if !ok || e.Deadline == Never {
			continue
		}
		due := e.Deadline - w.pause.Since(e.Skew) + w.after
		switch {
		case r.Boot < due:
			next = min(next, due)
		case r.Boot < w.hears:
			next = min(next, w.hears)
		case e.PID == 0:
			next = min(next, r.Boot+hearFor) // it may get a process
		default:
			over = append(over, e)
			next = min(next, r.Boot+hearFor) // until it is gone
		}
	}
	w.next = next
	return over, next - r.Boot
}

// All returns all tasks of the table.
func (t *Table) All() (all []Entry) {
	for slot := 1; slot < t.used(); slot++ {
		if e, ok := t.get(slot); ok {
			all = append(all, e)
		}
	}
	return all
}

// Kill kills the processes of a task, and reports whether there were any. It kills the control group as a whole, even if
// the main process has ended, because no other task gets this group (cgroup.Tree.Group).
func (e Entry) Kill() bool {
	if e.PID == 0 {
		return false
	}
	found := e.PID != Making && proc.StartTicks(e.PID) == e.Ticks && !proc.Ended(e.PID)
	if found {
		proc.SignalProcess(e.PID, e.Ticks, unix.SIGKILL) // if it is the first of a PID namespace, the kernel kills all others there
	}
	if e.Group != "" {
		found = cgroup.Populated(e.Group) || found
		cgroup.Kill(e.Group)
		return found
	}
	end := time.Now().Add(proc.ExecTime)
	for _, pid := range proc.AllPIDs() {
		start := proc.StartTicks(pid)
		if start == 0 || pid == e.PID || proc.Ended(pid) {
			continue
		}
		if a, ok := proc.AttemptOf(pid, end); !ok || a != e.Attempt {
			continue
		}
		proc.SignalProcess(pid, start, unix.SIGKILL)
		found = true
	}
	return found
}
