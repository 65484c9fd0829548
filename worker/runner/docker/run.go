package docker

// One container, from the pull of its image to its exit.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// The exit codes of a task that never ran. codeOurs says that the engine has failed; the others are the same as a
	// shell's.
	codeOurs          = job.ExitMuster
	codeNotExecutable = job.ExitNotExecutable
	codeNotFound      = job.ExitNotFound
	// backFirst and backMost bound the pause before an engine that went away is tried again.
	backFirst = 50 * time.Millisecond
	backMost  = time.Second
	// awayMost is how long an engine may be down after a container's process has died. After that the exit is not
	// known.
	awayMost = 2 * time.Minute
	// outputWithin bounds the wait for the last output of a container that has exited.
	outputWithin = 10 * time.Second
	// lateWithin replaces outputWithin if the container may have ended before the engine was asked for the output. The
	// engine then never says that the output has ended.
	lateWithin = time.Second
	// drainWithin is how long output that was read may take to be written; only a copy on a file server takes time.
	drainWithin = 2 * time.Second
	// stopsWithin bounds the check whether an engine is stopping. With socket activation, systemd accepts connections
	// all the while.
	stopsWithin = 2 * time.Second
	// noCommand is what an engine says of an image that does not say what to run.
	noCommand = "No command specified"
	// maxSignal is the highest real-time signal.
	maxSignal = 64
)

// containerRun is one container and how far it has come.
type containerRun struct {
	e    *Engine
	l    *link
	spec spawn.Container

	id        string
	init      bool
	stop      unix.Signal // what the command gets in place of TERM
	startSent bool        // the engine was asked to start it, so a process may exist
	out       client.HijackedResponse
	in        *inlet        // nil: it gets no input
	copied    chan struct{} // closed when the output has ended
	late      bool          // the output was asked for when the container may have ended
	waits     <-chan container.WaitResponse
	broken    <-chan error
	began     time.Time
	run       *running
}

// Run runs a container to its end; see runner.Containers.
func (e *Engine) Run(ctx context.Context, b spawn.Container) job.Exit {
	l, err := e.at(b.Host)
	if err != nil {
		return notStarted(err)
	}
	c := &containerRun{e: e, l: l, spec: b}
	on := context.WithoutCancel(ctx) // once started, a container ends only by signals
	if err := c.begin(ctx); err != nil {
		c.undo(on)
		return notStarted(err)
	}
	go e.clean(on, l) // while it works, finish sees when the engine goes away
	exit := c.finish(on)
	go e.remove(on, l, c.id, b.Attempt.String())
	return exit
}

// shortages are what an engine says, in the words of the C library, when its host has run out of something. Its errors
// have no numbers.
var shortages = []string{
	"no space left on device", "too many open files", "cannot allocate memory", "resource temporarily unavailable", "input/output error",
}

// notStarted returns the exit of a task that never ran. If the engine is down, or has run out of something, that is not the
// task's fault. But the code is not codeOurs, because tasks that need no engine can still run on this host, and the
// profile says when the engine is down. Besides, the engine reports a user's own limits in the same words.
func notStarted(err error) job.Exit {
	now := time.Now()
	exit := job.Exit{State: job.Failed, Code: codeNotExecutable, Reason: inOneLine(err), Began: now, Ended: now}
	switch {
	case client.IsErrConnectionFailed(err), errors.Is(err, errSilent):
		exit.State, exit.Code, exit.Reason = job.NodeFail, codeNotExecutable, "the Docker engine of its node does not answer: "+inOneLine(err)
	case errdefs.IsUnavailable(err), short(exit.Reason):
		exit.State = job.NodeFail
	case exit.Reason == noCommand:
		exit.Reason = "the image has no command of its own: give one after --"
	case notFound(exit.Reason):
		exit.Code = codeNotFound
	case errdefs.IsInternal(err): // the engine says so of many mistakes of users, too
		exit.Code = codeOurs
	}
	return exit
}

// short reports whether the engine's error message ends with a shortage. What comes before that may be words of the user.
func short(text string) bool {
	text = strings.TrimSuffix(text, ": unknown")
	return slices.ContainsFunc(shortages, func(s string) bool { return strings.HasSuffix(text, ": "+s) })
}

// notFound reports whether the engine's error message means that the program does not exist.
func notFound(text string) bool {
	return strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory: unknown")
}

// begin gets the image, pins the mounts and starts the container.
func (c *containerRun) begin(ctx context.Context) error {
	if _, err := c.l.learn(ctx); err != nil {
		return err
	}
	img, err := c.l.image(ctx, c.spec)
	if err != nil {
		return err
	}
	f, err := c.l.learn(ctx)
	if err != nil {
		return err
	}
	shown, places, err := c.e.pins.show(c.spec, f)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.e.pins.unpin(places); err != nil {
			c.e.log.WarnContext(ctx, "mounts not unmounted", "attempt", c.spec.Attempt.String(), "error", err)
		}
	}()
	return unseen(c.make(ctx, img, shown), places, c.spec.Mounts)
}

// make creates the container and starts it. If the engine lacks something that a container can do without, it tries
// again without that.
func (c *containerRun) make(ctx context.Context, img client.ImageInspectResult, shown []string) error {
	f, err := c.l.learn(ctx)
	if err != nil {
		return err
	}
	c.stop = stopSignalOf(img, c.spec.Command)
	for {
		c.init = !f.noInit
		host, err := hostConfig(c.spec, shown, f)
		if err != nil {
			return err
		}
		made, err := c.l.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config: c.e.config(c.spec, img, f), HostConfig: host, Name: nameOf(c.spec.Attempt),
		})
		if err != nil {
			return err
		}
		c.id = made.ID
		err = c.start(ctx)
		if err == nil || !c.l.lacks(&f, err) {
			return err
		}
		c.undo(context.WithoutCancel(ctx))
	}
}

// start attaches to the output and then starts the process.
func (c *containerRun) start(ctx context.Context) error {
	if err := c.e.notes.add(note{ID: c.id, Host: c.spec.Host}); err != nil {
		return err
	}
	if err := c.attach(ctx); err != nil {
		return err
	}
	on := context.WithoutCancel(ctx)
	c.wait(on, container.WaitConditionNextExit)
	c.startSent = true
	if _, err := c.l.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		return err
	}
	c.began = time.Now()
	c.run = &running{id: c.id, init: c.init, stop: c.stop, kill: func(sig string) error {
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
		c.run.first, c.run.local = p, true
		line.Boot, line.Ticks = proc.BootID(), proc.StartTicks(pid)
		if err := c.e.notes.add(line); err != nil {
			return err
		}
	}
	if c.in == nil {
		c.spec.Began(pid, c.run, nil)
		return nil
	}
	if in := c.spec.Input; in.TTY {
		_ = c.resize(ctx, in.Rows, in.Cols) // for engines that ignore the size given with the container
	}
	c.spec.Began(pid, c.run, c.in)
	return nil
}

// attach copies the output that is written from now on.
func (c *containerRun) attach(ctx context.Context) error {
	got, err := c.l.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdin: c.spec.Input != nil, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	c.out = got.HijackedResponse
	if c.spec.Input != nil {
		if c.in == nil {
			on := context.WithoutCancel(ctx)
			c.in = &inlet{resize: func(rows, cols uint16) error { return c.resize(on, rows, cols) }}
		}
		c.in.set(c.out)
	}
	copied, from := make(chan struct{}), c.out.Reader
	c.copied = copied
	go func() {
		defer close(copied)
		if c.spec.HasTerminal() {
			_, _ = io.Copy(c.spec.Out, from) // as below
			return
		}
		_, _ = stdcopy.StdCopy(c.spec.Out, c.spec.Err, from) // ContainerWait notices a broken connection
	}()
	return nil
}

// resize sets the size of the container's terminal.
func (c *containerRun) resize(ctx context.Context, rows, cols uint16) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, err := c.l.ContainerResize(ctx, c.id, client.ContainerResizeOptions{Height: uint(rows), Width: uint(cols)})
	return err
}

// undo removes a container that could not be started. If the container may be running, undo waits until it is
// removed.
func (c *containerRun) undo(ctx context.Context) {
	if c.id == "" {
		return
	}
	if c.copied != nil {
		c.out.Close()
		c.drain()
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
		if !c.startSent {
			go c.e.remove(ctx, c.l, c.id, c.spec.Attempt.String())
			return
		}
		time.Sleep(wait)
	}
}

// finish waits for the exit of a running container, across restarts of its engine, and returns the exit.
func (c *containerRun) finish(ctx context.Context) job.Exit {
	for restarted := false; ; restarted = true {
		select {
		case w := <-c.waits:
			return c.exitFromWait(ctx, int(w.StatusCode), restarted)
		case <-c.broken: //nolint:errcheck // the engine is asked, whatever the error is
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

// exitFromWait returns the exit that the engine has reported. An engine that is stopping is not asked for details,
// because it may be gone before it answers.
func (c *containerRun) exitFromWait(ctx context.Context, code int, restarted bool) job.Exit {
	if code != 0 && isStopping(ctx, c.spec.Host) {
		return c.exit(code, nil, restarted, true)
	}
	s, err := c.state(ctx)
	if errors.Is(err, errAway) {
		return c.lost(err)
	}
	return c.exit(code, s, restarted, false)
}

// endedBy reports whether a container had exited before moment. If moment is when its engine went away, the engine
// has ended the container while it stopped.
func endedBy(s *container.State, moment time.Time) bool {
	ended, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
	return err == nil && ended.Before(moment)
}

var (
	// errAway says that an engine has not come back; errForgotten says that it came back without the container.
	errAway      = errors.New("its Docker engine went away, and the container has ended since")
	errForgotten = errors.New("its Docker engine does not know the container any more")
)

// state returns the container's state. It waits for an engine that is down as long as the container's process lives,
// and for awayMost after that.
func (c *containerRun) state(ctx context.Context) (*container.State, error) {
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
		case died.IsZero() && c.run.local && c.run.first.diesWithin(0):
			died = time.Now()
		}
		time.Sleep(wait)
	}
}

// rejoin attaches again to a container that has survived a restart of its engine. A line in the output says that some
// output may be missing.
func (c *containerRun) rejoin(ctx context.Context) {
	c.out.Close()
	c.drain()
	fmt.Fprintln(c.spec.Err, "muster: the Docker engine was restarted; output may be missing here")
	if err := c.attach(ctx); err != nil {
		c.e.log.WarnContext(ctx, "output of container not taken up again", "attempt", c.spec.Attempt.String(), "error", err)
	}
	s, err := c.state(ctx)
	c.late = err == nil && !s.Running
	c.wait(ctx, container.WaitConditionNotRunning)
}

// wait subscribes to the container's exit.
func (c *containerRun) wait(ctx context.Context, until container.WaitCondition) {
	w := c.l.ContainerWait(ctx, c.id, client.ContainerWaitOptions{Condition: until})
	c.waits, c.broken = w.Result, w.Error
}

// lost returns the exit of a container for which the exit code is not known.
func (c *containerRun) lost(why error) job.Exit {
	c.output()
	return job.Exit{State: job.NodeFail, Started: true, Reason: why.Error(), Began: c.began, Ended: time.Now()}
}

// output waits for the rest of the output.
func (c *containerRun) output() {
	within := outputWithin
	if c.late {
		within = lateWithin
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-c.copied:
	case <-late.C:
		c.e.log.Warn("output of container did not end with it", "attempt", c.spec.Attempt.String())
	}
	c.out.Close()
	c.drain()
}

// drain waits until all that was read from a closed connection is written, or cannot be written.
func (c *containerRun) drain() {
	late := time.NewTimer(drainWithin)
	defer late.Stop()
	select {
	case <-c.copied:
	case <-late.C:
		c.e.log.Warn("a copy of a container's output hangs; its end does not wait for it", "attempt", c.spec.Attempt.String())
		c.spec.Cut()
		<-c.copied
	}
}

// exit returns the exit of a container with this code. As in a shell, a code above 128 means a signal. Restarted says
// that the engine was restarted meanwhile; stopped says that the engine ended the container while it stopped. The
// state s may be nil.
func (c *containerRun) exit(code int, s *container.State, restarted, stopped bool) job.Exit {
	x := job.Exit{State: job.Failed, Started: true, Code: code, Began: c.began, Ended: time.Now()}
	c.output()
	if n := code - job.ExitSignal; n > 0 && n <= maxSignal {
		x.Signal = n
		x.Reason = fmt.Sprintf("ended by signal %d (%s)", n, unix.SignalName(unix.Signal(n)))
	}
	killed := x.Signal == int(unix.SIGKILL) || x.Signal == int(unix.SIGTERM)
	if code == 0 {
		x.State = job.Succeeded
	}
	switch {
	case s != nil && s.OOMKilled, killedForMemory(c.id):
		protocol.EndOutOfMemory(&x, c.spec.Limits.Memory, false)
	case code == 0:
	case stopped && !c.run.signalled.Load():
		x.State, x.Reason = job.NodeFail, "its Docker engine was stopped, and the container ended with it"
	case restarted && killed && !c.run.signalled.Load():
		x.State, x.Reason = job.NodeFail, "its Docker engine was restarted, and the container ended with it"
	case s != nil && s.Error != "":
		x.Reason = inOneLine(errors.New(s.Error))
	}
	return x
}
