package supervisor

// The input of a running task from its client.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ErrInputOver says that the task gets no more input: it has ended, or it has closed its input.
var ErrInputOver = errors.New("the task takes no more input")

// Input brings input to a running task. Write and End may be called by one goroutine, and Resize and Close by others.
type Input struct {
	// Taken is how many bytes the task had got when Input was opened. The first Write goes on from there.
	Taken int64

	conn    net.Conn
	writing sync.Mutex // so that frames stay whole
}

// Attach opens the input of an attempt, and closes it for the client that had it open before. It returns ErrNotRunning if
// the attempt has no process now.
func (d *Driver) Attach(ctx context.Context, a job.Attempt) (*Input, error) {
	n, err := d.runnerOf(ctx, a)
	if err != nil {
		return nil, err
	}
	conn, err := protocol.Dial(d.dir.ExecSocket(n))
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w: its runner takes no input: %w", ErrNotRunning, err)
	}
	in := &Input{conn: conn}
	defer context.AfterFunc(ctx, in.Close)() // an earlier client may have to go first
	err = protocol.SendExec(conn.(*net.UnixConn), protocol.Exec{Attempt: a.String(), Attach: true}, nil)
	var m protocol.Intake
	if err == nil {
		m, err = protocol.ReadIntake(conn)
	}
	switch {
	case err == nil && m.Error != "":
		err = fmt.Errorf("%w: %s", ErrNotRunning, m.Error)
	case err == nil:
		in.Taken = m.Taken
		return in, nil
	}
	in.Close()
	return nil, fmt.Errorf("supervisor: input of %s: %w", a, err)
}

// Write passes bytes to the task. It returns when the task's pipe or terminal has them, so it blocks while the task does
// not read. It returns ErrInputOver if the task takes no more. After another error, the input may be opened again.
func (in *Input) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		part := p[done:min(len(p), done+protocol.MaxInput)]
		if err := in.ask(protocol.InputBytes, part); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// End lets the task read end of file after all that was written.
func (in *Input) End() error {
	if err := in.ask(protocol.InputEnd, nil); !errors.Is(err, ErrInputOver) {
		return err
	}
	return nil
}

// ask sends a frame and waits for the answer.
func (in *Input) ask(kind byte, p []byte) error {
	if err := in.send(kind, p); err != nil {
		return err
	}
	m, err := protocol.ReadIntake(in.conn)
	switch {
	case err != nil:
		return fmt.Errorf("supervisor: the task has ended, or another client brings its input: %w", err)
	case m.Over:
		return ErrInputOver
	}
	return nil
}

func (in *Input) send(kind byte, p []byte) error {
	in.writing.Lock()
	defer in.writing.Unlock()
	return protocol.WriteInput(in.conn, kind, p)
}

// Resize sets the size of the task's terminal, if it has one.
func (in *Input) Resize(rows, cols uint16) error {
	return in.send(protocol.InputSize, protocol.SizeBytes(rows, cols))
}

// Close ends the connection. The task keeps its input open.
func (in *Input) Close() { _ = in.conn.Close() }
