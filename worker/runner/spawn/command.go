package spawn

// Starting a command in a running task (muster exec): in its control groups, as its user, with its environment.

import (
	"os"
	"syscall"

	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/userfile"
)

// ExecOrder asks for a command in a running task.
type ExecOrder struct {
	protocol.Exec

	PID   int             // of the task's main process
	Space *pidspace.Space // of the task; nil: none
	Task  string          // name of the attempt
	Who   Account         // the user that the task runs as
	Where string          // the directory in which it started
	Files []*os.File

	claim claim
}

// Withdraw cancels the order. It returns false if it is too late: the process exists or is being made.
func (x *ExecOrder) Withdraw() bool { return x.claim.withdraw() }

// Withdrawn reports whether Withdraw has returned true.
func (x *ExecOrder) Withdrawn() bool { return x.claim.withdrawn() }

// RunExec makes the process of a command and passes the result to done. If there is a process, RunExec returns when
// over is closed. It needs a goroutine of its own for two reasons. Its thread may hang in the task's directory, and
// it has to live as long as the command: the kernel kills a process when the thread that forked it ends.
func (s *Spawner) RunExec(x *ExecOrder, done func(Result), over <-chan struct{}) {
	r := s.exec(x, ownThread(s.Spaces, s.log))
	for _, f := range x.Files {
		_ = f.Close() // the command has its own descriptors
	}
	x.Space.Close()
	done(r)
	if r.Err == nil {
		<-over
	}
}

// exec makes the process of a command.
func (s *Spawner) exec(x *ExecOrder, own thread) Result {
	env, err := proc.Environ(x.PID)
	if err != nil {
		return Result{Err: Refuse(CodeOurs, "the task is not running")}
	}
	if x.TTY && x.Term != "" {
		env = setVariable(env, "TERM", x.Term)
	}
	l := &launch{who: x.Who, argv: x.Command, workdir: noWorkdir, space: x.Space}
	l.attr = syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Credential: x.Who.cred, Pdeathsig: syscall.SIGKILL}}
	defer func() { l.workdir.close() }()
	back, err := own.enter(l, func() error {
		return x.Who.As(func(t userfile.Thread) (err error) {
			if l.workdir, err = openWorkdir(t, x.Who, x.Where); err != nil {
				return err
			}
			return l.find(t, env)
		})
	})
	if err != nil {
		return Result{Err: err}
	}
	defer back()
	for i := range 3 {
		l.attr.Files = append(l.attr.Files, x.Files[min(i, len(x.Files)-1)].Fd())
	}
	l.attr.Sys.Setctty = x.TTY // of descriptor 0
	if s.Group != nil {
		if l.group, err = s.Group.Join(x.Task); err != nil {
			return Result{Err: Refuse(CodeOurs, "the task is not running: %v", err)}
		}
		defer l.group.Close()
		l.attr.Sys.UseCgroupFD, l.attr.Sys.CgroupFD = l.group.FD >= 0, l.group.FD
	}
	if !x.claim.make() {
		return Result{Err: Refuse(CodeNotExecutable, "nobody waits for the command any more")}
	}
	r := Result{From: proc.BootTime()}
	fork := func() (int, error) { return l.forkExec(&s.score) }
	if l.group != nil {
		r.PID, err = l.group.Fork(fork)
	} else {
		r.PID, err = fork()
	}
	if err != nil {
		r.PID, r.Err = 0, Refuse(CodeNotExecutable, "cannot execute %s: %v", x.Command[0], err)
	}
	return r
}
