package docker

// Commands in a running container (muster exec). The engine runs them as the container's user and in its namespaces
// and control groups. The kernel ends them with the container's first process.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ErrNotRunning says that no container of the attempt runs now.
var ErrNotRunning = errors.New("the container is not running")

const (
	// maxRefusal bounds the engine's message about a command that it cannot execute, in bytes.
	maxRefusal = 4096
	// sizeFirst and sizeMost bound the pauses between attempts to set the size of a new terminal.
	sizeFirst = 10 * time.Millisecond
	sizeMost  = time.Second
)

// Session is a running command. With a terminal Stderr is nil. Close kills the command if it still runs and runs on
// this host.
type Session struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.ReadCloser

	c         *client.Client
	id        string // of the command
	container string // id of the container
	conn      client.HijackedResponse
	copied    chan struct{} // closed when the output has ended
	begun     bool          // the output is the command's and not the engine's error; used only by the copying goroutine
	refused   bytes.Buffer  // the engine's error message; used only by the copying goroutine until copied is closed
	closing   sync.Once
}

// Exec runs a command in the container of an attempt, on the engine at host. Whether the command could be executed is
// known only after Wait. The methods' contexts bound their requests to the engine.
func Exec(ctx context.Context, host string, a job.Attempt, b protocol.Command) (*Session, error) {
	c, err := connect(host)
	if err != nil {
		return nil, err
	}
	s := &Session{c: c, copied: make(chan struct{})}
	if err := s.open(ctx, a, b); err != nil {
		_ = c.Close() // nothing was kept
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
			err = fmt.Errorf("%w: %w", ErrNotRunning, err)
		}
		return nil, fmt.Errorf("docker: command in %s: %w", a, err)
	}
	return s, nil
}

func (s *Session) open(ctx context.Context, a job.Attempt, b protocol.Command) error {
	got, err := s.c.ContainerInspect(ctx, nameOf(a), client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	s.container = got.Container.ID
	o := client.ExecCreateOptions{TTY: b.TTY, AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: b.Command}
	if b.TTY {
		o.ConsoleSize = client.ConsoleSize{Height: uint(b.Rows), Width: uint(b.Cols)}
		if b.Term != "" {
			o.Env = []string{"TERM=" + b.Term}
		}
	}
	made, err := s.c.ExecCreate(ctx, s.container, o)
	if err != nil {
		return err
	}
	s.id = made.ID
	on := context.WithoutCancel(ctx) // the connection lasts until Close
	attached, err := s.c.ExecAttach(on, s.id, client.ExecAttachOptions{TTY: b.TTY, ConsoleSize: o.ConsoleSize})
	if err != nil {
		return err
	}
	s.conn = attached.HijackedResponse
	s.Stdin = input{s.conn}
	out, toOut := io.Pipe()
	s.Stdout = out
	if b.TTY {
		go s.copy(on, toOut, nil)
		go s.firstSize(on, b.Rows, b.Cols)
		return nil
	}
	errs, toErrs := io.Pipe()
	s.Stderr = errs
	go s.copy(on, toOut, toErrs)
	return nil
}

// input is the command's standard input.
type input struct{ conn client.HijackedResponse }

func (i input) Write(p []byte) (int, error) { return i.conn.Conn.Write(p) }

// Close closes the input but not the connection.
func (i input) Close() error { return i.conn.CloseWrite() }

// copy copies the command's output until it ends.
func (s *Session) copy(ctx context.Context, out, errs *io.PipeWriter) {
	inspect := func() (client.ExecInspectResult, error) { return s.inspect(ctx) }
	defer close(s.copied)
	defer out.Close() //nolint:errcheck // a pipe in memory
	if errs == nil {
		_, _ = io.Copy(output{inspect, s, out}, s.conn.Reader) // Wait notices a broken connection
		return
	}
	defer errs.Close()                                                                       //nolint:errcheck // likewise
	_, _ = stdcopy.StdCopy(output{inspect, s, out}, output{inspect, s, errs}, s.conn.Reader) // as above
}

// output copies the command's output. If the command cannot be executed, it collects the error message that the
// engine writes instead.
type output struct {
	inspect func() (client.ExecInspectResult, error)
	s       *Session
	w       io.Writer
}

func (o output) Write(p []byte) (int, error) {
	s := o.s
	if !s.begun && s.refused.Len() == 0 {
		got, err := o.inspect()
		s.begun = err != nil || got.Running || got.PID != 0 || !cannotExecute(got.ExitCode)
	}
	if s.begun {
		return o.w.Write(p)
	}
	s.refused.Write(p[:min(len(p), maxRefusal-s.refused.Len())])
	return len(p), nil
}

func cannotExecute(code int) bool { return code == codeNotExecutable || code == codeNotFound }

func (s *Session) inspect(ctx context.Context) (client.ExecInspectResult, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return s.c.ExecInspect(ctx, s.id, client.ExecInspectOptions{})
}

// RefusalError says why a command could not be executed. Code is the exit code that a shell would give.
type RefusalError struct {
	Code   int
	Reason string
}

func (r *RefusalError) Error() string { return r.Reason }

// Wait returns the command's exit code once it has exited, or a RefusalError.
func (s *Session) Wait(ctx context.Context) (int, error) {
	<-s.copied
	for wait := backFirst; ; wait = min(2*wait, backMost) {
		got, err := s.inspect(ctx)
		switch {
		case errdefs.IsNotFound(err):
			return 0, errors.New("docker: the container has ended, and the command with it")
		case err != nil:
			return 0, fmt.Errorf("docker: the engine does not say how the command ended: %w", err)
		case !got.Running && s.refused.Len() > 0:
			return 0, refusal(got.ExitCode, s.refused.String())
		case !got.Running:
			return got.ExitCode, nil
		}
		time.Sleep(wait) // the command has closed its output but still runs
	}
}

// refusal makes a RefusalError from the last part of the engine's long error message.
func refusal(code int, text string) *RefusalError {
	text = inOneLine(errors.New(text))
	if notFound(text) {
		code = codeNotFound // older engines say 126
	}
	if _, after, ok := strings.Cut(text, "unable to start container process: "); ok {
		text = after
	}
	return &RefusalError{code, "cannot execute " + strings.TrimSuffix(strings.TrimPrefix(text, "exec: "), ": unknown")}
}

// Resize sets the size of the terminal, if there is one.
func (s *Session) Resize(ctx context.Context, rows, cols uint16) error {
	if s.Stderr != nil || rows == 0 || cols == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, err := s.c.ExecResize(ctx, s.id, client.ExecResizeOptions{Height: uint(rows), Width: uint(cols)})
	return err
}

// firstSize sets the size of a new terminal, for engines that ignore the size given at the start. It tries again
// until the terminal exists.
func (s *Session) firstSize(ctx context.Context, rows, cols uint16) {
	for wait := sizeFirst; wait <= sizeMost && s.Resize(ctx, rows, cols) != nil; wait *= 2 {
		time.Sleep(wait)
	}
}

// Close kills the command and closes its streams. The engine's API cannot end a single command, so its processes are
// killed here if they run on this host.
func (s *Session) Close(ctx context.Context) {
	s.closing.Do(func() {
		if got, err := s.inspect(ctx); err == nil && got.Running && got.PID != 0 {
			if p, err := find(got.PID); err == nil {
				if p.of(s.container) {
					proc.KillTree(got.PID)
				}
				_ = p.Release() // only closes a descriptor
			}
		}
		s.conn.Close()
		_ = s.Stdout.Close() // nobody reads it any more
		if s.Stderr != nil {
			_ = s.Stderr.Close() // likewise
		}
		<-s.copied
		_ = s.c.Close() // nothing was kept
	})
}
