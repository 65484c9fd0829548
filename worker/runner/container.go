package runner

// Tasks that are containers: the loop watches over them as over processes, and
// asks Containers for all that an engine has to do.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// Containers runs containers. Package docker has the one for Docker.
type Containers interface {
	// Run takes a container from the pull of its image to its end, and returns
	// when no process of it is left. It calls b.Began once its process exists;
	// until then the end of ctx ends it. The exit says by Started whether a
	// process ever ran.
	Run(ctx context.Context, b Box) job.Exit
}

// Box is one container to run.
type Box struct {
	protocol.Container

	Attempt  job.Attempt
	Sources  Sources // of its mounts
	Limits   protocol.Limits
	Command  []string // empty: the image's own
	Workdir  string   // inside; empty: the image's own
	Env      []string
	Scratch  string // directory of this host, to be found inside at the same path
	Files    []string
	UID, GID int
	Groups   []uint32
	Out, Err io.Writer

	Progress func(text string) // what is being waited for, for people
	Began    func(pid int, p Process)
}

// Process is a container that runs.
type Process interface {
	// Signal reaches all processes of the container. It does not wait.
	Signal(sig unix.Signal)
	// Members are its processes, as far as this host sees them.
	Members() []int
}

// box is the container of a task, as the loop sees it.
type box struct {
	cancel  context.CancelFunc // ends what comes before its process
	process Process            // nil: not begun
}

func (b *box) signal(sig unix.Signal) {
	if b.process == nil {
		b.cancel()
		return
	}
	b.process.Signal(sig)
}

// contain begins the container of a task. The watch looks after it from now on,
// as its pull may outlast the lease.
func (l *loop) contain(t *task) {
	ctx, cancel := l.lasting()
	t.box = &box{cancel: cancel}
	t.watch.alive = true
	l.look(t)
	l.keepGuard()
	own := &task{attempt: t.attempt, name: t.name, start: t.start}
	go func() {
		defer cancel()
		exit, known := l.runBox(ctx, t, own)
		if known {
			l.do <- func() {
				t.watch.alive = false
				l.look(t)
				l.seen(t)
			}
			return
		}
		l.do <- func() { l.boxEnded(t, exit) }
	}()
}

// runBox is the life of a container, in a goroutine of its own; own is a copy
// of the task that nobody else touches. Known says that an earlier runner had
// the attempt.
func (l *loop) runBox(ctx context.Context, t, own *task) (exit job.Exit, known bool) {
	if l.cfg.Containers == nil {
		return exitOf(refuse(codeNotExecutable, "this runner has no container engine"), time.Now()), false
	}
	if err := os.Mkdir(l.dir.Task(own.attempt), l.starter.mode()); err != nil {
		return exitOf(fmt.Errorf("runner: make task directory: %w", err), time.Now()), errors.Is(err, os.ErrExist)
	}
	b, files, err := l.starter.pack(ctx, own)
	if err != nil {
		return exitOf(err, time.Now()), false
	}
	defer files.close()
	defer b.Sources.Close()
	b.Progress = func(text string) { l.do <- func() { l.boxWaits(t, text) } }
	b.Began = func(pid int, p Process) { l.do <- func() { l.boxBegan(t, pid, p) } }
	exit = l.cfg.Containers.Run(ctx, b)
	exit.Tail, files.out = files.out.finish(), nil
	return exit, false
}

// pack makes the files of a container on this host. Closing the launch closes
// its outputs.
func (s *starter) pack(ctx context.Context, t *task) (b Box, _ *launch, err error) {
	who, err := inside(t.start.User, t.start.Container.As, s.allowRoot)
	if err != nil {
		return Box{}, nil, err
	}
	dir := s.dir.Task(t.attempt)
	b = Box{
		Container: *t.start.Container, Attempt: t.attempt, Limits: t.start.Limits, Command: t.start.Command, Workdir: t.start.Workdir,
		Scratch: s.dir.Scratch(t.attempt), UID: who.uid, GID: who.gid,
	}
	if b.Workdir == "" && (t.start.Files != "" || t.start.Keeps) {
		b.Workdir = b.Scratch // what it brought along is there, and what it leaves is looked for there
	}
	if who.cred != nil {
		b.Groups = who.cred.Groups
	}
	if b.Sources, err = s.sources(ctx, who, b.Mounts); err != nil {
		return Box{}, nil, err
	}
	defer func() {
		if err != nil {
			b.Sources.Close()
		}
	}()
	if err := makeScratch(b.Scratch, t.start.Files); err != nil {
		return Box{}, nil, err
	}
	if err := who.own(b.Scratch); err != nil {
		return Box{}, nil, err
	}
	who.home = b.Scratch // the one of this host is not inside
	if b.Env, err = s.environment(t, who, b.Scratch); err != nil {
		return Box{}, nil, err
	}
	if variable(b.Env, "HOME", "") == "" {
		b.Env = setVariable(b.Env, "HOME", b.Scratch)
	}
	if t.start.Hostfile != "" {
		b.Files = append(b.Files, variable(b.Env, "MUSTER_HOSTFILE", ""))
	}
	l := &launch{who: who, where: b.Scratch}
	if t.start.Script != "" {
		if err := s.command(t, l, b.Env); err != nil {
			return Box{}, nil, err
		}
		b.Command = l.argv
		b.Files = append(b.Files, filepath.Join(dir, "script"))
	}
	l.out = &outlet{pump: s.pump, writer: output.NewWriter(dir, int64(t.start.OutputLimit))}
	b.Out, b.Err = inlet{l.out, output.Stdout}, inlet{l.out, output.Stderr}
	return b, l, nil
}

// inside is the user that a container runs as: him who submitted the task,
// unless the owner of this host has named another for all.
func inside(user, as string, allowRoot bool) (identity, error) {
	who, err := identify(user, allowRoot)
	if err != nil || as == "" {
		return who, err
	}
	uid, gid, err := ParseUser(as)
	if err != nil {
		return who, refuse(codeNotExecutable, "%v", err)
	}
	if os.Geteuid() != 0 && uid != os.Geteuid() {
		return who, refuse(codeNotExecutable, "user %s for containers: only a daemon of root can give files to others", as)
	}
	other := identity{name: who.name, uid: uid, gid: gid}
	if os.Geteuid() == 0 {
		other.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ParseUser bounds both
	}
	return other, nil
}

// ParseUser reads UID or UID:GID; without GID it is the same as UID.
func ParseUser(text string) (uid, gid int, err error) {
	u, g, both := strings.Cut(text, ":")
	if !both {
		g = u
	}
	a, errU := strconv.ParseUint(u, 10, 31)
	b, errG := strconv.ParseUint(g, 10, 31)
	if errU != nil || errG != nil {
		return 0, 0, fmt.Errorf("user %.40q: want UID or UID:GID", text)
	}
	return int(a), int(b), nil //nolint:gosec // 31 bits
}

// boxWaits passes on what keeps a container from beginning.
func (l *loop) boxWaits(t *task, text string) {
	if t.pid == 0 {
		l.report(protocol.Report{Progress: &protocol.Progress{Attempt: t.name, Detail: clip(text)}})
	}
}

// boxBegan takes note that a container runs. Its time limit begins here: the
// pull does not count.
func (l *loop) boxBegan(t *task, pid int, p Process) {
	t.start = nil
	t.pid, t.began, t.box.process = pid, time.Now(), p
	t.record.PID = pid
	t.watch.started(proc.BootTime())
	if t.scratch > 0 && !l.measuring {
		l.measuring = true
		l.wake <- struct{}{} // as for a process
	}
	l.report(protocol.Report{Started: new(t.hasStarted())})
	if t.watch.termed {
		p.Signal(unix.SIGTERM) // it was sent when there was nobody to hear it
	}
	l.look(t)
}

// boxEnded takes the end of a container, of which nothing is left.
func (l *loop) boxEnded(t *task, exit job.Exit) {
	t.start = nil
	t.watch.alive = false
	l.look(t)
	t.record.Exit = exit
	if exit.Started {
		t.record.Exit.Isolation = l.info.Isolation
	}
	if t.watch.cause != causeNone && (!exit.Started || t.watch.termed || t.watch.killed) {
		t.caused()
	}
	t.record.Exit.Reason = clip(t.record.Exit.Reason)
	l.unsaved = append(l.unsaved, t)
}

// keepGuard starts the guard of this runner's containers, which do not die with
// their parent as processes do: it waits for the runner's lock and ends them.
func (l *loop) keepGuard() {
	if l.guard != 0 || l.cfg.Guard == nil {
		return
	}
	p, err := os.StartProcess(l.cfg.Guard[0], l.cfg.Guard, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		l.log.Error("guard of containers not started: they would outlive this runner", "error", err)
		return
	}
	l.guard = p.Pid
	_ = p.Release() // the loop waits for every child
}

// guardDied starts another, if there is something to guard.
func (l *loop) guardDied() {
	l.guard = 0
	for _, t := range l.tasks {
		if t.box != nil {
			l.log.Warn("guard of containers died, starting another")
			l.keepGuard()
			return
		}
	}
}
