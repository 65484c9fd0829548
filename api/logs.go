package api

// The routes of logs. The owner of the job knows where an attempt runs; that host has the log. Daemons in between
// only forward it.
//
// Offsets count all bytes that a stream has had, cut or not, for each stream and for both together. Only the client knows
// its position: a cursor of the daemon would die with the daemon. A frame with an offset in the body would need a parser in
// every reader. With marks=false a body ends at a cut, and the trailer headerNext has the offset at which the log goes on.
// The client then writes the line about the cut itself, so that the line does not count as output.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

type logInput struct {
	ID      string `path:"id" maxLength:"64"`
	Task    int    `path:"t" minimum:"0" maximum:"2147483647"`
	Stream  string `query:"stream" enum:"both,stdout,stderr" default:"both" doc:"both means stdout and stderr in the order in which they were written."`
	Follow  bool   `query:"follow" doc:"Send new output until the attempt has ended. Wait if the task has not started."`
	Offset  int64  `query:"offset" minimum:"-9007199254740992" maximum:"9007199254740992" doc:"Offset in the stream of the first byte to send. A negative offset counts from the end."`
	Marks   bool   `query:"marks" default:"true" doc:"Output may have been removed to keep the log within its size limit. true: send a line of text in its place. false: end the body there."`
	Attempt int    `query:"attempt" minimum:"0" maximum:"2147483647" doc:"The attempt to which offset applies. If a newer attempt has started, its log is sent from the start."`
	Exact   bool   `query:"exact" doc:"Send the log of attempt, even if a newer one has started."`
}

type attemptInput struct {
	Attempt string `path:"attempt" maxLength:"64"`
	Stream  string `query:"stream" enum:"both,stdout,stderr" default:"both"`
	Follow  bool   `query:"follow"`
	Offset  int64  `query:"offset"`
	Marks   bool   `query:"marks" default:"true"`
}

// logRoutes serves the output of tasks.
type logRoutes struct {
	*daemons

	jobs  Jobs
	watch Watch
	logs  Logs
}

// task serves the request as the owner of the job.
func (l *logRoutes) task(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	if _, err := (jobAccess{l.jobs}).may(ctx, partOutput, in.ID, "read the output of"); err != nil {
		return nil, err
	}
	o, index, err := l.chosen(ctx, in)
	if err != nil {
		return nil, err
	}
	a := job.Attempt{Job: job.ID(in.ID), Task: index, N: o.N}
	offset := in.Offset
	if in.Attempt > 0 && in.Attempt != o.N {
		offset = 0
	}
	if o.Node == "" {
		return sendLog(logHead{attempt: a}, http.NoBody), nil
	}
	if o.Node == l.self {
		return l.open(ctx, attemptInput{Attempt: a.String(), Stream: in.Stream, Follow: in.Follow, Offset: offset, Marks: in.Marks})
	}
	q := url.Values{"stream": {in.Stream}, "offset": {strconv.FormatInt(offset, 10)}, "marks": {strconv.FormatBool(in.Marks)}}
	p := answerLimit{limit: forwardRead}
	if in.Follow {
		q.Set("follow", "true")
		p.limit = 0 // no limit: the task may have to wait for its start
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // huma passes the same context
		r, w := humago.Unwrap(hctx)
		r = r.Clone(hctx.Context())
		r.URL.RawQuery = q.Encode()
		l.forward(w, r, destination{
			peer: o.Node, path: "/peer/v1/attempts/" + a.String() + "/logs", who: "node " + o.NodeName + ", which has the output of job " + in.ID + ",",
		}, p)
	}}, nil
}

// chosen returns the attempt whose log is sent, and the index of its task. An attempt without output has no node.
func (l *logRoutes) chosen(ctx context.Context, in *logInput) (job.Outcome, int, error) {
	if in.Exact {
		if o, index, err := l.earlier(ctx, in); err != nil || o.N > 0 {
			return o, index, err
		}
	}
	t, err := l.started(ctx, in)
	o := job.Outcome{N: t.Attempt}
	if hasRun(t) {
		o.Node, o.NodeName = t.Node, t.NodeName
	}
	return o, t.Index, err
}

// earlier returns the requested attempt of a task if it is not the newest. If it is the newest, it returns a zero Outcome.
func (l *logRoutes) earlier(ctx context.Context, in *logInput) (o job.Outcome, index int, err error) {
	j, err := l.jobs.Get(ctx, job.ID(in.ID))
	if err != nil {
		return o, 0, about(in.ID, err)
	}
	t, err := taskOf(ctx, l.jobs, j, in.Task)
	if err != nil || in.Attempt == t.Attempt {
		return o, t.Index, err
	}
	none := &notFoundError{"attempt", strconv.Itoa(in.Attempt), "no node has started it"}
	switch all := t.Outcomes(); {
	case in.Attempt > t.Attempt:
		none.detail = fmt.Sprintf("the newest attempt of job %s is %d", in.ID, t.Attempt)
	case t.Earlier != nil && t.Earlier.Older > 0 && in.Attempt < all[0].N:
		none.detail = fmt.Sprintf("it is not known any more where it ran; the oldest attempt that is known is %d", all[0].N)
	default:
		for _, o := range all {
			if o.N == in.Attempt {
				return o, t.Index, nil
			}
		}
	}
	return o, 0, none
}

// hasRun reports whether the task's newest attempt may have output.
func hasRun(t job.Task) bool {
	switch t.State {
	case job.Starting, job.Running, job.Unreachable, job.Completing:
		return t.Node != ""
	case job.Pending, job.Held, job.Succeeded, job.Failed, job.Cancelled, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted:
		// a task that waits for another attempt may have output of an earlier one
		return t.Node != "" && (t.Exit != nil || !t.Started.IsZero() || !t.Ended.IsZero())
	case job.Reserved:
		return false
	}
	return false
}

// started returns the task once it has output, or once it is certain that it never will. Without follow it does not
// wait, but returns ErrConflict.
func (l *logRoutes) started(ctx context.Context, in *logInput) (job.Task, error) {
	id := job.ID(in.ID)
	j, err := l.jobs.Get(ctx, id)
	if err != nil {
		return job.Task{}, about(in.ID, err)
	}
	t, err := taskOf(ctx, l.jobs, j, in.Task)
	if err != nil || settled(t, in.Attempt) {
		return t, err
	}
	if !in.Follow {
		return t, fmt.Errorf("output of job %s: %w: it is %s and has none yet; follow it to wait", in.ID, ErrConflict, t.State)
	}
	changes, err := l.watch.Watch(ctx, []job.ID{id}, false)
	if err != nil {
		return t, err
	}
	for j := range changes {
		if t, err = taskOf(ctx, l.jobs, j, in.Task); err != nil || settled(t, in.Attempt) {
			return t, err
		}
	}
	return t, fmt.Errorf("output of job %s: %w: the daemon stopped waiting for the start of the task", in.ID, ErrUnavailable)
}

// settled reports whether the log of the requested attempt, or of a newer one, exists, or is certain never to exist.
func settled(t job.Task, attempt int) bool {
	return (hasRun(t) && t.Attempt >= attempt) || t.State.Ended()
}

// attempt serves the request as the host where the attempt runs.
func (l *logRoutes) attempt(ctx context.Context, in *attemptInput) (*huma.StreamResponse, error) {
	return l.open(ctx, *in)
}

func (l *logRoutes) open(ctx context.Context, in attemptInput) (*huma.StreamResponse, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	body, start, err := l.logs.Open(ctx, a, in.Stream, in.Offset, in.Follow)
	if err != nil {
		return nil, fmt.Errorf("output of attempt %s: %w", a, err)
	}
	h := logHead{attempt: a, start: start, marks: in.Marks}
	if in.Offset > 0 && start > in.Offset && in.Marks {
		h.before = logMark(start - in.Offset)
	}
	return sendLog(h, body), nil
}

// logChunk is how many bytes of a log are read, forwarded and flushed at a time.
const logChunk = 256 << 10

// logHead holds what is sent before the bytes of a log.
type logHead struct {
	attempt job.Attempt
	start   int64
	marks   bool   // send a line of text where output was removed
	before  string // text to send before the log
}

// logMark returns the line that stands for removed output.
func logMark(n int64) string { return fmt.Sprintf("\n--- muster: %d bytes cut here ---\n", n) }

// sendLog copies a log as it grows. The trailer at the end confirms that it is complete. If the log breaks off, the
// response is cut off, so that no reader takes it for complete.
func sendLog(head logHead, body io.ReadCloser) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer body.Close()
		_, w := humago.Unwrap(hctx)
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set(headerAttempt, strconv.Itoa(head.attempt.N))
		h.Set(headerOffset, strconv.FormatInt(head.start, 10))
		h.Add("Trailer", headerEnd)
		h.Add("Trailer", headerNext)
		w.WriteHeader(http.StatusOK)
		end, err := copyBody(w, head, body)
		if gap, cut := errors.AsType[*GapError](err); cut {
			h.Set(headerNext, strconv.FormatInt(gap.Next, 10))
		} else if err != nil {
			panic(http.ErrAbortHandler)
		}
		h.Set(headerEnd, strconv.FormatInt(end, 10))
	}}
}

// copyBody sends a log to its end, or without marks to its first gap, and returns the offset reached.
func copyBody(w http.ResponseWriter, head logHead, body io.Reader) (end int64, err error) {
	send := func(text []byte) error {
		if _, err := w.Write(text); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	}
	end = head.start
	if err := send([]byte(head.before)); err != nil { // also sends the header
		return end, err
	}
	buf := make([]byte, logChunk)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return end, err
			}
			end += int64(n)
		}
		gap, cut := errors.AsType[*GapError](err)
		switch {
		case cut && head.marks:
			if err := send([]byte(logMark(gap.Next - end))); err != nil {
				return end, err
			}
			end = gap.Next
		case errors.Is(err, io.EOF):
			return end, nil
		case err != nil:
			return end, err
		}
	}
}
