package runner

// The guard of a runner: what the runner tells it.

import (
	"errors"
	"log/slog"
	"time"

	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// guarding keeps the table by which the guard of this runner and the daemon end tasks.
type guarding struct {
	table  *guard.Table // nil: there is none
	slots  map[*task]int
	fences bool        // as in protocol.Info
	keep   func() bool // starts the guard if it does not run, and reports whether it runs
	log    *slog.Logger
	full   bool // it was logged that the table had no room for a task
}

var (
	errNoTable = errors.New("there is no table of leases")
	errLapsed  = errors.New("runner: its lease is over")
)

// reserve takes a place in the table for a task that has no process yet. If the task must be fenced and would not be, the
// error says why it is refused.
func (g *guarding) reserve(t *task, s *protocol.Start, skew time.Duration) error {
	runs, err := g.keep(), errNoTable
	if g.table != nil {
		e := guard.Entry{Attempt: t.attempt, Deadline: t.watch.deadline, Skew: skew}
		if e.Deadline == 0 {
			e.Deadline = guard.Never
		}
		var slot int
		if slot, err = g.table.Put(e); err == nil {
			g.slots[t] = slot
		} else if !g.full {
			g.full = true
			g.log.Warn("task has no guard", "attempt", t.name, "error", err)
		}
	}
	switch {
	case !s.Fenced:
		return nil
	case err != nil:
		return spawn.RefuseHere("this node could not end it with its lease for certain: %v", err)
	case !runs:
		return spawn.RefuseHere("this node could not end it with its lease for certain: its guard does not run")
	case !g.fences:
		return spawn.RefuseHere("this node could not end it with its lease for certain: the kernel lets nobody end all processes of a task")
	}
	return nil
}

// making returns what a spawner calls when it is about to make the process of a task. It is nil if the task has no guard.
func (g *guarding) making(t *task, s *protocol.Start) func(first int, ticks uint64, group string) error {
	slot, there := g.slots[t]
	if !there {
		return nil
	}
	table := g.table
	return func(first int, ticks uint64, group string) error {
		if first == 0 {
			first = guard.Making
		}
		if err := table.SetProcess(slot, first, ticks, group); err != nil && s.Fenced {
			return spawn.RefuseHere("this node could not end it with its lease for certain: %v", err)
		}
		if table.Over(slot, proc.BootTime()) {
			return errLapsed
		}
		return nil
	}
}

// preparing tells the guard that the container of a task is about to be made.
func (g *guarding) preparing(t *task) {
	if slot, ok := g.slots[t]; ok {
		_ = g.table.SetProcess(slot, guard.Making, 0, "") // this cannot fail: only the name of a group may be too long, and it has none
	}
}

// started tells the guard the process of a task, unless the guard knows the first process of the task's PID namespace.
func (g *guarding) started(t *task, group string) {
	slot, ok := g.slots[t]
	if !ok || t.space != nil {
		return
	}
	ticks := t.ticks
	if ticks == 0 {
		ticks = proc.StartTicks(t.pid)
	}
	_ = g.table.SetProcess(slot, t.pid, ticks, group) // fails only if the name is too long, which making has refused for fenced tasks
}

// extend tells the guard a later deadline.
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

// free tells the guard that a task has no process any more.
func (g *guarding) free(t *task) {
	if slot, ok := g.slots[t]; ok {
		g.table.Free(slot)
		delete(g.slots, t)
	}
}
