package spawn

// The threads that make processes.

import (
	"log/slog"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/timerslack"
	"github.com/musterhq/muster/worker/userfile"
)

// thread is a thread that makes processes.
type thread struct {
	moves bool // it has a working directory of its own, which some hosts do not permit
	log   *slog.Logger
}

// ownThread locks the calling goroutine to its thread. The processes that it forks have the kernel's timer slack, not
// ours.
func ownThread(log *slog.Logger) thread {
	runtime.LockOSThread()
	_ = timerslack.Set(timerslack.Default) // every kernel can
	return thread{moves: unix.Unshare(unix.CLONE_FS) == nil, log: log}
}

// enter has the next process start in its working directory. Where it can, the thread itself goes there, with the rights
// of the task's user, until it is called back. If the new process itself changed into a hung directory, the whole runner
// would stop, because vfork does not return until the process has executed its program.
func (own thread) enter(l *launch) (back func(), err error) {
	if !own.moves {
		l.attr.Dir = userfile.Name(l.workdir.fd)
		return func() {}, nil
	}
	if err := l.who.As(func(userfile.Thread) error { return unix.Fchdir(l.workdir.fd) }); err != nil {
		return nil, Refuse(CodeNotExecutable, "workdir %s: %v", l.workdir.path, err)
	}
	l.attr.Dir = ""
	return own.leave, nil
}

// leave leaves the task's directory.
func (own thread) leave() {
	if err := unix.Chdir("/"); err != nil {
		own.log.Error("spawner stays in the directory of a task", "error", err) // at worst its file system cannot be unmounted
	}
}
