// Package pidspace gives each task a PID namespace: the kernel ends all processes of the task when the runner ends,
// however it ends.
//
// The first process of a namespace is a program of our own, init, that does nothing but live. The kernel kills all other
// processes of the namespace when init ends, and init ends with the runner. The runner then starts the task's main
// process in the namespace, as a child of its own: so it learns how the process exited without asking init.
//
// The task also has a mount namespace with a /proc of its own, because ps, gdb and others look there for the pids that
// they were told. All other mounts are those of the host, unless package private adds some. A mount that the host makes
// later appears in the task, and one that the task makes does not appear in the host.
//
// A thread that starts a process in a namespace enters it (Space.Enter) and comes back (Maker.Leave). It must be locked to
// its goroutine, and must have called unshare(CLONE_FS). In between, paths lead through the mounts of the task, and /proc
// has no entry for this process.
//
// See docs/adr, ADR 158.
package pidspace

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// kinds are the namespaces that a task has of its own.
const kinds = unix.CLONE_NEWPID | unix.CLONE_NEWNS

// probeName is a path that never exists. Executing it shows whether a process can be started in a namespace.
const probeName = "/muster-probe"

// Maker makes namespaces. Its methods are safe for concurrent use.
type Maker struct {
	program *os.File     // init
	home    [2]int       // the PID and the mount namespace of the host
	alive   [2]int       // a pipe; init ends when nobody can write to it
	pids    int64        // pids are below it
	made    atomic.Int64 // how many namespaces were made, on top of a number that each maker begins with
}

// Space is the namespaces of one task. The zero value of *Space is none.
type Space struct {
	PID  int // of init, in the host's PID namespace
	init int // pidfd of init
}

// New returns a maker. The error says why this host permits no such namespaces. It must be called on a thread as the
// package describes.
func New() (*Maker, error) {
	m := &Maker{home: [2]int{-1, -1}, alive: [2]int{-1, -1}}
	err := m.open()
	if err == nil {
		err = m.try()
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("pidspace: %w", err)
	}
	return m, nil
}

// open opens what every namespace needs.
func (m *Maker) open() (err error) {
	if m.program, err = initProgram(); err != nil {
		return err
	}
	for i, name := range []string{"pid", "mnt"} {
		if m.home[i], err = unix.Open("/proc/thread-self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("namespaces of this process: %w", err)
		}
	}
	m.pids = maxPID()
	m.made.Store(int64(os.Getpid()))
	return unix.Pipe2(m.alive[:], unix.O_CLOEXEC)
}

// try makes a namespace and tries to execute a program in it. ENOENT means success: only the program was missing.
func (m *Maker) try() error {
	var before, inside unix.Stat_t
	if err := unix.Stat("/", &before); err != nil {
		return err
	}
	return m.Within(func() error {
		if err := unix.Stat("/", &inside); err != nil {
			return err
		}
		if _, err := syscall.ForkExec(probeName, []string{probeName}, &syscall.ProcAttr{}); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("start a process: %w", err)
		}
		if before.Dev != inside.Dev || before.Ino != inside.Ino {
			return errors.New("this process runs below a root directory of its own (chroot)")
		}
		return nil
	})
}

// Within calls f on this thread in namespaces that end when f returns. Nothing else may wait for every child of this
// process meanwhile.
func (m *Maker) Within(f func() error) error {
	s, err := m.Make()
	if err != nil {
		return err
	}
	defer func() {
		s.Kill()
		_, _ = unix.Wait4(s.PID, nil, 0, nil) // it is killed
		s.Close()
	}()
	if err := m.Enter(s); err != nil {
		return err
	}
	err = f()
	if back := m.Leave(); err == nil {
		err = back
	}
	return err
}

// Close closes what New has opened. Every init ends, and all processes of every namespace.
func (m *Maker) Close() {
	if m.program != nil {
		_ = m.program.Close() // nothing was written since
	}
	for _, fd := range append(m.home[:], m.alive[:]...) {
		if fd >= 0 {
			_ = unix.Close(fd) // holds no data
		}
	}
}

// Make makes namespaces and starts their init. The caller waits for that process like for any child.
func (m *Maker) Make() (*Space, error) {
	var ready [2]int
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pidspace: %w", err)
	}
	defer unix.Close(ready[0]) //nolint:errcheck // was only read
	fd := -1
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", m.program.Fd()), []string{initName}, &syscall.ProcAttr{
		Env:   initWords(lastPID(m.made.Add(1), m.pids)),
		Files: []uintptr{uintptr(m.alive[0]), uintptr(ready[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: kinds, PidFD: &fd},
	})
	_ = unix.Close(ready[1]) // init has its own
	if err != nil {
		return nil, fmt.Errorf("pidspace: start its init: %w", err)
	}
	s := &Space{PID: pid, init: fd}
	if fd < 0 {
		_ = unix.Kill(pid, unix.SIGKILL) // not reaped, so its pid was not reused
		return nil, errors.New("pidspace: the kernel has no pidfds")
	}
	var answer [1]byte
	for {
		n, err := unix.Read(ready[0], answer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 1 {
			return s, nil
		}
		s.Kill()
		s.Close()
		return nil, errors.New("pidspace: its init could not mount /proc")
	}
}

// Enter has the calling thread start its next processes in the namespaces. Its working directory is then /.
func (m *Maker) Enter(s *Space) error {
	if err := unix.Setns(s.init, kinds); err != nil {
		return fmt.Errorf("pidspace: enter: %w", err)
	}
	return nil
}

// Leave takes the calling thread back to the namespaces of the host. Its working directory is then /.
func (m *Maker) Leave() error {
	for i, kind := range []int{unix.CLONE_NEWPID, unix.CLONE_NEWNS} {
		if err := unix.Setns(m.home[i], kind); err != nil {
			return fmt.Errorf("pidspace: leave: %w", err)
		}
	}
	return nil
}

// Clone returns another handle for the same namespaces, which stays valid when s is closed. The clone of nil is nil.
func (s *Space) Clone() (*Space, error) {
	if s == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(s.init), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pidspace: %w", err)
	}
	return &Space{PID: s.PID, init: fd}, nil
}

// Kill kills init, and with it all processes of the namespace.
func (s *Space) Kill() {
	if s != nil {
		_ = unix.PidfdSendSignal(s.init, unix.SIGKILL, nil, 0) // it is gone
	}
}

// Close forgets the namespaces. Their processes go on.
func (s *Space) Close() {
	if s != nil {
		_ = unix.Close(s.init) // holds no data
	}
}
