package docker

// The processes of a container as this host sees them.

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

// process is the first process of a container. With it the kernel ends all
// others of its PID namespace.
type process struct{ *os.Process }

// find holds a process, so that its number cannot come to mean another.
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

// diesWithin says whether it is dead in time.
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

// of says whether the process is really the container's: the engine may live in
// another PID namespace, or on another host.
func (p process) of(container string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.Pid))
	return err == nil && strings.Contains(string(b), container) && !p.diesWithin(0)
}

// members are the processes in the PID namespace of the first, but for
// docker-init, which is not the task's.
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

// signalAll reaches every member. False: it may not.
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

// signalIn signals a process if it still is in the namespace.
func signalIn(pid int, home string, sig unix.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // only lets go of it
	if ns, err := os.Readlink(namespaceOf(pid)); err != nil || ns != home {
		return nil
	}
	return p.Signal(sig)
}

// running is a container that runs, as its runner signals it.
type running struct {
	id    string
	init  bool // its first process is docker-init
	first process
	near  bool                   // first is its own, on this host
	kill  func(sig string) error // by the engine
	asked atomic.Bool
}

// askWithin bounds a signal that the engine has to send.
const askWithin = 20 * time.Second

// Signal reaches all processes of the container; see runner.Process. Where only
// the engine may, it reaches the first.
func (r *running) Signal(sig unix.Signal) {
	if sig == unix.SIGTERM || sig == unix.SIGKILL {
		r.asked.Store(true)
	}
	go func() {
		if r.near && r.first.signalAll(sig, r.init) {
			return
		}
		_ = r.kill(strconv.Itoa(int(sig))) // asked again by whoever wants its end
	}()
}

// Members are the container's processes; see runner.Process.
func (r *running) Members() []int {
	if !r.near {
		return nil
	}
	return r.first.members(r.init)
}
