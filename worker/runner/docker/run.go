package docker

// One container from its image to its end.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// The exit codes of a task that never ran: codeOurs where the host is to
	// blame, the others as a shell gives them.
	codeOurs          = job.ExitMuster
	codeNotExecutable = job.ExitNotExecutable
	codeNotFound      = job.ExitNotFound
	// backFirst and backMost bound the pause before an engine that went away is
	// asked again.
	backFirst = 50 * time.Millisecond
	backMost  = time.Second
	// awayMost is how long an engine may be away after a container's process has
	// died before it is given up to learn how.
	awayMost = 2 * time.Minute
	// outputWithin bounds the wait for the rest of the output of a container that
	// ended: nobody is left to write.
	outputWithin = 10 * time.Second
	// stopsWithin bounds the wait for an engine that may be stopping. A socket
	// that systemd holds for it takes connections all the while.
	stopsWithin = 2 * time.Second
	// maxSignal is the highest real-time signal.
	maxSignal = 64
)

// life is one container on its way.
type life struct {
	e   *Engine
	l   *link
	box spawn.Container

	id     string
	init   bool
	sent   bool // its start was asked for: a process may exist
	out    client.HijackedResponse
	copied chan struct{} // closed when the output has ended
	waits  <-chan container.WaitResponse
	broken <-chan error
	began  time.Time
	run    *running
}

// Run takes a container to its end; see runner.Containers.
func (e *Engine) Run(ctx context.Context, b spawn.Container) job.Exit {
	l, err := e.at(b.Host)
	if err != nil {
		return notStarted(err)
	}
	c := &life{e: e, l: l, box: b}
	on := context.WithoutCancel(ctx) // what has begun ends by signals alone
	if err := c.begin(ctx); err != nil {
		c.undo(on)
		return notStarted(err)
	}
	e.clean(on, l) // here nobody waits for it
	exit := c.finish(on)
	go e.remove(on, l, c.id, b.Attempt.String())
	return exit
}

// notStarted is the end of a task that has never run. That an engine is gone is
// not the task's fault.
func notStarted(err error) job.Exit {
	now := time.Now()
	exit := job.Exit{State: job.Failed, Code: codeNotExecutable, Reason: inOneLine(err), Began: now, Ended: now}
	switch {
	case client.IsErrConnectionFailed(err):
		exit.State, exit.Reason = job.NodeFail, "the Docker engine of its node does not answer: "+inOneLine(err)
	case notFound(exit.Reason):
		exit.Code = codeNotFound
	case errdefs.IsInternal(err), errdefs.IsUnavailable(err):
		exit.Code = codeOurs
	}
	return exit
}

// notFound says whether an engine's words mean that there is no such program.
func notFound(text string) bool {
	return strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory: unknown")
}

// begin has the image there, and what the container is to show, and starts it.
func (c *life) begin(ctx context.Context) error {
	if _, err := c.l.learn(ctx); err != nil {
		return err
	}
	img, err := c.l.image(ctx, c.box)
	if err != nil {
		return err
	}
	f, err := c.l.learn(ctx)
	if err != nil {
		return err
	}
	shown, places, err := c.e.pins.show(c.box, f)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.e.pins.unpin(places); err != nil {
			c.e.log.WarnContext(ctx, "mounts not taken away", "attempt", c.box.Attempt.String(), "error", err)
		}
	}()
	return unseen(c.make(ctx, img, shown), places)
}

// make makes the container and starts it, with less if the engine turns out not
// to have all that was asked for.
func (c *life) make(ctx context.Context, img client.ImageInspectResult, shown []string) error {
	for {
		f, err := c.l.learn(ctx)
		if err != nil {
			return err
		}
		c.init = !f.noInit
		host, err := hostConfig(c.box, shown, f)
		if err != nil {
			return err
		}
		made, err := c.l.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config: c.e.config(c.box, img, f), HostConfig: host, Name: nameOf(c.box.Attempt),
		})
		if err != nil {
			return err
		}
		c.id = made.ID
		err = c.start(ctx)
		if err == nil || !c.l.lacks(f, err) {
			return err
		}
		c.undo(context.WithoutCancel(ctx))
	}
}

// learn asks the engine once what it can do.
func (l *link) learn(ctx context.Context) (facts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.facts == nil {
		info, err := l.Info(ctx, client.InfoOptions{})
		if err != nil {
			return facts{}, err
		}
		f := factsOf(info.Info)
		l.facts = &f
	}
	return *l.facts, nil
}

// lacks says whether a start with these facts failed for something that the
// engine turns out not to have, and that a container can do without.
func (l *link) lacks(with facts, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch text := err.Error(); {
	case !with.noInit && strings.Contains(text, "docker-init"):
		l.facts.noInit = true
	case !with.noLimits && strings.Contains(text, "rlimit"):
		l.facts.noLimits = true
	default:
		return false
	}
	return true
}

// start attaches to the output before there is any, and starts the process.
func (c *life) start(ctx context.Context) error {
	if err := c.e.notes.add(note{ID: c.id, Host: c.box.Host}); err != nil {
		return err
	}
	if err := c.attach(ctx); err != nil {
		return err
	}
	on := context.WithoutCancel(ctx)
	c.wait(on, container.WaitConditionNextExit)
	c.sent = true
	if _, err := c.l.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		return err
	}
	c.began = time.Now()
	c.run = &running{id: c.id, init: c.init, kill: func(sig string) error {
		ctx, cancel := context.WithTimeout(on, askWithin)
		defer cancel()
		_, err := c.l.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: sig})
		return err
	}}
	got, err := c.l.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil || got.Container.State == nil || got.Container.State.Pid == 0 {
		return err // it may have ended already
	}
	pid := got.Container.State.Pid
	line := note{ID: c.id, PID: pid}
	if p, err := find(pid); err == nil && p.of(c.id) {
		c.run.first, c.run.near = p, true
		line.Boot, line.Ticks = proc.BootID(), proc.StartTicks(pid)
		if err := c.e.notes.add(line); err != nil {
			return err
		}
	}
	c.box.Began(pid, c.run)
	return nil
}

// attach copies the output from now on.
func (c *life) attach(ctx context.Context) error {
	got, err := c.l.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	c.out = got.HijackedResponse
	copied, from := make(chan struct{}), c.out.Reader
	c.copied = copied
	go func() {
		defer close(copied)
		_, _ = stdcopy.StdCopy(c.box.Out, c.box.Err, from) // a broken connection shows when it is waited for
	}()
	return nil
}

// undo removes a container that is not to run. If it may run, nothing else can
// be said of it before that is done.
func (c *life) undo(ctx context.Context) {
	if c.id == "" {
		return
	}
	if c.copied != nil {
		c.out.Close()
		<-c.copied
		c.copied = nil
	}
	for wait := backFirst; ; wait = min(2*wait, backMost) {
		within, cancel := context.WithTimeout(ctx, removeWithin)
		err := forceRemove(within, c.l.Client, c.id)
		cancel()
		if err == nil {
			c.e.notes.removed(c.id)
			c.id = ""
			return
		}
		if !c.sent {
			go c.e.remove(ctx, c.l, c.id, c.box.Attempt.String())
			return
		}
		time.Sleep(wait)
	}
}

// finish waits for the end of a container that runs, over restarts of its
// engine, and says how it ended.
func (c *life) finish(ctx context.Context) job.Exit {
	for restarted := false; ; restarted = true {
		select {
		case w := <-c.waits:
			return c.told(ctx, int(w.StatusCode), restarted)
		case <-c.broken: //nolint:errcheck // whatever broke, the engine is asked
		}
		broke := time.Now()
		s, err := c.state(ctx)
		switch {
		case err != nil:
			return c.lost(err)
		case !s.Running:
			return c.exit(s.ExitCode, s, true, endedBy(s, broke))
		}
		c.rejoin(ctx)
	}
}

// told is the end that the engine told of. One that stops is not asked for more:
// it may be gone before it answers.
func (c *life) told(ctx context.Context, code int, restarted bool) job.Exit {
	if code != 0 && stops(ctx, c.box.Host) {
		return c.exit(code, nil, restarted, true)
	}
	s, err := c.state(ctx)
	if errors.Is(err, errAway) {
		return c.lost(err)
	}
	return c.exit(code, s, restarted, false)
}

// endedBy says whether a container had ended at a moment: when its engine went,
// whose last act, if it is asked to stop, is to end its containers.
func endedBy(s *container.State, moment time.Time) bool {
	ended, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
	return err == nil && ended.Before(moment)
}

// errAway says that an engine has not come back, and errForgotten that it did
// without the container.
var (
	errAway      = errors.New("its Docker engine went away, and the container has ended since")
	errForgotten = errors.New("its Docker engine does not know the container any more")
)

// state asks how the container is, for as long as the engine takes to come back.
func (c *life) state(ctx context.Context) (*container.State, error) {
	var died time.Time
	for wait := backFirst; ; wait = min(2*wait, backMost) {
		within, cancel := context.WithTimeout(ctx, askWithin)
		got, err := c.l.ContainerInspect(within, c.id, client.ContainerInspectOptions{})
		cancel()
		switch s := got.Container.State; {
		case err == nil && s != nil:
			return s, nil
		case errdefs.IsNotFound(err):
			return nil, errForgotten
		case !died.IsZero() && time.Since(died) > awayMost:
			return nil, errAway
		case died.IsZero() && c.run.near && c.run.first.diesWithin(0):
			died = time.Now()
		}
		time.Sleep(wait)
	}
}

// rejoin takes up a container that has lived through a restart of its engine.
// What it wrote meanwhile may be lost, which its readers are told.
func (c *life) rejoin(ctx context.Context) {
	c.out.Close()
	<-c.copied
	fmt.Fprintln(c.box.Err, "muster: the Docker engine was restarted; output may be missing here")
	if err := c.attach(ctx); err != nil {
		c.e.log.WarnContext(ctx, "output of container not taken up again", "attempt", c.box.Attempt.String(), "error", err)
	}
	c.wait(ctx, container.WaitConditionNotRunning)
}

// wait asks to be told of the end.
func (c *life) wait(ctx context.Context, until container.WaitCondition) {
	w := c.l.ContainerWait(ctx, c.id, client.ContainerWaitOptions{Condition: until})
	c.waits, c.broken = w.Result, w.Error
}

// lost is the end of a container of which nobody can say how it ended.
func (c *life) lost(why error) job.Exit {
	c.output()
	return job.Exit{State: job.NodeFail, Started: true, Reason: why.Error(), Began: c.began, Ended: time.Now()}
}

// output waits for the rest of the output.
func (c *life) output() {
	late := time.NewTimer(outputWithin)
	defer late.Stop()
	select {
	case <-c.copied:
	case <-late.C:
		c.e.log.Warn("output of container did not end with it", "attempt", c.box.Attempt.String())
	}
	c.out.Close()
	<-c.copied
}

// exit is the end of a container by its code, which the engine gives as a shell
// does: 128 and more for a signal. Restarted says that its engine has been,
// stopped that its engine ended it; s may be nil.
func (c *life) exit(code int, s *container.State, restarted, stopped bool) job.Exit {
	x := job.Exit{State: job.Failed, Started: true, Code: code, Began: c.began, Ended: time.Now()}
	c.output()
	if n := code - job.ExitSignal; n > 0 && n <= maxSignal {
		x.Signal = n
		x.Reason = fmt.Sprintf("ended by signal %d (%s)", n, unix.SignalName(unix.Signal(n)))
	}
	killed := x.Signal == int(unix.SIGKILL) || x.Signal == int(unix.SIGTERM)
	switch {
	case code == 0:
		x.State = job.Succeeded
	case s != nil && s.OOMKilled, killedForMemory(c.id):
		x.State, x.Reason = job.OutOfMemory, "the kernel ended it for lack of memory"
	case stopped && !c.run.asked.Load():
		x.State, x.Reason = job.NodeFail, "its Docker engine was stopped, and the container ended with it"
	case restarted && killed && !c.run.asked.Load():
		x.State, x.Reason = job.NodeFail, "its Docker engine was restarted, and the container ended with it"
	case s != nil && s.Error != "":
		x.Reason = inOneLine(errors.New(s.Error))
	}
	return x
}
