package runner

// The processes of a task on a host without control groups. They are found among the runner's descendants. A process that
// loses its parent becomes a child of the task's init, whatever session it is in. Without PID namespaces it becomes the
// runner's child, because the runner is the subreaper.

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
)

// walker finds and signals the processes of tasks by their parents.
type walker struct {
	tasks      *tasks
	execs      *execs
	containers *containerStarter
	spaces     bool // each task has a PID namespace, so that the runner gets no orphans of tasks as children
}

// owner returns the attempt that a stranger belongs to (see strangers), by its environment or its session. It returns
// false if the stranger has changed both. If the process is in the middle of an execve, owner waits for that, until end
// at the latest.
func (w *walker) owner(pid int, end time.Time) (job.Attempt, bool) {
	if a, ok := proc.AttemptOf(pid, end); ok {
		if _, known := w.tasks.all[a]; known {
			return a, true
		}
	}
	if sid, err := unix.Getsid(pid); err == nil {
		if t := w.tasks.mains[sid]; t != nil {
			return t.attempt, true
		}
		for a, t := range w.tasks.all {
			if t.pid == sid {
				return a, true
			}
		}
	}
	return job.Attempt{}, false
}

// strangers lists the runner's children that lost their parents. The kernel attaches them to the first live thread of
// the subreaper, which is the runner's main thread. The spawners' threads have only the main processes that they
// forked. So the short list of the main thread is enough.
func (w *walker) strangers() []int {
	if w.spaces {
		return nil
	}
	var all []int
	for _, pid := range proc.ChildrenOf(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())) {
		if w.tasks.mains[pid] == nil && pid != w.containers.guard && !proc.Ended(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// members lists the processes of a task, beginning with its main process if that lives. A process whose parent ends just now
// may be missing from a list, so an empty one is made again.
func (w *walker) members(t *task) []int {
	if all := w.list(t); len(all) > 0 {
		return all
	}
	return w.list(t)
}

func (w *walker) list(t *task) []int {
	var all []int
	if w.tasks.hasMain(t) {
		all = proc.Descendants(t.pid)
	}
	if t.space != nil {
		all = append(all, proc.Descendants(t.space.PID)[1:]...) // without init itself
	}
	for pid, x := range w.execs.running {
		if x.task == t {
			all = append(all, proc.Descendants(pid)...)
		}
	}
	end := time.Now().Add(proc.ExecTime)
	for _, pid := range w.strangers() {
		a, ok := w.owner(pid, end)
		if ok && a == t.attempt || !ok && (w.unclaimed(t, pid) || !w.tasks.hasMain(t) && proc.Dying(pid)) {
			all = append(all, proc.Descendants(pid)...)
		}
	}
	return all
}

// unclaimed reports whether a stranger without an owner is attributed to t: the main process of t has ended, and no
// running task is old enough to have started the stranger.
func (w *walker) unclaimed(t *task, pid int) bool {
	if w.tasks.hasMain(t) {
		return false
	}
	since := proc.StartTicks(pid)
	for _, other := range w.tasks.mains {
		if other.ticks <= since && other != t {
			return false
		}
	}
	for other := range w.tasks.left {
		if other.ticks <= since && other != t && other.watch.inGrace() {
			return false
		}
	}
	return w.tasks.starting() == 0 // a task that is being started may have forked the stranger
}

const (
	// maxStops bounds the rounds in which the processes of a task are stopped.
	maxStops = 50
	// stopPause is the pause before the next check whether all have stopped. A process that hangs in the kernel never
	// stops, so maxStops bounds the checks.
	stopPause = time.Millisecond
)

// signal signals every process of a task. KILL, TERM and HUP also reach processes that are being forked.
func (w *walker) signal(t *task, sig unix.Signal) {
	if sig != unix.SIGKILL && sig != unix.SIGTERM && sig != unix.SIGHUP {
		w.signalMembers(t, sig)
		return
	}
	stopped := w.stop(t)
	w.signalMembers(t, sig)
	if sig == unix.SIGKILL {
		return // they die as they are
	}
	for pid, start := range stopped {
		proc.SignalProcess(pid, start, unix.SIGCONT)
	}
}

// stop stops the processes of a task until all have stopped and none is new, and returns them with their starts. Otherwise a
// process that is forked just now would get no signal, and a task that forks faster than it is killed would never end.
func (w *walker) stop(t *task) map[int]uint64 {
	stopped := map[int]uint64{}
	for range maxStops {
		found, run := false, false
		for _, pid := range w.members(t) {
			switch start := proc.StartTicks(pid); {
			case start == 0:
			case stopped[pid] == 0:
				stopped[pid], found = start, true
				proc.SignalProcess(pid, start, unix.SIGSTOP)
			case !proc.Stopped(pid):
				run = true
			}
		}
		if !found && !run {
			break
		}
		if !found {
			time.Sleep(stopPause)
		}
	}
	return stopped
}

// signalMembers signals the process group of a task at once, then the processes outside of the group.
func (w *walker) signalMembers(t *task, sig unix.Signal) {
	all := w.members(t)
	main := w.tasks.hasMain(t) // not reaped, so its pid was not reused
	if main {
		_ = unix.Kill(-t.pid, sig) // the group exists: it has at least the zombie
	}
	for _, pid := range all {
		start := proc.StartTicks(pid)
		if start == 0 {
			continue
		}
		if group, err := unix.Getpgid(pid); main && err == nil && group == t.pid {
			continue // it got the signal with its group
		}
		proc.SignalProcess(pid, start, sig)
	}
}
