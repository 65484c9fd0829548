package main

// The input of a job of muster run: standard input, or this terminal.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// cancelWait bounds the request that cancels a job whose client is told to end.
const cancelWait = 10 * time.Second

// nullDevice is the device number of /dev/null.
var nullDevice = unix.Mkdev(1, 3)

// inputSize returns the size of a terminal. It returns 24x80 if the terminal reports none, as a serial console or a
// terminal that a program has opened may do.
func inputSize(fd int) (job.Terminal, error) {
	w, h, err := term.GetSize(fd)
	if err != nil {
		return job.Terminal{}, err
	}
	if w <= 0 || h <= 0 {
		return job.Terminal{Rows: 24, Cols: usualWidth}, nil
	}
	return job.Terminal{Rows: uint16(h), Cols: uint16(w)}, nil //nolint:gosec // the kernel has 16 bits for each
}

// jobInput is where the input of a job comes from.
type jobInput struct {
	file     *os.File
	terminal bool
}

// inputOf decides whether the job gets input, and sets that in the spec. It returns nil if the job gets none.
func (v submitVerbs) inputOf(c *cli.Context, s *job.Spec) (*jobInput, error) {
	in := &jobInput{terminal: c.Bool("it") || s.TTY != ""}
	file, ok := v.in.(*os.File)
	fd := -1
	if ok {
		fd, in.file = int(file.Fd()), file //nolint:gosec // a descriptor is small
	}
	switch {
	case in.terminal:
		size, err := inputSize(fd)
		if err != nil {
			return nil, usagef("run: -it: the standard input is not a terminal")
		}
		s.TTY = size.String()
		if kind := os.Getenv("TERM"); kind != "" && s.Env["TERM"] == "" {
			s.Env = maps.Clone(s.Env)
			if err := put(&s.Env, "TERM", kind); err != nil {
				return nil, err
			}
		}
	case s.Stdin && ok:
	case !ok || !gives(fd) || v.reads(c):
		return nil, nil
	case s.Array != "" || len(s.EachLine) > 0 || s.Nodes > 1 || s.Retries > 0 || s.CheckpointExitCode != 0 || c.Bool("requeue"):
		fmt.Fprintln(v.err, "muster: standard input is not passed on: arrays and tasks that may run again get none; </dev/null avoids this line")
		return nil, nil
	default:
		s.Stdin = true
	}
	if !c.Bool("requeue") {
		s.Requeue = false
	}
	if err := s.ValidateDraft(); err != nil {
		return nil, usagef("run: %w", err)
	}
	return in, nil
}

// reads reports whether the job itself was read from standard input.
func (v submitVerbs) reads(c *cli.Context) bool {
	return c.String("file") == "-" || c.String("each-line") == "-" || c.Args().First() == "-"
}

// gives reports whether a descriptor may give input: it is a file, a pipe or a socket, and not a terminal or /dev/null.
func gives(fd int) bool {
	var is unix.Stat_t
	if unix.Fstat(fd, &is) != nil || term.IsTerminal(fd) {
		return false
	}
	switch is.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return uint64(is.Rdev) != nullDevice //nolint:unconvert // not the same type everywhere
	case unix.S_IFDIR:
		return false
	}
	return true
}

// followWithInput is follow for a job that gets input. If this program is told to end before the job has its input, the
// job is cancelled.
func (f follower) followWithInput(ctx context.Context, j api.Job, in *jobInput) error {
	ctx, stop := untilCutOff(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	input, restore := in.open()
	defer restore()
	type ended struct {
		api.InputEnd
		err error
	}
	feeding, over := context.WithCancel(ctx)
	sent := make(chan ended, 1)
	go func() {
		end, err := f.client.SendInput(feeding, j.ID, firstTask(j), input)
		if err != nil && feeding.Err() == nil {
			cancel(err) // nobody would notice that the input is missing
		}
		sent <- ended{end, err}
	}()
	err := f.copyAndTell(ctx, j, f.out)
	over()
	end := <-sent
	restore()
	if ctx.Err() == nil || end.Whole {
		return f.followed(ctx, j, err)
	}
	return f.cutOff(ctx, j, context.Cause(ctx))
}

// untilCutOff returns a context that ends when the terminal is closed, unless nohup ignores that, and on SIGQUIT. Go's
// default for SIGQUIT would leave the terminal raw, and the job without its client.
func untilCutOff(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := untilHangup(ctx)
	ctx, stopQuit := signal.NotifyContext(ctx, unix.SIGQUIT)
	return ctx, func() {
		stopQuit()
		stop()
	}
}

// cutOff cancels a job whose input will never be complete.
func (f follower) cutOff(ctx context.Context, j api.Job, why error) error {
	code, text := exitCtrlC, "interrupted"
	if why != nil && !errors.Is(why, context.Canceled) {
		code, text = job.ExitMuster, why.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	if _, err := f.client.Cancel(ctx, j.ID, api.Change{Reason: "its client has ended before its input"}); err != nil && !errors.Is(err, api.ErrConflict) {
		return exitError{code, fmt.Errorf("%s; job %s could not be cancelled: %w", text, j.ID, err)}
	}
	return exitError{code, fmt.Errorf("%s; job %s is cancelled, because it needs this client", text, j.ID)}
}

// open returns the input, and what to call at its end. A terminal passes on every key once the task takes input.
func (in *jobInput) open() (input api.Input, restore func()) {
	input.From = in.file
	if !in.terminal {
		return input, func() {}
	}
	fd := int(in.file.Fd()) //nolint:gosec // a descriptor is small
	input.Size = func() (rows, cols uint16) {
		size, err := inputSize(fd)
		if err != nil {
			return 0, 0
		}
		return size.Rows, size.Cols
	}
	changed, resized, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
			case <-done:
				return
			}
			select {
			case resized <- struct{}{}:
			default:
			}
		}
	}()
	input.Resized = resized
	var mu sync.Mutex
	var before *term.State // guarded by mu
	closed := false        // guarded by mu
	input.Began = func() {
		mu.Lock()
		defer mu.Unlock()
		if !closed {
			before, _ = term.MakeRaw(fd) // if that fails, keys arrive line by line, which is no reason to stop
		}
	}
	return input, func() {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			return
		}
		closed = true
		signal.Stop(changed)
		close(done)
		if before != nil {
			_ = term.Restore(fd, before) // an error here cannot be handled
		}
	}
}
