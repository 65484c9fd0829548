package runner

// The processes of tasks: listing and signalling them. Containers, control groups and parentage each need a way of
// their own.

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/proc"
)

// processes finds and signals the processes of tasks.
type processes struct {
	group    *cgroup.Tree // nil: no control groups
	walk     *walker
	tasks    *tasks
	oomKills int64 // OOM kills of the runner's own control group that are attributed to a task
}

// warn sends a signal to those processes of a task that handle it. If none does, all get it. Most tasks are a shell script
// around a program. A shell that does not handle the signal would die of it, and the program could not save its work.
// Slurm never signals the batch shell, unless the user asks for it with B:. Here a shell with a trap gets the signal.
func (p *processes) warn(t *task, sig unix.Signal) {
	members := p.members(t)
	handled := false
	for _, pid := range members {
		if start := proc.StartTicks(pid); start != 0 && proc.Handles(pid, sig) {
			proc.SignalProcess(pid, start, sig)
			handled = true
		}
	}
	if !handled {
		p.signal(t, sig)
	}
}

// members lists the processes of a task.
func (p *processes) members(t *task) []int {
	if t.container != nil {
		if t.container.process == nil {
			return nil
		}
		return t.container.process.Members()
	}
	if p.group != nil {
		return p.group.Members(t.name)
	}
	return p.walk.members(t)
}

// rest lists the processes for which the end of a task waits in the grace: all that live, except those of commands of
// muster exec.
func (p *processes) rest(t *task) []int {
	commands := map[int]bool{}
	for pid, x := range p.walk.execs.running {
		if x.task == t {
			for _, d := range proc.Descendants(pid) {
				commands[d] = true
			}
		}
	}
	return slices.DeleteFunc(p.members(t), func(pid int) bool { return commands[pid] || proc.Ended(pid) })
}

// signal signals all processes of a task.
func (p *processes) signal(t *task, sig unix.Signal) {
	if t.container != nil {
		t.container.signal(sig)
		return
	}
	if sig == unix.SIGKILL && t.space != nil {
		t.space.Kill() // ends all at once, those that are being forked included
		if p.group == nil {
			return
		}
	}
	if p.group != nil {
		p.group.Signal(t.name, sig)
		return
	}
	p.walk.signal(t, sig)
}

// end sends all processes of a task a signal that ends them. The task lives on until they have ended.
func (p *processes) end(t *task, sig unix.Signal) {
	if t.container != nil {
		t.container.end(sig)
		return
	}
	p.signal(t, sig)
}

// groupOf returns the directory of the control group that holds a task's processes, or "".
func (p *processes) groupOf(t *task) string {
	if p.group == nil || t.container != nil {
		return ""
	}
	return p.group.Group(t.name)
}

// empty reports whether a task whose main process has ended has no process left, but for the init of its namespace.
func (p *processes) empty(t *task) bool {
	if p.group != nil {
		return p.group.Empty(t.name)
	}
	return len(p.walk.members(t)) == 0
}

// forget removes the control group of a task that has no process.
func (p *processes) forget(t *task) {
	if p.group != nil {
		p.group.Empty(t.name)
	}
}

// killStrangers kills the processes that ended tasks left behind, once no task runs. Without control groups such a
// process may not be attributable to any task.
func (p *processes) killStrangers() {
	if p.group != nil || len(p.tasks.mains)+len(p.tasks.left) > 0 || p.tasks.starting() > 0 {
		return
	}
	for _, pid := range p.walk.strangers() {
		if start := proc.StartTicks(pid); start != 0 {
			proc.SignalProcess(pid, start, unix.SIGKILL)
		}
	}
}

// fullMemory reports whether a task has reached its limit of memory, as far as that is counted.
func (p *processes) fullMemory(t *task) bool { return p.group != nil && p.group.FullMemory(t.name) }

// outOfMemory reports whether the kernel's OOM killer killed processes of a task. If tasks have no OOM counters of
// their own, each OOM kill that the runner's own control group counts is attributed to one killed task.
func (p *processes) outOfMemory(t *task) bool {
	killed := t.record.Exit.Code == 128+int(unix.SIGKILL)
	if p.group != nil {
		if n, exact := p.group.OOMKills(t.name); n >= 0 {
			p.oomKills += n // the runner's own count includes them
			return n > 0 && (exact || killed)
		}
	}
	if !killed {
		return false
	}
	if n := cgroup.OOMKills(); n > p.oomKills {
		p.oomKills++
		return true
	}
	return false
}
