package spawn

// Starting a task: its directory, its files, one fork.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/userfile"
)

// shell runs scripts without a #! line.
const shell = "/bin/sh"

// Run carries out orders until the channel is closed. It locks its goroutine to a thread: the kernel kills a task
// when the thread that forked it ends, so that no task outlives the runner. The thread has a working directory of its
// own, too.
func (s *Spawner) Run(orders <-chan *Order) {
	own := ownThread(s.Spaces, s.log)
	for o := range orders {
		late := time.AfterFunc(SlowStart, o.Slow)
		r := s.start(o, own)
		late.Stop()
		o.Done(r)
	}
}

func (s *Spawner) start(o *Order, own thread) Result {
	if err := s.makeDir(o); err != nil {
		return Result{Known: errors.Is(err, os.ErrExist), Err: fmt.Errorf("runner: make task directory: %w", err)}
	}
	o.claim.open()
	if o.Refused != nil {
		return Result{Err: o.Refused}
	}
	l, err := s.prepare(o)
	if err != nil {
		return Result{Err: err}
	}
	defer l.Close()
	if own.spaces != nil {
		if l.space, err = own.spaces.Make(); err != nil {
			return Result{Err: fmt.Errorf("runner: %w", err)}
		}
	}
	if s.Tmps != nil {
		s.Tmps.give(o, l)
		defer s.Tmps.takeBack(l)
	}
	making := s.making(o, l)
	if l.workdir.fd >= 0 {
		o.step.Store(stepWorkdir)
	}
	back, err := own.enter(l, nil)
	if err != nil {
		return Result{Err: err}
	}
	if !o.claim.make() {
		back()
		return Result{}
	}
	if err := making(); err != nil {
		back()
		return Result{Err: err}
	}
	r := s.fork(o, l)
	back()
	if r.Err == nil && s.Group == nil {
		s.note(o, &r)
	}
	return r
}

// making returns a function that calls Order.Making. It collects the arguments at once, while this thread is not yet in
// the namespaces of the task.
func (s *Spawner) making(o *Order, l *launch) func() error {
	if o.Making == nil {
		return func() error { return nil }
	}
	first, ticks, group := 0, uint64(0), ""
	if l.space != nil {
		first, ticks = l.space.PID, proc.StartTicks(l.space.PID)
	}
	if s.Group != nil {
		group = s.Group.Group(o.Name)
	}
	return func() error { return o.Making(first, ticks, group) }
}

// Mode is the mode of a task directory. Other users must be able to pass through it to their scratch directories.
func (s *Spawner) Mode() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// launch is what a fork needs.
type launch struct {
	path    string
	argv    []string
	becomes bool // a helper process executes the program (Become)
	attr    syscall.ProcAttr
	out     *pump.Outlet
	in      *os.File      // where its input is written; nil: it gets none
	ends    []int         // the task's ends of its pipes or its terminal
	group   *cgroup.Place // nil: none
	space   *pidspace.Space
	tmp     *TmpDir // nil: the /tmp of the host, or, for a command in a task, that of the task
	who     Account
	workdir workdir
	// programs are the paths of the program and its interpreters, as far as they are known.
	programs []string
}

func (l *launch) Close() {
	for _, fd := range l.ends {
		_ = unix.Close(fd) // the task has its own descriptors
	}
	if l.out != nil {
		l.out.Finish() // no process writes
	}
	if l.in != nil {
		_ = l.in.Close() // nothing was written
	}
	if l.group != nil {
		l.group.Close()
	}
	l.space.Kill() // no process was started in it
	l.space.Close()
	l.workdir.close()
}

func (s *Spawner) prepare(o *Order) (*launch, error) {
	who, err := AccountOf(o.Start.User, s.allowRoot)
	if err != nil {
		return nil, err
	}
	scratch := s.dir.Scratch(o.Attempt)
	if o.Start.Files != "" || !s.spares.give(scratch, who) {
		if err := makeScratch(scratch, o.Start.Files); err != nil {
			return nil, err
		}
	}
	if err := who.own(scratch); err != nil {
		return nil, err
	}
	l := &launch{who: who, workdir: workdir{scratch, -1}}
	if err := s.fill(o, l, scratch); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// fill looks up what the task's user named, and opens the task's streams and its control group.
func (s *Spawner) fill(o *Order, l *launch, scratch string) error {
	if err := l.findWorkdir(o); err != nil {
		return err
	}
	env, err := s.environment(o, l.who, scratch)
	if err != nil {
		return err
	}
	o.step.Store(stepCommand)
	if err := s.command(o, l, env); err != nil {
		return err
	}
	o.step.Store(stepOutput)
	if err := s.streams(o, l); err != nil {
		return err
	}
	o.step.Store(stepOwn)
	l.attr.Dir, l.attr.Env = scratch, env
	l.attr.Sys = &syscall.SysProcAttr{Setsid: true, Credential: l.who.cred, Pdeathsig: syscall.SIGKILL}
	l.attr.Sys.Setctty = o.Start.Input != nil && o.Start.Input.TTY // of descriptor 0
	if s.Group != nil {
		if l.group, err = s.Group.Place(o.Name, s.limits(o)); err != nil {
			return fmt.Errorf("runner: %w", err)
		}
		l.attr.Sys.UseCgroupFD, l.attr.Sys.CgroupFD = l.group.FD >= 0, l.group.FD
	}
	return nil
}

// findWorkdir opens the task's working directory: the one that its user named, or that of the submit if this host has
// it and the user may enter it.
func (l *launch) findWorkdir(o *Order) error {
	path := cmp.Or(o.Start.Workdir, o.Start.SubmitDir)
	if path == "" {
		return nil
	}
	o.step.Store(stepWorkdir)
	return l.who.As(func(t userfile.Thread) error {
		w, err := openWorkdir(t, l.who, path)
		if err == nil {
			l.workdir = w
		}
		if o.Start.Workdir == "" {
			return nil
		}
		return err
	})
}

// makeScratch makes the task's scratch directory: from the directory files, which holds its uploaded files, or empty
// if files is "".
func makeScratch(path, files string) error {
	err := error(nil)
	if files == "" {
		err = os.Mkdir(path, scratchMode)
	} else if err = os.Rename(files, path); err == nil {
		err = os.Chmod(path, scratchMode) //nolint:gosec // a directory
	}
	if err != nil {
		return fmt.Errorf("runner: make scratch directory: %w", err)
	}
	return nil
}

// environment returns the environment of the Start with the variables that only this host knows.
func (s *Spawner) environment(o *Order, who Account, scratch string) ([]string, error) {
	env := setVariable(o.Start.Env, "MUSTER_SCRATCH", scratch)
	if who.name != "" {
		env = setVariable(setVariable(env, "HOME", who.home), "USER", who.name)
	}
	if o.Start.Hostfile != "" {
		path, err := s.hostfile(o, who)
		if err != nil {
			return nil, err
		}
		env = setVariable(env, "MUSTER_HOSTFILE", path)
	}
	return env, nil
}

// command finds the program, or writes the script and finds its interpreter.
func (s *Spawner) command(o *Order, l *launch, env []string) error {
	if o.Start.Script == "" {
		l.argv = o.Start.Command
		return l.who.As(func(t userfile.Thread) error { return l.find(t, env) })
	}
	path := filepath.Join(s.dir.Task(o.Attempt), "script")
	// No fork may happen while the script is open for writing: the child would
	// hold it open, too, and the kernel executes no file that is.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(o.Start.Script), 0o700) //nolint:gosec // its owner executes it
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fmt.Errorf("runner: write script: %w", err)
	}
	if err := l.who.own(path); err != nil {
		return err
	}
	if strings.HasPrefix(o.Start.Script, "#!") {
		l.path, l.argv = path, append([]string{path}, o.Start.Args...)
		return l.who.As(l.look)
	}
	l.path, l.argv = shell, append([]string{shell, path}, o.Start.Args...)
	return nil
}

// streams makes the two pipes that the task writes to and, if it gets input, the one that it reads from. Or it makes
// its terminal.
func (s *Spawner) streams(o *Order, l *launch) (err error) {
	copies, err := l.copies(o)
	if err != nil {
		return err
	}
	log, in := output.NewWriter(s.dir.Task(o.Attempt), int64(o.Start.OutputLimit)), o.Start.Input
	if in != nil && in.TTY {
		return s.terminal(l, log, in, copies)
	}
	l.out, l.ends, err = s.Pump.Open(log, l.who.give, copies)
	if err != nil {
		return err
	}
	l.attr.Files = []uintptr{s.null.Fd(), uintptr(l.ends[0]), uintptr(l.ends[1])}
	if in != nil {
		return l.pipedInput()
	}
	return nil
}

func (s *Spawner) fork(o *Order, l *launch) Result {
	r := Result{Began: time.Now(), From: proc.BootTime()}
	pid, err := s.make(o, l)
	if errors.Is(err, unix.ENOEXEC) { // a script without a #! line, which shells run with /bin/sh
		l.path, l.argv = shell, append([]string{shell, l.path}, l.argv[1:]...)
		pid, err = s.make(o, l)
	}
	if err != nil {
		r.Err = whyNot(o, l, err)
		return r
	}
	r.PID, r.Who, r.Where = pid, l.who, l.workdir.path
	r.Out, r.In, r.Space, r.Tmp = l.out, l.in, l.space, l.tmp
	l.out, l.in, l.space, l.tmp = nil, nil, nil, nil
	return r
}

// make makes the process within its limits.
func (s *Spawner) make(o *Order, l *launch) (int, error) {
	fork := func() (int, error) { return l.forkExec(&s.score) }
	if most := o.Start.Limits.PIDs; most > 0 && (s.Group == nil || !s.Group.Bounds(cgroup.PIDs)) {
		bare := fork
		fork = func() (int, error) { return s.processes.during(most, bare) }
	}
	if l.group == nil {
		return fork()
	}
	return l.group.Fork(fork)
}

// note finds out when the main process has started, and records it on disk for the case that the runner dies. Appending
// a line to one file is cheaper than writing a file for each task.
func (s *Spawner) note(o *Order, r *Result) {
	r.Ticks = s.ticks.start(r.PID, r.From, proc.BootTime())
	b, err := json.Marshal(protocol.MainProcess{Attempt: o.Name, PID: r.PID, Ticks: r.Ticks})
	if err == nil {
		_, err = s.Notes.Write(append(b, '\n'))
	}
	if err != nil {
		s.log.Warn("task process not noted", "attempt", o.Name, "error", err)
	}
}

// whyNot turns an error of the fork into a StartError that people understand.
func whyNot(o *Order, l *launch, err error) error {
	what := "script"
	if o.Start.Script == "" {
		what = o.Start.Command[0]
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return Refuse(CodeNotExecutable, "cannot execute %s: %v", what, errNoLoader)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return l.denied(what)
	case errors.Is(err, unix.EAGAIN):
		return RefuseHere("cannot execute %s: user %s has as many processes as a task may have, or as the host allows", what, UserName(l.who))
	case errors.Is(err, unix.E2BIG):
		return Refuse(CodeNotExecutable, "cannot execute %s: the command and its environment are too long", what)
	}
	if isOne(err, exhausted) {
		return refuseStart(what, l.who, o.Start.Limits.Memory, err)
	}
	return refuseFor(err, "cannot execute %s: %v", what, err)
}

// UserName returns the name of an account for people, or its uid if it has no name.
func UserName(who Account) string {
	if who.name != "" {
		return who.name
	}
	return strconv.Itoa(who.UID)
}

// startIn tries to start a process in a control group.
func startIn(fd int) error {
	return tryStart(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd})
}
