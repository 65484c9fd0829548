package api

// The routes of logs: the owner knows where an attempt runs, that host has the
// bytes, and each daemon between only passes them on.

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
	Task    int    `path:"t" minimum:"0" maximum:"999999"`
	Stream  string `query:"stream" enum:"stdout,stderr" default:"stdout"`
	Follow  bool   `query:"follow" doc:"until the attempt has ended; waits for a task that has not started"`
	Offset  int64  `query:"offset" doc:"of the first byte wanted; below 0 from the end"`
	Attempt int    `query:"attempt" minimum:"0" doc:"that offset counts in; if a newer one has started, its log from the start"`
}

type attemptInput struct {
	Attempt string `path:"attempt" maxLength:"64"`
	Stream  string `query:"stream" enum:"stdout,stderr" default:"stdout"`
	Follow  bool   `query:"follow"`
	Offset  int64  `query:"offset"`
}

// taskLog answers as the owner of the job.
func (s *Server) taskLog(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	t, err := s.started(ctx, in)
	if err != nil {
		return nil, err
	}
	a := job.Attempt{Job: job.ID(in.ID), Task: in.Task, N: t.Attempt}
	offset := in.Offset
	if in.Attempt > 0 && in.Attempt != t.Attempt {
		offset = 0
	}
	if !hasRun(t) {
		return s.sendLog(a, http.NoBody, 0), nil
	}
	if t.Node == s.cfg.Self {
		return s.openLog(ctx, a, in.Stream, offset, in.Follow)
	}
	q := url.Values{"stream": {in.Stream}, "offset": {strconv.FormatInt(offset, 10)}}
	p := patience{limit: forwardRead}
	if in.Follow {
		q.Set("follow", "true")
		p.limit = 0 // it may wait for the process to start
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // the same, as huma hands it over
		r, w := humago.Unwrap(hctx)
		r = r.Clone(hctx.Context())
		r.URL.RawQuery = q.Encode()
		s.forward(w, r, passing{
			peer: t.Node, path: "/peer/v1/attempts/" + a.String() + "/logs", who: "node " + t.NodeName + ", which has the output of job " + in.ID + ",",
		}, p)
	}}, nil
}

// hasRun says whether the task's newest attempt may have output.
func hasRun(t job.Task) bool {
	switch t.State {
	case job.Starting, job.Running, job.Unreachable, job.Completing:
		return t.Node != ""
	case job.Pending, job.Held, job.Succeeded, job.Failed, job.Cancelled, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted:
		return t.Node != "" && (!t.Started.IsZero() || !t.Ended.IsZero()) // of an earlier try, if it waits for another
	case job.Reserved:
		return false
	}
	return false
}

// started is the task once it has output or never will have; without follow it
// must be so already.
func (s *Server) started(ctx context.Context, in *logInput) (job.Task, error) {
	id := job.ID(in.ID)
	j, err := s.needs.Jobs.Get(ctx, id)
	if err != nil {
		return job.Task{}, about(in.ID, err)
	}
	t, err := taskOf(j, in.Task)
	if err != nil || settled(t, in.Attempt) {
		return t, err
	}
	if !in.Follow {
		return t, fmt.Errorf("output of job %s: %w: it is %s and has none yet; follow it to wait", in.ID, ErrConflict, t.State)
	}
	changes, err := s.needs.Watch.Watch(ctx, []job.ID{id})
	if err != nil {
		return t, err
	}
	for j := range changes {
		if t, err = taskOf(j, in.Task); err != nil || settled(t, in.Attempt) {
			return t, err
		}
	}
	return t, fmt.Errorf("output of job %s: %w: the wait for its start was cut short", in.ID, ErrUnavailable)
}

func taskOf(j job.Job, index int) (job.Task, error) {
	for _, t := range j.Tasks {
		if t.Index == index {
			return t, nil
		}
	}
	return job.Task{}, &notFoundError{"task", string(j.ID) + "." + strconv.Itoa(index), fmt.Sprintf("the job has %d", len(j.Tasks))}
}

// settled says whether the log wanted, or a newer one, is there or never will be.
func settled(t job.Task, attempt int) bool {
	return (hasRun(t) && t.Attempt >= attempt) || t.State.Ended()
}

// attemptLog answers as the host where the attempt runs.
func (s *Server) attemptLog(ctx context.Context, in *attemptInput) (*huma.StreamResponse, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	return s.openLog(ctx, a, in.Stream, in.Offset, in.Follow)
}

func (s *Server) openLog(ctx context.Context, a job.Attempt, stream string, offset int64, follow bool) (*huma.StreamResponse, error) {
	body, start, err := s.needs.Logs.Open(ctx, a, stream, offset, follow)
	if err != nil {
		return nil, fmt.Errorf("output of attempt %s: %w", a, err)
	}
	return s.sendLog(a, body, start), nil
}

const logChunk = 32 << 10 // bytes read at a time

// sendLog copies a log as it comes. The trailer at its end says that it was
// all; a log that breaks off is cut off, so that no reader takes it for whole.
func (s *Server) sendLog(a job.Attempt, body io.ReadCloser, start int64) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer body.Close()
		_, w := humago.Unwrap(hctx)
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set(headerAttempt, strconv.Itoa(a.N))
		h.Set(headerOffset, strconv.FormatInt(start, 10))
		h.Set("Trailer", headerEnd)
		w.WriteHeader(http.StatusOK)
		flush := http.NewResponseController(w).Flush
		buf := make([]byte, logChunk)
		for err := flush(); ; {
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			var n int
			n, err = body.Read(buf)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil || flush() != nil {
					panic(http.ErrAbortHandler)
				}
				start += int64(n)
			}
			if errors.Is(err, io.EOF) {
				h.Set(headerEnd, strconv.FormatInt(start, 10))
				return
			}
		}
	}}
}
