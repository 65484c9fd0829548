package api

// The route that runs commands in a running task: a WebSocket from the client to the task's host. Daemons in between
// only forward the bytes.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

// Exec runs commands in the attempts of this host, and brings input to them.
type Exec interface {
	// Exec runs a command in the cgroups of an attempt, as its user and with its environment. It returns ErrConflict
	// if the attempt is not running, and an ExecError if the command cannot be executed.
	Exec(ctx context.Context, a job.Attempt, r ExecRequest) (ExecSession, error)
	// Attach opens the input of an attempt. It replaces an earlier client. It returns ErrConflict if the attempt is not
	// running or takes no input.
	Attach(ctx context.Context, a job.Attempt) (InputSession, error)
}

// ExecRequest is a command. It is the first message of the client.
type ExecRequest struct {
	Command []string `json:"command"`
	TTY     bool     `json:"tty,omitempty"`
	Term    string   `json:"term,omitempty"` // type of the client's terminal, as in $TERM
	Rows    uint16   `json:"rows,omitempty"`
	Cols    uint16   `json:"cols,omitempty"`
}

// ExecSession is a running command.
type ExecSession struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.Reader // Stderr is nil if the command has a terminal
	Resize         func(rows, cols uint16) error
	Wait           func() (int, error) // returns its exit code once it has ended, or an ExecError
	Close          func()              // ends the command
}

// ExecError is a command that could not be executed, with the exit code that a shell gives.
type ExecError struct {
	Code   int
	Reason string
}

func (e *ExecError) Error() string { return e.Reason }

// After the first message, messages are binary and begin with one of these bytes. The last message of the host is an
// execEnd.
const (
	execStdin  = 0 // input of the command; an empty message ends the input
	execResize = 1 // execSize as JSON
	execStdout = 2 // output of the command
	execStderr = 3
	execEnd    = 4 // execOver as JSON

	execChunk    = 32 << 10
	maxExecInput = 1 << 20 // bytes of a message
)

type execSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// execOver is the result of a command.
type execOver struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

type execInput struct {
	ID   string `path:"id" maxLength:"64"`
	Task int    `path:"t" minimum:"0" maximum:"2147483647"`
}

type attemptExecInput struct {
	Attempt string `path:"attempt" maxLength:"64"`
}

// execRoutes serves commands in running tasks.
type execRoutes struct {
	*daemons
	jobAccess

	exec Exec
	log  *slog.Logger
}

// task serves the request as the owner of the job.
func (x *execRoutes) task(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	j, t, err := x.mayTask(ctx, partInside, in.ID, in.Task, "run a command in")
	if err != nil {
		return nil, err
	}
	if t.State != job.Running {
		return nil, fmt.Errorf("run a command in job %s: %w: it is %s, not running", in.ID, ErrConflict, t.State)
	}
	a := job.Attempt{Job: j.ID, Task: t.Index, N: t.Attempt}
	if t.Node == x.self {
		requesterOf(ctx).note.later() // the command comes with the first message
		return x.serve(a), nil        //nolint:contextcheck // huma passes the same context
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // huma passes the same context
		r, w := humago.Unwrap(hctx)
		x.forward(w, r.WithContext(hctx.Context()), destination{
			peer: t.Node, path: "/peer/v1/attempts/" + a.String() + "/exec", who: "node " + t.NodeName + ", which runs job " + in.ID + ",",
		}, answerLimit{limit: forwardRead})
	}}, nil
}

// attempt serves the request as the host where the attempt runs.
func (x *execRoutes) attempt(ctx context.Context, in *attemptExecInput) (*huma.StreamResponse, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	requesterOf(ctx).note.later()
	return x.serve(a), nil //nolint:contextcheck // huma passes the same context
}

func (x *execRoutes) serve(a job.Attempt) *huma.StreamResponse {
	return overWebSocket(func(ctx context.Context, cancel func(), conn *websocket.Conn) {
		if send(ctx, conn, execEnd, x.run(ctx, cancel, conn, a)) == nil {
			_ = conn.Close(websocket.StatusNormalClosure, "") // an error does not matter: the client has the execEnd
		}
	})
}

// overWebSocket accepts a WebSocket and serves it. The connection and ctx end when serve returns; cancel ends ctx.
func overWebSocket(serve func(ctx context.Context, cancel func(), conn *websocket.Conn)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		r, w := humago.Unwrap(hctx)
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has sent the error
		}
		defer conn.CloseNow() //nolint:errcheck // after a close it does nothing
		conn.SetReadLimit(maxExecInput)
		ctx, cancel := context.WithCancel(hctx.Context())
		defer cancel()
		serve(ctx, cancel, conn)
	}}
}

// send sends a message with a document.
func send(ctx context.Context, conn *websocket.Conn, kind byte, doc any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageBinary, append([]byte{kind}, text...))
}

// run reads the client's request, runs the command and copies its streams. It returns when the command has ended. If
// the client disconnects, it ends the command and calls cancel, which ends ctx.
func (x *execRoutes) run(ctx context.Context, cancel func(), conn *websocket.Conn, a job.Attempt) execOver {
	n := requesterOf(ctx).note
	failed := func(err error) execOver {
		n.now(err)
		if e, ok := errors.AsType[*ExecError](err); ok {
			return execOver{e.Code, e.Reason}
		}
		return execOver{job.ExitMuster, err.Error()}
	}
	_, text, err := conn.Read(ctx)
	var req ExecRequest
	if err == nil {
		err = json.Unmarshal(text, &req)
	}
	if err == nil && (len(req.Command) == 0 || len(req.Command) > job.MaxArgs) {
		err = bad("want a command of 1 to %d words", job.MaxArgs)
	}
	if err != nil {
		return failed(err)
	}
	n.ofCommand(req)
	session, err := x.exec.Exec(ctx, a, req)
	if err != nil {
		return failed(err)
	}
	defer session.Close()
	defer context.AfterFunc(ctx, session.Close)()
	n.now(nil)
	x.log.InfoContext(ctx, "command started in attempt", "attempt", a.String(), "command", req.Command[0], "tty", req.TTY)
	go func() {
		defer cancel() // the client is gone
		feed(ctx, conn, session)
	}()
	var copies sync.WaitGroup
	for kind, from := range map[byte]io.Reader{execStdout: session.Stdout, execStderr: session.Stderr} {
		if from != nil {
			copies.Go(func() { pass(ctx, conn, kind, from) })
		}
	}
	code, err := session.Wait()
	if err != nil {
		return failed(err)
	}
	copies.Wait()
	return execOver{Code: code}
}

// pass sends the output of the command.
func pass(ctx context.Context, conn *websocket.Conn, kind byte, from io.Reader) {
	buf := make([]byte, 1+execChunk)
	buf[0] = kind
	for {
		n, err := from.Read(buf[1:])
		if n > 0 && conn.Write(ctx, websocket.MessageBinary, buf[:1+n]) != nil {
			return
		}
		if err != nil {
			return // end of the output; a terminal reports it as an error
		}
	}
}

// feed passes the client's input to the command until the client is gone.
func feed(ctx context.Context, conn *websocket.Conn, session ExecSession) {
	for {
		_, m, err := conn.Read(ctx)
		if err != nil {
			return
		}
		switch {
		case len(m) == 1 && m[0] == execStdin:
			_ = session.Stdin.Close() // without a reader the error does not matter
		case len(m) > 1 && m[0] == execStdin:
			if _, err := session.Stdin.Write(m[1:]); err != nil {
				_ = session.Stdin.Close() // the command has closed its input; it may go on
			}
		case len(m) > 1 && m[0] == execResize:
			var size execSize
			if json.Unmarshal(m[1:], &size) == nil {
				_ = session.Resize(size.Rows, size.Cols) // a wrong size is harmless
			}
		}
	}
}

// ExecStreams are the client's ends of the streams of a command.
type ExecStreams struct {
	In       io.Reader // nil: the command gets no input
	Out, Err io.Writer
	Sizes    <-chan [2]uint16 // rows and columns, on change; may be nil
}

// Exec runs a command in a running task and returns its exit code. It ends the command if ctx ends.
func (c *Client) Exec(ctx context.Context, id job.ID, task int, r ExecRequest, st ExecStreams) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.dialTask(ctx, id, task, "/exec")
	if err != nil {
		return 0, err
	}
	defer conn.CloseNow() //nolint:errcheck // after a close it does nothing
	conn.SetReadLimit(maxExecInput)
	text, err := json.Marshal(r)
	if err == nil {
		err = conn.Write(ctx, websocket.MessageText, text)
	}
	if err != nil {
		return 0, c.noAnswer(ctx, err)
	}
	go sendInput(ctx, conn, st.In)
	go sendSizes(ctx, conn, st.Sizes)
	for {
		_, m, err := conn.Read(ctx)
		if err != nil {
			return 0, c.noAnswer(ctx, err)
		}
		over, err := st.take(m)
		if err != nil {
			return 0, err
		}
		if over == nil {
			continue
		}
		_ = conn.Close(websocket.StatusNormalClosure, "") // the exchange is complete
		if over.Error != "" {
			return over.Code, &ExecError{over.Code, over.Error}
		}
		return over.Code, nil
	}
}

// dialTask opens a WebSocket to one of the routes of a task.
func (c *Client) dialTask(ctx context.Context, id job.ID, task int, route string) (*websocket.Conn, error) {
	header := http.Header{}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	target := c.base + jobPath(id, fmt.Sprintf("/tasks/%d", task)) + route
	conn, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header}) //nolint:bodyclose // the library closes it
	if err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, readProblem(resp)
	}
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	return conn, nil
}

// take writes the output of the command, or returns its end.
func (st ExecStreams) take(m []byte) (over *execOver, err error) {
	if len(m) == 0 {
		return nil, nil
	}
	switch m[0] {
	case execStdout:
		_, err = st.Out.Write(m[1:])
	case execStderr:
		_, err = st.Err.Write(m[1:])
	case execEnd:
		over = &execOver{}
		if err := json.Unmarshal(m[1:], over); err != nil {
			return nil, fmt.Errorf("exec: %w", err)
		}
	}
	return over, err
}

func sendInput(ctx context.Context, conn *websocket.Conn, in io.Reader) {
	buf := make([]byte, 1+execChunk)
	buf[0] = execStdin
	for in != nil {
		n, err := in.Read(buf[1:])
		if n > 0 && conn.Write(ctx, websocket.MessageBinary, buf[:1+n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_ = conn.Write(ctx, websocket.MessageBinary, buf[:1]) // a command that has ended needs no end of input
}

func sendSizes(ctx context.Context, conn *websocket.Conn, sizes <-chan [2]uint16) {
	for {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-sizes:
			if !ok {
				return
			}
			text, err := json.Marshal(execSize{s[0], s[1]})
			if err != nil || conn.Write(ctx, websocket.MessageBinary, append([]byte{execResize}, text...)) != nil {
				return
			}
		}
	}
}
