package supervisor

// Commands in a running task (muster exec).

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/creack/pty"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ErrNotRunning says that the attempt has no process now.
var ErrNotRunning = errors.New("the task is not running")

// Session is a running command. With a terminal Stderr is nil. Close kills the command if it still runs.
type Session struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.ReadCloser
	conn           net.Conn
	terminal       *os.File // nil: none
}

// Exec runs a command in the control groups of an attempt, as its user and with its environment. If the command
// cannot be executed, CodeOf returns the exit code of the error.
func (d *Driver) Exec(ctx context.Context, a job.Attempt, b protocol.Command, uid int) (*Session, error) {
	n, err := d.runnerOf(ctx, a)
	if err != nil {
		return nil, err
	}
	conn, err := protocol.Dial(d.dir.ExecSocket(n))
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w: its runner accepts no commands: %w", ErrNotRunning, err)
	}
	s := &Session{conn: conn}
	cut := context.AfterFunc(ctx, func() { _ = conn.Close() }) // a runner that stands still does not answer
	theirs, err := s.open(b, uid)
	if err == nil {
		err = protocol.SendExec(conn.(*net.UnixConn), protocol.Exec{Attempt: a.String(), Command: b.Command, TTY: b.TTY, Term: b.Term}, theirs)
	}
	for _, f := range theirs {
		_ = f.Close() // the command has its own descriptors
	}
	var r protocol.ExecReport
	if err == nil {
		r, err = protocol.ReadExecReport(conn)
	}
	switch {
	case !cut():
		err = ctx.Err()
	case err == nil && r.Error != "":
		err = refusal{r.Code, r.Error}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	return s, nil
}

// refusal says why a command was not executed, with the exit code that a shell would give.
type refusal struct {
	code int
	text string
}

func (r refusal) Error() string { return r.text }

// CodeOf returns the exit code for an error of Exec, or 0 if it has none.
func CodeOf(err error) int {
	if r := (refusal{}); errors.As(err, &r) {
		return r.code
	}
	return 0
}

// open makes the terminal or the pipes. It sets the session's ends and returns those for the command.
func (s *Session) open(b protocol.Command, uid int) ([]*os.File, error) {
	if b.TTY {
		near, far, err := pty.Open()
		if err != nil {
			return nil, fmt.Errorf("open terminal: %w", err)
		}
		s.terminal, s.Stdin, s.Stdout = near, near, near
		if uid != os.Geteuid() {
			err = os.Chown(far.Name(), uid, -1) // so that the command can open it by its name
		}
		return []*os.File{far}, errors.Join(err, s.Resize(b.Rows, b.Cols))
	}
	var far []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return far, fmt.Errorf("open pipe: %w", err)
		}
		switch i {
		case 0:
			s.Stdin, far = w, append(far, r)
		case 1:
			s.Stdout, far = r, append(far, w)
		default:
			s.Stderr, far = r, append(far, w)
		}
	}
	return far, nil
}

// Resize sets the size of the terminal, if there is one.
func (s *Session) Resize(rows, cols uint16) error {
	if s.terminal == nil || rows == 0 || cols == 0 {
		return nil
	}
	return pty.Setsize(s.terminal, &pty.Winsize{Rows: rows, Cols: cols})
}

// Wait returns the command's exit code once it has exited.
func (s *Session) Wait() (int, error) {
	r, err := protocol.ReadExecReport(s.conn)
	if err != nil {
		return 0, fmt.Errorf("supervisor: the runner is gone, and the command with it: %w", err)
	}
	return r.Code, nil
}

// Close kills the command and closes its streams.
func (s *Session) Close() {
	_ = s.conn.Close() // the runner kills the command
	for _, c := range []io.Closer{s.Stdin, s.Stdout, s.Stderr} {
		if c != nil {
			_ = c.Close() // nobody uses it any more
		}
	}
}

// runnerOf returns the generation of the runner that has a process of the attempt.
func (d *Driver) runnerOf(ctx context.Context, a job.Attempt) (int, error) {
	if err := d.awaitRunners(ctx); err != nil {
		return 0, err
	}
	answer := make(chan int, 1)
	err := d.inbox.put(func(s *state) {
		n := 0
		if e := s.entries[a]; e != nil && e.pid != 0 {
			n = e.runner
		}
		answer <- n
	})
	if err != nil {
		return 0, err
	}
	select {
	case n := <-answer:
		if n == 0 {
			return 0, ErrNotRunning
		}
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
