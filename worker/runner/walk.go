package runner

// The processes of a task where no control group can be had, found among the
// runner's children: it is their subreaper, so that whatever loses its parent
// becomes its child, session or not.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
)

// owner says whose child of the runner a stranger is: a process that is not
// the main one of a task. Its environment tells, or its session. One that has
// shed both is taken to belong to any task old enough to have begun it.
func (l *loop) owner(pid int) (job.Attempt, bool) {
	if a, ok := proc.AttemptOf(pid); ok {
		if _, known := l.tasks[a]; known {
			return a, true
		}
	}
	if sid, err := unix.Getsid(pid); err == nil {
		if t := l.mains[sid]; t != nil {
			return t.attempt, true
		}
		for a, t := range l.tasks {
			if t.pid == sid {
				return a, true
			}
		}
	}
	return job.Attempt{}, false
}

// strangers lists the runner's children that are not main processes. The kernel
// gives what loses its parent to the first thread of its subreaper that lives,
// and that is the runner's main thread for all its life; those forked by the
// starters' threads are main processes. So one short list is enough.
func (l *loop) strangers() []int {
	var all []int
	for _, pid := range proc.ChildrenOf(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())) {
		if l.mains[pid] == nil && pid != l.guard && !proc.Ended(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// walkMembers lists the processes of a task, the main one first if it lives.
func (l *loop) walkMembers(t *task) []int {
	var all []int
	if l.mains[t.pid] == t {
		all = proc.Descendants(t.pid)
	}
	for pid, x := range l.execs {
		if x.task == t {
			all = append(all, proc.Descendants(pid)...)
		}
	}
	for _, pid := range l.strangers() {
		a, ok := l.owner(pid)
		if ok && a == t.attempt || !ok && (l.unclaimed(t, pid) || l.mains[t.pid] != t && proc.Dying(pid)) {
			all = append(all, proc.Descendants(pid)...)
		}
	}
	return all
}

// unclaimed says whether a stranger without a mark falls to t: t has ended, and
// no task still runs that could have begun it.
func (l *loop) unclaimed(t *task, pid int) bool {
	if l.mains[t.pid] == t {
		return false
	}
	born := proc.StartTicks(pid)
	for _, other := range l.mains {
		if other.ticks <= born && other != t {
			return false
		}
	}
	return len(l.starting) == 0 // one that is being born may have begun it already
}

// walkEmpty says whether nothing is left of a task whose main process ended.
func (l *loop) walkEmpty(t *task) bool { return len(l.walkMembers(t)) == 0 }

// maxStops bounds the rounds in which a tree is brought to a stop.
const maxStops = 50

// walkKill ends every process of a task. They are stopped first, until no new
// one is found: what forks faster than it is killed would never end.
func (l *loop) walkKill(t *task) {
	stopped := map[int]bool{}
	for range maxStops {
		before := len(stopped)
		for _, pid := range l.walkMembers(t) {
			if start := proc.StartTicks(pid); start != 0 && !stopped[pid] {
				stopped[pid] = true
				proc.SignalProcess(pid, start, unix.SIGSTOP)
			}
		}
		if len(stopped) == before {
			break
		}
	}
	l.walkSignal(t, unix.SIGKILL)
}

// walkSignal reaches every process of a task: its process group at once, then
// those outside.
func (l *loop) walkSignal(t *task, sig unix.Signal) {
	all := l.walkMembers(t)
	main := l.mains[t.pid] == t // not waited for: its number is still its own
	if main {
		_ = unix.Kill(-t.pid, sig) // it has a zombie at least, so there is such a group
	}
	for _, pid := range all {
		start := proc.StartTicks(pid)
		if start == 0 {
			continue
		}
		if group, err := unix.Getpgid(pid); main && err == nil && group == t.pid {
			continue // it has the signal
		}
		proc.SignalProcess(pid, start, sig)
	}
}
