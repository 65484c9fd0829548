package spawn

// The threads that make processes.

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/timerslack"
	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/userfile"
)

// homeAgain is the pause between two tries to return a thread to the namespaces of the host. The kernel refuses that only
// for want of memory.
const homeAgain = 10 * time.Millisecond

// thread is a thread that makes processes.
type thread struct {
	moves  bool            // it has a working directory of its own, which some hosts do not permit
	spaces *pidspace.Maker // nil: processes start in the namespaces of the host
	log    *slog.Logger
}

// ownThread locks the calling goroutine to its thread. The processes that it forks have the kernel's timer slack, not
// ours.
func ownThread(spaces *pidspace.Maker, log *slog.Logger) thread {
	runtime.LockOSThread()
	_ = timerslack.Set(timerslack.Default) // every kernel can
	return thread{moves: unix.Unshare(unix.CLONE_FS) == nil, spaces: spaces, log: log}
}

// enter makes the next process start in the namespaces of its task, if the task has any, and in its working directory.
// Where it can, the thread itself changes there, with the rights of the task's user, until back is called. If the new
// process itself changed into a hung directory, the whole runner would stop, because vfork does not return until the
// process has executed its program.
//
// Look, unless nil, is called before the directory is entered, where paths lead through the mounts of the task.
func (own thread) enter(l *launch, look func() error) (back func(), err error) {
	inside := l.space != nil
	if inside {
		if err := own.spaces.Enter(l.space); err != nil {
			return nil, fmt.Errorf("runner: %w", err)
		}
		l.attr.Sys.Pdeathsig = 0 // it ends with its namespace; and the parent of its namespace's processes has no pid there
		if l.tmp != nil {
			if err := l.tmp.mount(); err != nil {
				own.log.Warn("task shares the /tmp of the host", "attempt", l.tmp.task, "error", err)
			}
		}
	}
	if look != nil {
		err = look()
	}
	if err == nil && l.workdir.fd >= 0 {
		err = own.changeDir(l)
	}
	if err != nil {
		own.leave(inside)
		return nil, err
	}
	return func() { own.leave(inside) }, nil
}

// changeDir changes into the working directory, or has the next process do so.
func (own thread) changeDir(l *launch) error {
	if !own.moves {
		l.attr.Dir = userfile.Name(l.workdir.fd)
		return nil
	}
	err := l.who.As(func(t userfile.Thread) error {
		if l.space == nil {
			return unix.Fchdir(l.workdir.fd)
		}
		return l.workdir.again(t)
	})
	if err != nil {
		return refuseFor(err, "workdir %s: %v", l.workdir.path, err)
	}
	l.attr.Dir = ""
	return nil
}

// leave leaves the task's directory and, if the thread is inside, its namespaces.
func (own thread) leave(inside bool) {
	err := error(nil)
	switch {
	case inside:
		err = own.home()
	case own.moves:
		err = unix.Chdir("/")
	}
	if err != nil {
		own.log.Error("spawner stays in the directory of a task", "error", err) // at worst its file system cannot be unmounted
	}
}

// home returns to the namespaces of the host. The thread must do nothing else before it is there: paths would lead through
// the mounts of a task.
func (own thread) home() error {
	for {
		err := own.spaces.Leave()
		if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EINTR) {
			return err
		}
		time.Sleep(homeAgain)
	}
}
