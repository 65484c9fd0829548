// Package proc reads from /proc what the kernel knows about processes, and signals processes.
//
// It reads one file for each question. gopsutil lists every process of the host for most of them, which a
// runner that asks after each end of a task cannot afford.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	// maxChildren bounds the text of a list of children: some 100,000 pids.
	maxChildren = 1 << 20
	// maxEnviron bounds how far an environment is searched for the mark; the
	// kernel takes no more than 2 MiB on most hosts.
	maxEnviron = 4 << 20
)

// children lists the direct children of a process. For the runner's own it is
// exact, as only the asking goroutine takes any off the list; for others it
// may miss some while they come and go, so ask again.
func children(pid int) []int {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, f := range files {
		all = append(all, ChildrenOf(f)...)
	}
	return all
}

// ChildrenOf reads the list of one thread; nothing if the thread is gone, as its
// children are another's then.
func ChildrenOf(path string) []int {
	b, err := ReadBounded(path, maxChildren)
	if err != nil {
		return nil
	}
	var all []int
	for word := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(word); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// Descendants lists a process and all below it.
func Descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// StartTicks is when a process began, in ticks since boot; with its pid it
// names one process for as long as the host runs. Zero if there is none.
func StartTicks(pid int) uint64 {
	f := statFields(pid)
	const starttime = 22 - 3 // the 22nd field of proc_pid_stat(5), counted from the third
	if len(f) <= starttime {
		return 0
	}
	n, err := strconv.ParseUint(f[starttime], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// statFields is /proc/PID/stat from its third field on: the second, the name
// of the program, may hold anything.
func statFields(pid int) []string {
	b, err := ReadBounded("/proc/"+strconv.Itoa(pid)+"/stat", MaxSmallFile)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// Ended says that a process is gone or only its status is left.
func Ended(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// Handles says that a process has a handler for a signal.
func Handles(pid int, sig unix.Signal) bool {
	b, err := ReadBounded("/proc/"+strconv.Itoa(pid)+"/status", MaxSmallFile)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && caught&(1<<(sig-1)) != 0
		}
	}
	return false
}

// Dying says that a process has given up its memory and so its environment, but
// is not yet only a status: it will run no more, and holds files still.
func Dying(pid int) bool {
	f := statFields(pid)
	const vsize = 23 - 3 // as starttime above
	return len(f) > vsize && f[vsize] == "0"
}

// AttemptOf reads from a process's environment which attempt it was started for.
func AttemptOf(pid int) (job.Attempt, bool) {
	b, err := ReadBounded("/proc/"+strconv.Itoa(pid)+"/environ", maxEnviron)
	if err != nil {
		return job.Attempt{}, false
	}
	var a job.Attempt
	for word := range bytes.SplitSeq(b, []byte{0}) {
		name, value, _ := strings.Cut(string(word), "=")
		switch name {
		case "MUSTER_JOB_ID":
			a.Job = job.ID(value)
		case "MUSTER_TASK":
			a.Task, err = strconv.Atoi(value)
		case "MUSTER_ATTEMPT":
			a.N, err = strconv.Atoi(value)
		default:
			continue
		}
		if err != nil {
			return job.Attempt{}, false
		}
	}
	return a, a.Valid() == nil
}

// SignalProcess signals one process unless its number has gone to another
// since its start was read.
func SignalProcess(pid int, start uint64, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if StartTicks(pid) != start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it is gone, or has made itself another user's: retried by whoever waits for its end
}

// AllPIDs lists the processes of the host.
func AllPIDs() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// Environ is the environment that a process was given at its start. While the kernel puts
// another program in the place of a process, the process has none yet: Environ waits for
// it, at most execTime.
func Environ(pid int) ([]string, error) {
	for end := time.Now().Add(execTime); ; time.Sleep(time.Millisecond) {
		b, err := ReadBounded("/proc/"+strconv.Itoa(pid)+"/environ", maxEnviron)
		switch {
		case err == nil && len(b) > 0:
			return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
		case err == nil && (Ended(pid) || Dying(pid)):
			err = os.ErrProcessDone
		case err == nil && (emptyEnviron(pid) || time.Now().After(end)):
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("runner: environment of task: %w", err)
		}
	}
}

// execTime is longer than an execve takes on a busy host.
const execTime = time.Second

// emptyEnviron says that a process was given an environment of nothing.
func emptyEnviron(pid int) bool {
	f := statFields(pid)
	const start, end = 50 - 3, 51 - 3 // as starttime above
	return len(f) > end && f[start] != "0" && f[start] == f[end]
}

// KillTree kills a process and all that it began.
func KillTree(pid int) {
	for _, pid := range Descendants(pid) {
		if start := StartTicks(pid); start != 0 {
			SignalProcess(pid, start, unix.SIGKILL)
		}
	}
}
