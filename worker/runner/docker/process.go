package docker

// The processes of a container, seen from this host.

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// process is the first process of a container. When it ends, the kernel ends all other processes of its PID
// namespace.
type process struct{ *os.Process }

// find opens a process, so that later calls cannot reach another process that reuses its pid.
func find(pid int) (process, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return process{}, fmt.Errorf("docker: find process %d: %w", pid, err)
	}
	return process{p}, nil
}

func (p process) kill() error {
	err := p.Signal(unix.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// diesWithin waits at most d and reports whether the process is dead.
func (p process) diesWithin(d time.Duration) bool {
	dead := false
	err := p.WithHandle(func(fd uintptr) {
		for end := time.Now().Add(d); ; {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds())) //nolint:gosec // a descriptor is small
			if errors.Is(err, unix.EINTR) {
				continue
			}
			dead = n == 1
			return
		}
	})
	return dead || errors.Is(err, os.ErrProcessDone)
}

// of reports whether the process really belongs to the container. The engine may run in another PID namespace or on
// another host, where the pid means another process.
func (p process) of(container string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.Pid))
	return err == nil && strings.Contains(string(b), container) && !p.diesWithin(0)
}

// members lists the processes in the PID namespace of the first. With init it leaves out the first, which is
// docker-init and not part of the task.
func (p process) members(init bool) []int {
	home, err := os.Readlink(namespaceOf(p.Pid))
	if err != nil {
		return nil
	}
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || init && pid == p.Pid {
			continue
		}
		if ns, err := os.Readlink(namespaceOf(pid)); err == nil && ns == home {
			all = append(all, pid)
		}
	}
	return all
}

// signalAll signals every member. It returns false if it has no permission.
func (p process) signalAll(sig unix.Signal, init bool) bool {
	if sig == unix.SIGKILL {
		return p.kill() == nil
	}
	home, err := os.Readlink(namespaceOf(p.Pid))
	if err != nil {
		return p.diesWithin(0)
	}
	for _, pid := range p.members(init) {
		if errors.Is(signalIn(pid, home, sig), os.ErrPermission) {
			return false
		}
	}
	return true
}

func namespaceOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }

// signalIn signals a process if it is still in the namespace home.
func signalIn(pid int, home string, sig unix.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // only closes a descriptor
	if ns, err := os.Readlink(namespaceOf(pid)); err != nil || ns != home {
		return nil
	}
	return p.Signal(sig)
}

// running is a container with a process; it implements spawn.Process.
type running struct {
	id        string
	init      bool // its first process is docker-init
	first     process
	local     bool                   // first is a process of this host that we can see
	kill      func(sig string) error // signals the first process through the engine
	signalled atomic.Bool            // TERM or KILL was sent
	stop      unix.Signal            // what its command gets in place of TERM
	held      atomic.Bool            // docker-init is stopped until the other processes have ended
}

// askWithin bounds one request to the engine.
const askWithin = 20 * time.Second

// Signal signals all processes of the container. If only the engine has the permission, it signals only the first
// process.
func (r *running) Signal(sig unix.Signal) {
	if sig == unix.SIGTERM || sig == unix.SIGKILL {
		r.signalled.Store(true)
	}
	go func() {
		if sig == unix.SIGKILL && r.local && r.commandEnded() && r.release() {
			return // docker-init ends with the exit code of the command, and the kernel kills the others
		}
		if r.local && r.first.signalAll(sig, r.init) {
			return
		}
		_ = r.kill(strconv.Itoa(int(sig))) // callers that wait for the end try again
	}()
}

// Members lists the container's processes, or none if they cannot be seen from this host.
func (r *running) Members() []int {
	if !r.local {
		return nil
	}
	return r.first.members(r.init)
}
