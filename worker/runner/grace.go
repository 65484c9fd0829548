package runner

// The grace of a task belongs to all its processes. A shell dies of TERM at once, while the program that it started saves
// its work.
//
// See docs/adr, ADR 159.

import (
	"os"
	"slices"
	"time"

	"github.com/musterhq/muster/worker/runner/proc"
)

// maxAwaited bounds the processes of a task that are waited for at the same time. Each takes a descriptor.
const maxAwaited = 64

// linger handles a task whose main process has ended and other processes have not. In the grace it waits for them. Otherwise
// it has them killed.
func (l *loop) linger(t *task, now time.Duration) {
	if !t.watch.inGrace() {
		t.watch.leftovers(now)
		l.leases.look(t)
		return
	}
	if t.awaited {
		return
	}
	left := l.procs.rest(t)
	if len(left) == 0 { // only commands of muster exec, which end with the task
		t.watch.leftovers(now)
		l.leases.look(t)
		return
	}
	t.awaited = true
	all := l.open(t, left)
	go func() {
		for _, f := range all {
			proc.AwaitEnd(f)
			_ = f.Close() // nothing was written to it
		}
		l.do <- func() {
			t.awaited = false
			if t.phase == lingering {
				l.settle(t, l.now())
			}
		}
	}()
}

// open opens processes of a task, at most maxAwaited. It lists the task's processes once more after that, so that none is
// another process with a pid that was reused.
func (l *loop) open(t *task, pids []int) []*os.File {
	held := map[int]*os.File{}
	for _, pid := range pids[:min(len(pids), maxAwaited)] {
		if f, err := proc.Open(pid); err == nil {
			held[pid] = f
		}
	}
	still := l.procs.members(t)
	all := make([]*os.File, 0, len(held))
	for pid, f := range held {
		if slices.Contains(still, pid) {
			all = append(all, f)
		} else {
			_ = f.Close() // nothing was written to it
		}
	}
	return all
}
