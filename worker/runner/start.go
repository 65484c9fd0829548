package runner

// Starting a task: its directory, its files, one fork.

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// starters is how many tasks may be in the making at once, beside those that
	// hang.
	starters = 4
	shell    = "/bin/sh"
)

// starter makes processes. It has no state that changes but what its parts keep
// for themselves.
type starter struct {
	dir       protocol.Dir
	hosts     string // directory of the hostfiles
	answer    time.Duration
	allowRoot bool
	group     *cgroup.Tree // nil: none can be had
	null      *os.File
	pump      *pump
	notes     *os.File // without groups: the main processes, a line each
	nodes     nodes
	processes processBound
	guard     guard
	log       *slog.Logger
}

// started is what came of one start.
type started struct {
	pid   int
	ticks uint64
	began time.Time
	who   identity
	where string
	from  time.Duration // CLOCK_BOOTTIME before the fork
	known bool          // the attempt had a directory: nothing was started now
	out   *outlet
	err   error
}

// run carries out starts until there are no more. Its thread stays its own: a
// task dies with the thread that made it, so that none outlives the runner. It
// has a working directory of its own, too.
func (s *starter) run(l *loop) {
	moves := ownThread()
	for t := range l.starts {
		start := t.start
		late := time.AfterFunc(slowStart, func() {
			l.do <- func() { l.slow(t, start) }
		})
		r := s.start(t, moves)
		late.Stop()
		l.started(t, r)
	}
}

// ownThread makes this thread the caller's alone. Moves says that it has a
// working directory apart from that of the process, which some hosts do not
// permit.
func ownThread() (moves bool) {
	runtime.LockOSThread()
	return unix.Unshare(unix.CLONE_FS) == nil
}

func (s *starter) start(t *task, moves bool) started {
	if err := os.Mkdir(s.dir.Task(t.attempt), s.mode()); err != nil {
		return started{known: errors.Is(err, os.ErrExist), err: fmt.Errorf("runner: make task directory: %w", err)}
	}
	t.fate.open()
	if t.futile != nil {
		return started{err: t.futile}
	}
	l, err := s.prepare(t)
	if err != nil {
		return started{err: err}
	}
	defer l.close()
	if moves && t.start.Workdir != "" {
		t.step.Store(stepWorkdir)
		if err := s.goTo(l.who, l.where); err != nil {
			return started{err: err}
		}
		defer s.goBack()
		l.attr.Dir = ""
	}
	if !t.fate.born() {
		return started{}
	}
	return s.fork(t, l)
}

// mode lets another user pass to his scratch directory.
func (s *starter) mode() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// launch is all that a fork needs.
type launch struct {
	path    string
	argv    []string
	becomes bool // a process of its own executes it
	attr    syscall.ProcAttr
	out     *outlet
	ends    []int         // of its pipes, that the task writes to
	group   *cgroup.Place // nil: none
	who     identity
	where   string
}

func (l *launch) close() {
	for _, fd := range l.ends {
		_ = unix.Close(fd) // the task has its own
	}
	if l.out != nil {
		l.out.finish() // there is no process to write
	}
	if l.group != nil {
		l.group.Close()
	}
}

func (s *starter) prepare(t *task) (*launch, error) {
	who, err := identify(t.start.User, s.allowRoot)
	if err != nil {
		return nil, err
	}
	scratch := s.dir.Scratch(t.attempt)
	if err := makeScratch(scratch, t.start.Files); err != nil {
		return nil, err
	}
	if err := who.own(scratch); err != nil {
		return nil, err
	}
	l := &launch{who: who, where: scratch}
	if w := t.start.Workdir; w != "" {
		t.step.Store(stepWorkdir)
		if err := mayStart(who, w); err != nil {
			return nil, err
		}
		l.where = w
	}
	env, err := s.environment(t, who, scratch)
	if err != nil {
		return nil, err
	}
	t.step.Store(stepCommand)
	if err := s.command(t, l, env); err != nil {
		return nil, err
	}
	t.step.Store(stepOutput)
	if err := s.outputs(t, l); err != nil {
		l.close()
		return nil, err
	}
	t.step.Store(stepOwn)
	l.attr.Dir, l.attr.Env = l.where, env
	l.attr.Sys = &syscall.SysProcAttr{Setsid: true, Credential: who.cred, Pdeathsig: syscall.SIGKILL}
	if s.group != nil {
		if l.group, err = s.group.Place(t.name, s.limits(t)); err != nil {
			l.close()
			return nil, fmt.Errorf("runner: %w", err)
		}
		l.attr.Sys.UseCgroupFD, l.attr.Sys.CgroupFD = l.group.FD >= 0, l.group.FD
	}
	return l, nil
}

// makeScratch makes the task's own directory, of what it brought along if it
// did.
func makeScratch(path, files string) error {
	err := error(nil)
	if files == "" {
		err = os.Mkdir(path, 0o700)
	} else if err = os.Rename(files, path); err == nil {
		err = os.Chmod(path, 0o700) //nolint:gosec // a directory
	}
	if err != nil {
		return fmt.Errorf("runner: make scratch directory: %w", err)
	}
	return nil
}

// environment is the worker's, with what only this host knows.
func (s *starter) environment(t *task, who identity, scratch string) ([]string, error) {
	env := setVariable(t.start.Env, "MUSTER_SCRATCH", scratch)
	if who.name != "" {
		env = setVariable(setVariable(env, "HOME", who.home), "USER", who.name)
	}
	if t.start.Hostfile != "" {
		path, err := hostfile(s.hosts, t.start.Hostfile)
		if err != nil {
			return nil, err
		}
		env = setVariable(env, "MUSTER_HOSTFILE", path)
	}
	return env, nil
}

// command finds the program, or writes the script and finds who reads it.
func (s *starter) command(t *task, l *launch, env []string) error {
	if t.start.Script == "" {
		l.argv = t.start.Command
		return l.who.as(func() (err error) {
			if l.path, err = program(t.start.Command[0], l.where, env); err == nil {
				err = l.look()
			}
			return err
		})
	}
	path := filepath.Join(s.dir.Task(t.attempt), "script")
	// No fork may happen while the script is open for writing: the child would
	// hold it open, too, and the kernel executes no file that is.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(t.start.Script), 0o700) //nolint:gosec // it is to be executed, by its owner
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fmt.Errorf("runner: write script: %w", err)
	}
	if err := l.who.own(path); err != nil {
		return err
	}
	if strings.HasPrefix(t.start.Script, "#!") {
		l.path, l.argv = path, []string{path}
		return l.who.as(l.look)
	}
	l.path, l.argv = shell, []string{shell, path}
	return nil
}

// outputs makes the two pipes that the task writes to.
func (s *starter) outputs(t *task, l *launch) (err error) {
	copies, err := s.copies(t, l)
	if err != nil {
		return err
	}
	l.out, l.ends, err = s.pump.open(output.NewWriter(s.dir.Task(t.attempt), int64(t.start.OutputLimit)), l.who, copies)
	if err != nil {
		return err
	}
	l.attr.Files = []uintptr{s.null.Fd(), uintptr(l.ends[0]), uintptr(l.ends[1])}
	return nil
}

func (s *starter) fork(t *task, l *launch) started {
	r := started{began: time.Now(), from: proc.BootTime()}
	pid, err := s.born(t, l)
	if errors.Is(err, unix.ENOEXEC) { // a script without its #! line, as a shell would take it
		l.path, l.argv = shell, append([]string{shell, l.path}, l.argv[1:]...)
		pid, err = s.born(t, l)
	}
	if err != nil {
		r.err = whyNot(t, l, err)
		return r
	}
	r.pid, r.who, r.where = pid, l.who, l.where
	r.out, l.out = l.out, nil
	if s.group == nil {
		r.ticks = proc.StartTicks(pid)
		if err := s.note(t, pid, r.ticks); err != nil {
			s.log.Warn("task process not noted", "attempt", t.name, "error", err)
		}
	}
	return r
}

// born makes the process, within what bounds it.
func (s *starter) born(t *task, l *launch) (int, error) {
	fork := func() (int, error) { return s.guard.fork(l) }
	if most := t.start.Limits.PIDs; most > 0 && (s.group == nil || !s.group.Bounds(cgroup.PIDs)) {
		bare := fork
		fork = func() (int, error) { return s.processes.during(most, bare) }
	}
	if l.group == nil {
		return fork()
	}
	return l.group.Fork(fork)
}

// note keeps the main process's name for whoever finds the runner dead. One
// line in one file is cheaper than a file for each task.
func (s *starter) note(t *task, pid int, ticks uint64) error {
	b, err := json.Marshal(protocol.MainProcess{Attempt: t.name, PID: pid, Ticks: ticks})
	if err == nil {
		_, err = s.notes.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("runner: note process: %w", err)
	}
	return nil
}

// whyNot says for people what the kernel's word for a failed start means.
func whyNot(t *task, l *launch, err error) error {
	what := "script"
	if t.start.Script == "" {
		what = t.start.Command[0]
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return refuse(codeNotExecutable, "cannot execute %s: %v", what, errNoLoader)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return l.denied(what)
	case errors.Is(err, unix.EAGAIN):
		return refuse(codeNotExecutable, "cannot execute %s: user %s has as many processes as a task may have, or as the host allows", what, userName(l.who))
	case errors.Is(err, unix.E2BIG):
		return refuse(codeNotExecutable, "cannot execute %s: the command and its environment are too long", what)
	}
	code := codeNotExecutable
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		code = codeOurs
	}
	return refuse(code, "cannot execute %s: %v", what, err)
}

func userName(who identity) string {
	if who.name != "" {
		return who.name
	}
	return strconv.Itoa(who.uid)
}

// probeName is a path that cannot exist, to see whether a process can be born
// in a control group.
const probeName = "/proc/self/muster-probe"

// bornIn tries whether a process can be born in a control group: ENOENT means
// that only its program was missing.
func bornIn(fd int) error {
	_, err := syscall.ForkExec(probeName, []string{probeName}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd},
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("born: %w", err)
}

// exitOf is the end of a task that was never started.
func exitOf(err error, now time.Time) job.Exit {
	exit := job.Exit{State: job.Failed, Code: codeOurs, Reason: err.Error(), Began: now, Ended: now}
	if r := (*refusal)(nil); errors.As(err, &r) {
		exit.Code = r.code
	}
	return exit
}
