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

// graces waits for what the main processes of tasks have left in the grace.
type graces struct {
	do      chan<- func() // runs a function in the loop
	procs   *processes
	leases  *leases
	awaited map[*task]bool // tasks whose processes a goroutine waits for
}

// outlived handles a task whose main process has ended and other processes have not. In the grace it waits for them, and
// calls settle when they have ended. Otherwise it has them killed.
func (g *graces) outlived(t *task, now time.Duration, settle func(*task)) {
	if g.awaited[t] && t.watch.inGrace() {
		return
	}
	var left []int
	if t.watch.inGrace() {
		left = g.procs.rest(t)
	}
	if len(left) == 0 { // at most commands of muster exec are left, which end with the task
		t.watch.leftovers(now)
		g.leases.look(t)
		return
	}
	g.awaited[t] = true
	all := g.open(t, left)
	go func() {
		for _, f := range all {
			proc.AwaitEnd(f)
			_ = f.Close() // nothing was written to it
		}
		g.do <- func() {
			delete(g.awaited, t)
			if t.phase == lingering {
				settle(t)
			}
		}
	}()
}

// open opens processes of a task, at most maxAwaited. It lists the task's processes once more after that, so that none is
// another process with a pid that was reused.
func (g *graces) open(t *task, pids []int) []*os.File {
	held := map[int]*os.File{}
	for _, pid := range pids[:min(len(pids), maxAwaited)] {
		if f, err := proc.Open(pid); err == nil {
			held[pid] = f
		}
	}
	still := g.procs.members(t)
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
