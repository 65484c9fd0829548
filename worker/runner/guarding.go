package runner

// The guard of a runner: what the runner tells it.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/proc"
)

// guarding keeps the table by which the guard of this runner and the daemon end tasks.
type guarding struct {
	table *guard.Table // nil: there is none
	slots map[*task]int
	log   *slog.Logger
	full  bool // that a task found no room was logged
}

// put tells of a task that has a process.
func (g *guarding) put(t *task, group string, skew time.Duration) {
	if g.table == nil {
		return
	}
	e := guard.Entry{Attempt: t.attempt, Group: group, PID: t.pid, Ticks: t.ticks, Deadline: t.watch.deadline, Skew: skew}
	if e.Deadline == 0 {
		e.Deadline = guard.Never
	}
	if t.space != nil {
		e.PID, e.Ticks = t.space.PID, 0
	}
	if e.Ticks == 0 {
		e.Ticks = proc.StartTicks(e.PID)
	}
	slot, err := g.table.Put(e)
	if err != nil {
		if !g.full {
			g.log.Warn("task has no guard", "attempt", t.name, "error", err)
		}
		g.full = true
		return
	}
	g.slots[t] = slot
}

// extend tells of a later deadline.
func (g *guarding) extend(t *task, skew time.Duration) {
	if slot, ok := g.slots[t]; ok {
		g.table.Extend(slot, t.watch.deadline, skew)
	}
}

// killed reports whether the guard or the daemon has killed a task.
func (g *guarding) killed(t *task) bool {
	slot, ok := g.slots[t]
	return ok && g.table.Killed(slot)
}

// free tells that a task has no process any more.
func (g *guarding) free(t *task) {
	if slot, ok := g.slots[t]; ok {
		g.table.Free(slot)
		delete(g.slots, t)
	}
}
