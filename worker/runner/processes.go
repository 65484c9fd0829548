package runner

// The processes of tasks: which there are, and signals to them. Containers, control groups and parentage each tell
// in a way of their own.

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/proc"
)

// processes finds and signals the processes of tasks.
type processes struct {
	group    *cgroup.Tree // nil: the host permits no control groups
	tasks    *tasks
	execs    *execs
	boxes    *boxes
	oomKills int64 // how many kills in the runner's own control group are accounted for
}

// warn sends a signal to those processes of a task that handle it. If none does, all get
// it. A shell that does not handle it would die of it, and the program that it started
// could not finish.
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
	if t.box != nil {
		if t.box.process == nil {
			return nil
		}
		return t.box.process.Members()
	}
	if p.group != nil {
		return p.group.Members(t.name)
	}
	return p.walkMembers(t)
}

// signal signals all processes of a task.
func (p *processes) signal(t *task, sig unix.Signal) {
	if t.box != nil {
		t.box.signal(sig)
		return
	}
	if p.group != nil {
		p.group.Signal(t.name, sig)
		return
	}
	if sig == unix.SIGKILL {
		p.walkKill(t)
		return
	}
	p.walkSignal(t, sig)
}

// empty says whether no process is left of a task whose main process ended.
func (p *processes) empty(t *task) bool {
	if p.group != nil {
		return p.group.Empty(t.name)
	}
	return len(p.walkMembers(t)) == 0
}

// forget removes the control group of a task that has no process.
func (p *processes) forget(t *task) {
	if p.group != nil {
		p.group.Empty(t.name)
	}
}

// killStrangers kills, while no task runs, what ended tasks left behind. Without
// control groups it may belong to none of them any more.
func (p *processes) killStrangers() {
	if p.group != nil || len(p.tasks.mains) > 0 || p.tasks.starting() > 0 {
		return
	}
	for _, pid := range p.strangers() {
		if start := proc.StartTicks(pid); start != 0 {
			proc.SignalProcess(pid, start, unix.SIGKILL)
		}
	}
}

// outOfMemory says whether the kernel killed processes of a task for lack of memory.
// If tasks have no counters of their own, each kill that the runner's own group counts
// is taken for one task that was killed.
func (p *processes) outOfMemory(t *task) bool {
	if p.group != nil {
		if n := p.group.OOMKills(t.name); n >= 0 {
			p.oomKills += n // they are in the runner's count, too
			return n > 0
		}
	}
	if t.record.Exit.Code != 128+int(unix.SIGKILL) {
		return false
	}
	if n := cgroup.OOMKills(); n > p.oomKills {
		p.oomKills++
		return true
	}
	return false
}
