// Package proc reads from /proc what the kernel knows about processes, and signals processes.
//
// Each function reads one file. The library gopsutil would list every process of the host for most of these
// questions. The runner asks them whenever a task ends, so that would be too slow. It would also be less exact, because
// processes start and end during the reading.
package proc

import (
	"bytes"
	"errors"
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
	// maxEnviron bounds the environment of a process; most kernels allow at most 2 MiB.
	maxEnviron = 4 << 20
)

// Children lists the direct children of a process. The list is exact for the runner itself, because only the calling
// goroutine reaps. For other processes it may miss children that come and go meanwhile, so call it again.
func Children(pid int) []int {
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

// ChildrenOf reads the list of one thread's children. It returns nil if the thread is gone, because its children then
// belong to another thread.
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

// Descendants lists a process, its children, their children and so on.
func Descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, Children(all[i])...)
	}
	return all
}

// StartTicks returns when a process started, in ticks since boot, or 0 if there is no such process. Pid and start
// together identify one process until the next reboot.
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

// statFields returns the fields of /proc/PID/stat from the third on. The second field, the program's name, may
// contain anything.
func statFields(pid int) []string {
	b, err := ReadBounded("/proc/"+strconv.Itoa(pid)+"/stat", MaxSmallFile)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// Ended reports whether a process is gone or a zombie.
func Ended(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// Stopped reports whether a process was stopped by a signal, or has ended.
func Stopped(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || strings.Contains("TtZX", f[0])
}

// Handles reports whether a process has a handler for a signal.
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

// Dying reports whether a process has released its memory, and so its environment, but is not yet a zombie. It
// executes no more code but may still hold files open.
func Dying(pid int) bool {
	f := statFields(pid)
	const vsize = 23 - 3 // as starttime above
	return len(f) > vsize && f[vsize] == "0"
}

// AttemptOf reads from a process's environment for which attempt it was started. Like Environ it waits for a process
// that executes another program, but only until end. So a caller that looks at many processes waits ExecTime at most.
func AttemptOf(pid int, end time.Time) (job.Attempt, bool) {
	env, err := environ(pid, end)
	if err != nil {
		return job.Attempt{}, false
	}
	var a job.Attempt
	for _, word := range env {
		name, value, _ := strings.Cut(word, "=")
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

// SignalProcess signals the process with this pid and start. It does nothing if the pid was reused since.
func SignalProcess(pid int, start uint64, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if StartTicks(pid) != start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it is gone, or runs as another user; callers that wait for its end try again
}

// Open opens a process for AwaitEnd. It returns an error if there is no such process.
func Open(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that Go's runtime can wait for it
	}
	if err != nil {
		return nil, fmt.Errorf("runner: open process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "process "+strconv.Itoa(pid)), nil
}

// AwaitEnd waits until a process that Open has opened has ended. Meanwhile it takes no thread, if the kernel permits that.
func AwaitEnd(process *os.File) {
	raw, err := process.SyscallConn()
	if err != nil {
		return // it was closed
	}
	ready := func(fd uintptr, within int) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, within) //nolint:gosec // a descriptor is small
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	if raw.Read(func(fd uintptr) bool { return ready(fd, 0) }) == nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // Go's runtime cannot wait for it on this kernel
		for !ready(fd, -1) {
		}
	})
}

// AwaitDeath waits until the process of a pidfd has ended. Meanwhile it takes a thread. With an error, the process may live.
func AwaitDeath(pidfd int) error {
	for {
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor is small
		switch _, err := unix.Poll(poll, -1); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("runner: wait for the end of a process: %w", err)
		case poll[0].Revents&unix.POLLIN != 0:
			return nil
		default:
			return fmt.Errorf("runner: wait for the end of a process: poll says %#x", poll[0].Revents)
		}
	}
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

// Environ returns the environment that a process was started with. While the kernel executes another program in the
// process, its environment is empty for a moment: Environ waits for that, at most ExecTime.
func Environ(pid int) ([]string, error) { return environ(pid, time.Now().Add(ExecTime)) }

func environ(pid int, end time.Time) ([]string, error) {
	for ; ; time.Sleep(time.Millisecond) {
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

// ExecTime is more than an execve takes on a busy host.
const ExecTime = time.Second

// emptyEnviron reports whether a process was started with an empty environment.
func emptyEnviron(pid int) bool {
	f := statFields(pid)
	const start, end = 50 - 3, 51 - 3 // as starttime above
	return len(f) > end && f[start] != "0" && f[start] == f[end]
}

// KillTree kills a process and its descendants.
func KillTree(pid int) {
	for _, pid := range Descendants(pid) {
		if start := StartTicks(pid); start != 0 {
			SignalProcess(pid, start, unix.SIGKILL)
		}
	}
}
