package spawn

// Whether this host or the task's user is the cause of a failed start. What this host cannot start may start on another
// one. See docs/adr, ADR 169.

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

var (
	// exhausted are the errors of a host, of a group with a limit, or of a user's file system that has run out of something
	// that every start needs.
	exhausted = []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}
	// unreachable are the errors of a file system that another host may reach. They concern those who use that file system.
	unreachable = []unix.Errno{
		unix.EIO, unix.EREMOTEIO, unix.ESTALE, unix.ENOTCONN, unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ECONNREFUSED,
	}
)

// StartError is the reason why a task cannot be started, with the exit code for it.
type StartError struct {
	Code   int
	Text   string
	Host   bool // this host is the cause; with another code than CodeOurs, only for some of its users
	hidden bool // the file is in a directory that the user may not search
}

// Error returns the reason, for people.
func (r *StartError) Error() string { return r.Text }

// Refuse returns a StartError with an exit code. The host is the cause if the code is CodeOurs.
func Refuse(code int, format string, args ...any) error {
	return &StartError{Code: code, Text: fmt.Sprintf(format, args...), Host: code == CodeOurs}
}

// RefuseHere returns a StartError whose cause is this host, but which need not concern other users.
func RefuseHere(format string, args ...any) error {
	return &StartError{Code: CodeNotExecutable, Text: fmt.Sprintf(format, args...), Host: true}
}

// refuseFor returns a StartError for an error of the system about something that the user named. A file system may be the
// user's own, and falsely say that the host has run out of something. So the host counts as the cause only if it cannot
// open its own root either.
func refuseFor(err error, format string, args ...any) error {
	switch {
	case isOne(err, exhausted) && isOne(openRoot(), exhausted):
		return Refuse(CodeOurs, format, args...)
	case isOne(err, exhausted):
		return RefuseHere(format, args...)
	case isOne(err, unreachable):
		return RefuseHere(format, args...)
	}
	return Refuse(CodeNotExecutable, format, args...)
}

// openRoot tries to open a directory that no user has made.
func openRoot() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written to it
	}
	return err
}

// startsWithin is more memory than the start of a process takes from the limit of its task.
const startsWithin = 16 << 20

// refuseStart returns a StartError for a start that failed because something was exhausted. The host is the cause only if it
// cannot start another process of this user either, outside of the limits of the task. In a group with next to no memory the
// kernel says that there is none, or that there are too many open files.
func refuseStart(what string, who Account, memory job.Size, err error) error {
	switch {
	case isOne(tryStart(&syscall.SysProcAttr{Credential: who.cred}), exhausted):
		return Refuse(CodeOurs, "cannot execute %s: %v", what, err)
	case memory > 0 && memory < startsWithin:
		return Refuse(CodeNotExecutable, "cannot execute %s: its memory limit of %s is too small to start a process; give it more with --mem", what, memory)
	}
	return RefuseHere("cannot execute %s: %v", what, err)
}

// probeName is a path that never exists. Executing it shows whether a process can be started.
const probeName = "/proc/self/muster-probe"

// tryStart tries to start a process. ENOENT means success: only the program was missing.
func tryStart(as *syscall.SysProcAttr) error {
	_, err := syscall.ForkExec(probeName, []string{probeName}, &syscall.ProcAttr{Sys: as})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("start: %w", err)
}

func isOne(err error, of []unix.Errno) bool {
	return slices.ContainsFunc(of, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// ExitOf returns the exit of a task that was never started because of err. NODE_FAIL says that this host is the cause,
// as it is of every error that is not a StartError. The code is then CodeOurs if the host cannot start other tasks either.
func ExitOf(err error, now time.Time) job.Exit {
	exit := job.Exit{State: job.NodeFail, Code: CodeOurs, Reason: err.Error(), Began: now, Ended: now}
	if errors.Is(err, unix.EDQUOT) {
		exit.Code = CodeNotExecutable // only this user's space is used up
	}
	if r := (*StartError)(nil); errors.As(err, &r) {
		exit.Code = r.Code
		if !r.Host {
			exit.State = job.Failed
		}
	}
	return exit
}
