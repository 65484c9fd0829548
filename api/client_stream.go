package api

// The client's streams: events and logs, which survive a break of the
// connection.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/job"
)

// The waits and bounds of streams.
const (
	firstPause   = 100 * time.Millisecond // before a broken stream is opened again
	longestPause = 2 * time.Second
	maxBreaks    = 60               // in a row without a byte: two minutes, more than a restart of a daemon takes
	eventSilence = 30 * time.Second // a daemon sends a sign of life each 10 s
	maxEventLine = 4 << 20          // an event holds one job: a job file and its tasks
	maxWatched   = 1000             // jobs that one stream of events may name
)

// EventFilter chooses events; the zero value chooses those of all jobs.
type EventFilter struct {
	Jobs []job.ID // at most 1000
	// Ended asks only how each of Jobs ended. A daemon that has answered this
	// client before is then waited for even if it is gone at the start.
	Ended bool
}

// Events tells what happens. First comes EventOpen and, for a filter that names
// jobs, each of them as it stands now; then each change. After a break it
// yields EventSilent and goes on with a new EventOpen, so nothing that lasts is
// missed. It ends with an error, which for a ctx that ended is its error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if len(f.Jobs) > maxWatched {
			yield(Event{}, bad("events of %d jobs: at most %d in one stream", len(f.Jobs), maxWatched))
			return
		}
		opened, breaks := false, 0
		for {
			more, got, err := c.eventsOnce(ctx, f, yield)
			opened = opened || got
			if !more {
				return
			}
			if got {
				breaks = 0
			}
			breaks++
			err = cmp.Or(ctx.Err(), err)
			opened = opened || c.mayBeOpen(f, err)
			if ctx.Err() != nil || !opened || breaks > maxBreaks || !mayReturn(err) {
				yield(Event{}, err)
				return
			}
			silent := newEvent(EventSilent)
			silent.Detail = err.Error()
			if !yield(silent, nil) {
				return
			}
			pause(ctx, breaks)
		}
	}
}

// mayBeOpen says whether a stream that broke off with err may have been open: one
// of ends does not say so at once. Then the daemon was there a moment ago.
func (c *Client) mayBeOpen(f EventFilter, err error) bool {
	_, gone := errors.AsType[*unreachable](err)
	return gone && f.Ended && c.met.Load()
}

// mayReturn says whether what failed is worth another try.
func mayReturn(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, io.ErrUnexpectedEOF)
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

// eventsOnce yields the events of one connection until it breaks; more is
// false when the receiver wants no more.
func (c *Client) eventsOnce(ctx context.Context, f EventFilter, yield func(Event, error) bool) (more, got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(eventSilence, cancel)
	defer alive.Stop()
	resp, err := c.open(ctx, http.MethodGet, "/v1/events", eventsInput{Job: texts(f.Jobs), Ended: f.Ended}.query(), nil, nil)
	if err != nil {
		return true, false, err
	}
	defer resp.Body.Close()
	left := awaitedOf(f.Jobs)
	err = readEvents(resp.Body, func() { alive.Reset(eventSilence) }, func(e Event) bool {
		got = true
		delete(left, e.ID)
		more = yield(e, nil)
		return more
	})
	if err == nil && !more && got {
		if f.Ended && len(left) == 0 { // the daemon ends it, too, and the connection can be used again
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		return false, got, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return true, got, &unreachable{text: fmt.Sprintf("the stream of events from %s broke off: %s", c.where, cause(err)), cause: err}
}

func texts(ids []job.ID) []string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		all = append(all, string(id))
	}
	return all
}

// readEvents reads server-sent events until the body ends or each says enough.
func readEvents(body io.Reader, alive func(), each func(Event) bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), maxEventLine)
	for lines.Scan() {
		alive()
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, the kind again, or the blank line between events
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

// Wait returns when all jobs have ended, with their documents in the order of
// ids. Seen, if not nil, is called at each change.
func (c *Client) Wait(ctx context.Context, ids []job.ID, seen func(Job)) ([]Job, error) {
	last := map[job.ID]Job{}
	all := func() []Job { // or nil while one of them has not ended
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
		case e.Kind == EventJob && e.Job != nil:
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

// LogRequest chooses a log.
type LogRequest struct {
	Job    job.ID
	Task   int
	Stream string // stdout, stderr, or both in their order (also if empty)
	// Attempt is the one that Offset counts in; 0 for the newest.
	Attempt int
	Offset  int64 // within the stream, from the start; below 0 from the end
	Follow  bool  // until the task has ended, through all its attempts
}

// LogEnd is where a log was left.
type LogEnd struct {
	Attempt int
	Next    int64 // offset of the next byte
}

// Logs copies a log to w. After a break it goes on from where it was; where
// output was removed to keep the log within its bound, w gets a line that says
// so. The LogEnd is right after an error too.
func (c *Client) Logs(ctx context.Context, r LogRequest, w io.Writer) (LogEnd, error) {
	end := LogEnd{Attempt: r.Attempt, Next: r.Offset}
	for {
		err := c.wholeLog(ctx, r, &end, w)
		if err != nil || !r.Follow {
			return end, err
		}
		attempt, err := c.nextAttempt(ctx, r, end.Attempt)
		if err != nil || attempt == 0 {
			return end, err
		}
		end = LogEnd{Attempt: attempt}
	}
}

// wholeLog copies the log of one attempt to its end, over as many connections
// as it takes.
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

const triesAfterEnd = 5 // for the log of a task that has ended, and so is complete if it can be had at all

// goesOn says whether a log that broke off so many times in a row is worth
// another try. While the daemon answers, the log's host is awaited for as long
// as the task may live.
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
	j, err := c.Job(ctx, r.Job)
	return err != nil || !j.Ended()
}

// writeError is an error of the writer that was given, not of the log.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// logOnce copies what one connection gives; without an error it was all. A
// *GapError says that the log goes on after a gap.
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
	resp, err := c.open(ctx, http.MethodGet, jobPath(r.Job, "/tasks/", strconv.Itoa(r.Task), "/logs"), q, nil, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	attempt, err1 := strconv.Atoi(resp.Header.Get(headerAttempt))
	offset, err2 := strconv.ParseInt(resp.Header.Get(headerOffset), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("log of job %s: what answers on %s is no muster daemon of this version: %w", r.Job, c.where, err)
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
		return n, &unreachable{text: fmt.Sprintf("the log of job %s from %s broke off at byte %d: %s", r.Job, c.where, end.Next, cause(err)), cause: err}
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

// copyLog is io.Copy that tells the writer's errors apart.
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

// nextAttempt waits until the task has an attempt after this one, or returns 0
// once it has ended without.
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
	return 0, ctx.Err()
}
