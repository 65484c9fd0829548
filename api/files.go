package api

// The route of a task's files. The owner of the job knows where an attempt runs or ran; that host has the files.
// Daemons in between only forward them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/job"
)

// Files finds the files of attempts of this host.
type Files interface {
	// Pack writes the files in the directory of an attempt that match globs to w, as tar. For a running attempt it
	// writes the present files; for one that has ended, the files that its job asked to keep. With base each match is at
	// the root of the archive, under its own name. If nothing matches it writes nothing and returns ErrNotFound.
	Pack(ctx context.Context, a job.Attempt, globs []string, base bool, w io.Writer) error
}

const (
	contentTar = "application/x-tar"
	maxPaths   = job.MaxDownloads
	// fileSilence is how long a host may search for files before its answer begins.
	fileSilence = 30 * time.Second
)

type filesInput struct {
	ID   string   `path:"id" maxLength:"64"`
	Task int      `path:"t" minimum:"0" maximum:"2147483647"`
	Path []string `query:"path,explode" maxItems:"256" doc:"Paths or globs below the task's directory. Default: the globs that the job asked to download."`
	Base bool     `query:"base" doc:"Put each match at the root of the archive, under its own name."`
}

type attemptFilesInput struct {
	Attempt string   `path:"attempt" maxLength:"64"`
	Path    []string `query:"path,explode" maxItems:"256"`
	Base    bool     `query:"base"`
}

// fileRoutes serves the files of tasks.
type fileRoutes struct {
	*daemons
	jobAccess

	files Files
}

// task serves the request as the owner of the job.
func (f *fileRoutes) task(ctx context.Context, in *filesInput) (*huma.StreamResponse, error) {
	j, t, err := f.mayTask(ctx, partFiles, in.ID, in.Task, "read the files of")
	if err != nil {
		return nil, err
	}
	if len(in.Path) == 0 {
		in.Path = j.Spec.Download
	}
	if err := checkGlobs(in.Path); err != nil {
		return nil, err
	}
	requesterOf(ctx).note.with("paths", strings.Join(in.Path, " "))
	if !hasRun(t) {
		return nil, fmt.Errorf("files of job %s: %w: it is %s and has none yet", in.ID, ErrConflict, t.State)
	}
	a := job.Attempt{Job: j.ID, Task: t.Index, N: t.Attempt}
	if t.Node == f.self {
		return f.send(a, in.Path, in.Base), nil //nolint:contextcheck // huma passes the same context
	}
	q := url.Values{"path": in.Path, "base": {strconv.FormatBool(in.Base)}}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // huma passes the same context
		r, w := humago.Unwrap(hctx)
		r = r.Clone(hctx.Context())
		r.URL.RawQuery = q.Encode()
		f.forward(w, r, destination{
			peer: t.Node, path: "/peer/v1/attempts/" + a.String() + "/files", who: "node " + t.NodeName + ", which has the files of job " + in.ID + ",",
		}, answerLimit{limit: fileSilence})
	}}, nil
}

func checkGlobs(globs []string) error {
	if len(globs) == 0 {
		return bad("files: name the files to read; the job asked to keep none")
	}
	for _, g := range globs {
		if err := job.CheckGlob(g); err != nil {
			return bad("path %.100q: %w", g, err)
		}
		if !doublestar.ValidatePattern(g) {
			return bad("path %.100q: not a glob", g)
		}
	}
	return nil
}

// attempt serves the request as the host where the attempt runs or ran.
func (f *fileRoutes) attempt(ctx context.Context, in *attemptFilesInput) (*huma.StreamResponse, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	if err := checkGlobs(in.Path); err != nil {
		return nil, err
	}
	requesterOf(ctx).note.with("paths", strings.Join(in.Path, " "))
	return f.send(a, in.Path, in.Base), nil //nolint:contextcheck // huma passes the same context
}

// send sends an archive. The trailer at its end confirms that it is complete.
func (f *fileRoutes) send(a job.Attempt, globs []string, base bool) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, w := humago.Unwrap(hctx)
		out := &lateHeader{w: w, begin: func() {
			h := w.Header()
			origin.Attach(h, contentTar, a.String()+".tar")
			h.Set("Cache-Control", "no-store")
			h.Set(headerAttempt, strconv.Itoa(a.N))
			h.Set("Trailer", headerEnd)
			w.WriteHeader(http.StatusOK)
			// Without a flush a short answer gets a length instead of a trailer. If the client is gone the next write fails.
			_ = http.NewResponseController(w).Flush()
		}}
		err := f.files.Pack(hctx.Context(), a, globs, base, out)
		switch {
		case err == nil:
			w.Header().Set(headerEnd, strconv.FormatInt(out.n, 10))
		case out.n == 0:
			refuse(w, fmt.Errorf("files of attempt %s: %w", a, err))
		default:
			panic(http.ErrAbortHandler)
		}
	}}
}

// lateHeader delays the response header until the first byte, so that an error before it can still be sent.
type lateHeader struct {
	w     http.ResponseWriter
	begin func()
	n     int64
}

func (l *lateHeader) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // an empty write must not begin the response
	}
	if l.n == 0 {
		l.begin()
	}
	n, err := l.w.Write(p)
	l.n += int64(n)
	return n, err
}

// FilesRequest selects files of a task.
type FilesRequest struct {
	Job   job.ID
	Task  int
	Paths []string // globs below the task's directory; none: what the job asked to keep
	Base  bool     // each match at the root, under its own name
}

// Files calls unpack with the files as a tar archive. unpack must read it to its end. If unpack succeeds but the archive was
// cut off, Files returns an error.
func (c *Client) Files(ctx context.Context, r FilesRequest, unpack func(io.Reader) error) error {
	q := url.Values{}
	if len(r.Paths) > 0 {
		q["path"] = r.Paths
	}
	if r.Base {
		q.Set("base", "true")
	}
	resp, err := c.open(ctx, http.MethodGet, jobPath(r.Job, "/tasks/", strconv.Itoa(r.Task), "/files"), q, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = unpack(resp.Body)
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, 1) // the trailer follows the end
		if err == nil {
			err = fmt.Errorf("files of job %s: the answer goes on after its end", r.Job)
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err == nil && resp.Trailer.Get(headerEnd) == "" {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &unreachable{text: fmt.Sprintf("the files of job %s from %s are not complete: copy them again", r.Job, c.where), cause: err}
	}
	return err
}
