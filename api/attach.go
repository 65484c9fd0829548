package api

// The route that brings a client's input to a task: a WebSocket from the client to the task's host. Daemons in between
// only forward the bytes. The task's output goes to its log, as for any task.
//
// Messages of the client are binary and begin with execStdin or execResize. An execStdin without data ends the input. The
// host's messages are attachTaken with an attachState as JSON: the number of bytes that the task has read so far, over all
// connections. It sends one at the beginning and one after each part that the task has read. The client sends the bytes
// that follow, and never has more than InputWindow bytes on the way. So no byte is lost or sent twice when a connection
// breaks, and a task that does not read makes its client wait. If the task cannot be attached to, the host's only message
// is an execEnd.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

// ErrInputOver says that a task reads no more input: it has ended, or it has closed its input.
var ErrInputOver = errors.New("the task takes no more input")

// InputSession brings input to a task of this host.
type InputSession struct {
	Taken  int64                         // bytes that the task had read before this session
	Write  func(p []byte) (int, error)   // waits until the task has read the bytes; ErrInputOver: it reads no more
	End    func() error                  // makes the task read end of file
	Resize func(rows, cols uint16) error // resizes the task's terminal, if it has one
	Close  func()                        // ends the session, but not the task's input
}

const (
	attachTaken = 5 // attachState as JSON
	// InputWindow bounds the bytes that were sent and that the task has not read.
	InputWindow = 256 << 10
)

// attachState says how much of its input a task has read.
type attachState struct {
	Taken int64 `json:"taken"`
	Over  bool  `json:"over,omitempty"` // the task reads no more input
}

type attachInput struct {
	ID     string `path:"id" maxLength:"64"`
	Task   int    `path:"t" minimum:"0" maximum:"2147483647"`
	Follow bool   `query:"follow" doc:"Wait until the task runs."`
}

// attachRoutes serves the input of running tasks.
type attachRoutes struct {
	*daemons
	jobAccess

	watch Watch
	exec  Exec
	log   *slog.Logger
}

// task serves the request as the owner of the job.
func (x *attachRoutes) task(ctx context.Context, in *attachInput) (*huma.StreamResponse, error) {
	j, t, err := x.mayTask(ctx, partInside, in.ID, in.Task, "bring input to")
	if err != nil {
		return nil, err
	}
	if !j.Spec.TakesInput() {
		return nil, bad("job %s takes no input: it was submitted without stdin and tty; see muster exec -i", in.ID)
	}
	if in.Follow && t.State != job.Running {
		if t, err = x.running(ctx, in); err != nil {
			return nil, err
		}
	}
	if t.State != job.Running {
		return nil, fmt.Errorf("bring input to job %s: %w: it is %s, not running", in.ID, ErrConflict, t.State)
	}
	a := job.Attempt{Job: j.ID, Task: t.Index, N: t.Attempt}
	if t.Node == x.self {
		return x.serve(a), nil //nolint:contextcheck // huma passes the same context
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // huma passes the same context
		r, w := humago.Unwrap(hctx)
		r = r.Clone(hctx.Context())
		r.URL.RawQuery = ""
		x.forward(w, r, destination{
			peer: t.Node, path: "/peer/v1/attempts/" + a.String() + "/attach", who: "node " + t.NodeName + ", which runs job " + in.ID + ",",
		}, answerLimit{limit: forwardRead})
	}}, nil
}

// running waits until the task runs or has ended.
func (x *attachRoutes) running(ctx context.Context, in *attachInput) (job.Task, error) {
	changes, err := x.watch.Watch(ctx, []job.ID{job.ID(in.ID)}, false)
	if err != nil {
		return job.Task{}, err
	}
	for j := range changes {
		t, err := taskOf(ctx, x.jobs, j, in.Task)
		if err != nil || t.State == job.Running || t.State.Ended() {
			return t, err
		}
	}
	return job.Task{}, fmt.Errorf("bring input to job %s: %w: the daemon stopped waiting for the start of the task", in.ID, ErrUnavailable)
}

// attempt serves the request as the host where the attempt runs.
func (x *attachRoutes) attempt(_ context.Context, in *attemptExecInput) (*huma.StreamResponse, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	return x.serve(a), nil //nolint:contextcheck // huma passes the same context
}

func (x *attachRoutes) serve(a job.Attempt) *huma.StreamResponse {
	return overWebSocket(func(ctx context.Context, cancel func(), conn *websocket.Conn) {
		session, err := x.exec.Attach(ctx, a)
		if err != nil {
			_ = send(ctx, conn, execEnd, execOver{job.ExitMuster, err.Error()}) // a client that is gone needs no answer
			_ = conn.Close(websocket.StatusNormalClosure, "")                   // likewise
			return
		}
		defer session.Close()
		x.log.InfoContext(ctx, "client attached to the input of attempt", "attempt", a.String(), "taken", session.Taken)
		q := &inputQueue{grew: make(chan struct{}, 1)}
		go func() {
			defer cancel()
			defer session.Close() // also ends a write that waits for the task
			q.fill(ctx, conn, session)
		}()
		q.empty(ctx, conn, session)
	})
}

// inputQueue holds the input that has arrived and that was not written to the task yet: at most InputWindow bytes.
type inputQueue struct {
	mu   sync.Mutex
	buf  []byte        // guarded by mu
	end  bool          // guarded by mu: the input ends after buf
	grew chan struct{} // receives when there is more
}

// fill reads the client's messages until the client is gone or breaks the rules.
func (q *inputQueue) fill(ctx context.Context, conn *websocket.Conn, session InputSession) {
	for {
		_, m, err := conn.Read(ctx)
		if err != nil || len(m) == 0 {
			return
		}
		switch m[0] {
		case execResize:
			var size execSize
			if json.Unmarshal(m[1:], &size) == nil && size.Rows > 0 && size.Cols > 0 {
				_ = session.Resize(size.Rows, size.Cols) // a terminal that is gone needs no size
			}
		case execStdin:
			if !q.put(m[1:]) {
				_ = conn.Close(websocket.StatusPolicyViolation, "more input than was asked for") // either way the connection is over
				return
			}
		}
	}
}

// put adds input; an empty p ends the input. It returns false if the queue would hold too much, or if the input has ended
// already.
func (q *inputQueue) put(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end && len(p) > 0 || len(q.buf)+len(p) > InputWindow {
		return false
	}
	q.buf, q.end = append(q.buf, p...), q.end || len(p) == 0
	select {
	case q.grew <- struct{}{}:
	default:
	}
	return true
}

// take removes and returns all input in the queue.
func (q *inputQueue) take() (p []byte, end bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, q.buf = q.buf, nil
	return p, q.end
}

// empty writes the input to the task and tells the client how much the task has read, until the connection is over.
func (q *inputQueue) empty(ctx context.Context, conn *websocket.Conn, session InputSession) {
	state := attachState{Taken: session.Taken}
	for send(ctx, conn, attachTaken, state) == nil {
		p, end := q.take()
		for len(p) == 0 && (!end || state.Over) {
			select {
			case <-q.grew:
			case <-ctx.Done():
				return
			}
			p, end = q.take()
		}
		if state.Over {
			continue // tell the client once more that the input is over
		}
		n, err := session.Write(p)
		state.Taken += int64(n)
		if err == nil && end {
			err = session.End()
			state.Over = err == nil
		}
		if errors.Is(err, ErrInputOver) {
			state.Over, err = true, nil
		}
		if err != nil {
			return // the client connects again
		}
	}
}
