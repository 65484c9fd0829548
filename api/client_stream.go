package api

// The client's streams of logs, which survive a broken connection, and helpers that streams of events also use.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/job"
)

// Timeouts and bounds of streams.
const (
	firstPause   = 100 * time.Millisecond // before a broken stream is opened again
	longestPause = 2 * time.Second
	maxBreaks    = 60               // consecutive failures without a byte: two minutes, more than the restart of a daemon takes
	eventSilence = 30 * time.Second // a daemon sends a comment every 10 s to show that it is alive
	maxEventLine = 4 << 20          // an event holds one job: its job file and its tasks
	maxWatched   = 1000             // jobs that one stream of events may name
)

// mayBeOpen reports whether a stream that failed with err may have been open, so that opening it again is worth a try. It is
// for streams with Ended, whose opening is not confirmed at once, at a daemon that has answered before.
func (c *Client) mayBeOpen(f EventFilter, err error) bool {
	_, gone := errors.AsType[*unreachable](err)
	return gone && f.Ended && c.answered.Load()
}

// mayReturn reports whether a retry can help.
func mayReturn(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTooMany) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pause waits before the n-th try, or until ctx ends.
func pause(ctx context.Context, n int) {
	d := longestPause
	if n < 6 {
		d = min(d, firstPause<<n)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func texts[T ~string](ids []T) []string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		all = append(all, string(id))
	}
	return all
}

// readEvents reads server-sent events until the body ends or each returns false.
func readEvents(body io.Reader, alive func(), each func(Event) bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), maxEventLine)
	for lines.Scan() {
		alive()
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, the kind (which the data repeats), or the blank line between events
		}
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		if !each(e) {
			return nil
		}
	}
	return lines.Err()
}

// Wait returns when each job has ended once. It returns the jobs' documents as they were at their ends, in the order of
// ids. A requeue after the end changes nothing. Wait calls seen, if not nil, at each change up to the end.
func (c *Client) Wait(ctx context.Context, ids []job.ID, seen func(Job)) ([]Job, error) {
	last := map[job.ID]Job{}
	all := func() []Job { // nil while one of them has not ended
		jobs := make([]Job, 0, len(ids))
		for _, id := range ids {
			if !last[id].Ended() {
				return nil
			}
			jobs = append(jobs, last[id])
		}
		return jobs
	}
	if len(ids) == 0 {
		return nil, nil
	}
	for e, err := range c.Events(ctx, EventFilter{Jobs: ids, Ended: seen == nil}) {
		switch {
		case err != nil:
			return nil, err
		case e.Kind == EventGone:
			return nil, fmt.Errorf("job %s: %w: %s", e.ID, ErrNotFound, e.Detail)
		case e.Kind == EventJob && e.Job != nil && !last[e.Job.ID].Ended():
			if seen != nil {
				seen(*e.Job)
			}
			last[e.Job.ID] = *e.Job
			if jobs := all(); jobs != nil {
				return jobs, nil
			}
		}
	}
	return nil, ctx.Err()
}

// LogRequest selects a log.
type LogRequest struct {
	Job    job.ID
	Task   int
	Stream string // stdout, stderr, or both in the order of writing; empty means both
	// Attempt is the attempt to which Offset applies; 0 means the newest.
	Attempt int
	Exact   bool  // only the log of Attempt, even if there is a newer one
	Offset  int64 // within the stream, from the start; if negative, from the end
	Follow  bool  // wait for more output until the task has ended, through all its attempts; if Exact, until Attempt has ended
}

// LogEnd is the position at which reading a log ended.
type LogEnd struct {
	Attempt int
	Next    int64 // offset of the next byte
}

// Logs copies a log to w. After a break it resumes at the same offset. Where output was removed to keep the log
// within its size limit, it writes a line to w that says so. The LogEnd is also correct after an error.
func (c *Client) Logs(ctx context.Context, r LogRequest, w io.Writer) (LogEnd, error) {
	end := LogEnd{Attempt: r.Attempt, Next: r.Offset}
	for {
		err := c.wholeLog(ctx, r, &end, w)
		if err != nil || !r.Follow || r.Exact {
			return end, err
		}
		attempt, err := c.nextAttempt(ctx, r, end.Attempt)
		if err != nil || attempt == 0 {
			return end, err
		}
		end = LogEnd{Attempt: attempt}
	}
}

// wholeLog copies the log of one attempt to its end, over as many connections as needed.
func (c *Client) wholeLog(ctx context.Context, r LogRequest, end *LogEnd, w io.Writer) error {
	started, breaks := false, 0
	for {
		n, err := c.logOnce(ctx, r, end, w)
		if sink, ok := errors.AsType[*writeError](err); ok {
			return sink.err
		}
		if err == nil {
			return nil
		}
		if n > 0 {
			started, breaks = true, 0
		}
		if _, gap := errors.AsType[*GapError](err); gap {
			continue
		}
		breaks++
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (!started && !r.Follow) || !c.goesOn(ctx, r, err, breaks) {
			return err
		}
		pause(ctx, breaks)
	}
}

const triesAfterEnd = 5 // for the log of a task that has ended, which is complete if it is available at all

// goesOn reports whether to retry a log after this number of consecutive failures. While the daemon answers, the client
// waits for the log's host until the task has ended. It does not wait when the user has too many streams, because the user
// would then see no output and no reason.
func (c *Client) goesOn(ctx context.Context, r LogRequest, err error, breaks int) bool {
	_, answered := errors.AsType[*Problem](err)
	most := maxBreaks
	if r.Follow && answered {
		most = breaks
	}
	if !mayReturn(err) || breaks > most {
		return false
	}
	if breaks < triesAfterEnd {
		return true
	}
	if errors.Is(err, ErrTooMany) {
		return false
	}
	j, err := c.Job(ctx, r.Job)
	return err != nil || !j.Ended()
}

// writeError is an error of the given writer, as opposed to an error of the log.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// logOnce copies the log over one connection. If it returns no error, the log is complete. A *GapError means that the log
// goes on after a gap.
func (c *Client) logOnce(ctx context.Context, r LogRequest, end *LogEnd, w io.Writer) (int64, error) {
	q := url.Values{"offset": {strconv.FormatInt(end.Next, 10)}, "marks": {"false"}}
	if r.Stream != "" {
		q.Set("stream", r.Stream)
	}
	if r.Follow {
		q.Set("follow", "true")
	}
	if end.Attempt > 0 {
		q.Set("attempt", strconv.Itoa(end.Attempt))
	}
	if r.Exact {
		q.Set("exact", "true")
	}
	resp, err := c.open(ctx, http.MethodGet, jobPath(r.Job, "/tasks/", strconv.Itoa(r.Task), "/logs"), q, nil, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	attempt, err1 := strconv.Atoi(resp.Header.Get(headerAttempt))
	offset, err2 := strconv.ParseInt(resp.Header.Get(headerOffset), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("log of job %s: %s is not a muster daemon of this version: %w", r.Job, c.where, err)
	}
	if asked := *end; asked.Next >= 0 && offset > asked.Next && (asked.Attempt == attempt || asked.Attempt == 0) {
		if _, err := io.WriteString(w, logMark(offset-asked.Next)); err != nil {
			return 0, &writeError{err}
		}
	}
	end.Attempt, end.Next = attempt, offset
	n, err := copyLog(w, resp.Body)
	end.Next += n
	if _, ok := errors.AsType[*writeError](err); ok {
		return n, err
	}
	if err != nil || resp.Trailer.Get(headerEnd) == "" {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return n, &unreachable{text: fmt.Sprintf("the log of job %s from %s broke at byte %d: %s", r.Job, c.where, end.Next, cause(err)), cause: err}
	}
	next, err := strconv.ParseInt(resp.Trailer.Get(headerNext), 10, 64)
	if err != nil || next <= end.Next {
		return n, nil
	}
	if _, err := io.WriteString(w, logMark(next-end.Next)); err != nil {
		return n, &writeError{err}
	}
	end.Next = next
	return n, &GapError{Next: next}
}

// copyLog is io.Copy, but it marks errors of the writer as writeError.
func copyLog(w io.Writer, body io.Reader) (total int64, err error) {
	buf := make([]byte, logChunk)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			m, werr := w.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				return total, &writeError{werr}
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// nextAttempt waits until the task has a newer attempt and returns its number, or 0 once the task has ended without
// one.
func (c *Client) nextAttempt(ctx context.Context, r LogRequest, attempt int) (int, error) {
	for e, err := range c.Events(ctx, EventFilter{Jobs: []job.ID{r.Job}}) {
		if err != nil {
			return 0, err
		}
		if e.Kind == EventGone {
			return 0, nil
		}
		if e.Kind != EventJob || e.Job == nil {
			continue
		}
		if len(e.Job.Tasks) < e.Job.TaskCount {
			break // events of jobs with many tasks leave out the tasks
		}
		for _, t := range e.Job.Tasks {
			switch {
			case t.Task != r.Task:
			case t.Attempt > attempt:
				return t.Attempt, nil
			case t.State.Ended():
				return 0, nil
			}
		}
	}
	return c.nextOfMany(ctx, r, attempt)
}

// nextOfMany is nextAttempt for a job of many tasks: it requests the task whenever the job has changed.
func (c *Client) nextOfMany(ctx context.Context, r LogRequest, attempt int) (next int, err error) {
	f := TaskFilter{Tasks: []job.Range{{First: r.Task, Last: r.Task}}, Limit: 1}
	err = c.atChanges(ctx, r.Job, func() (bool, error) {
		l, err := c.patientTasks(ctx, r.Job, f)
		if err != nil || len(l.Items) == 0 {
			return true, err
		}
		t := l.Items[0]
		if t.Attempt > attempt {
			next = t.Attempt
		}
		return next > 0 || t.State.Ended(), nil
	})
	if errors.Is(err, ErrNotFound) { // the job was deleted
		err = nil
	}
	return next, err
}
