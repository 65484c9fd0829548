package api

// The progress of jobs, for dependencies between jobs of different daemons: a daemon follows the jobs of another one over a
// stream of JSON lines. See docs/adr, ADR 86.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

// Bounds of following.
const (
	maxFollowed   = 16384           // jobs in one stream
	maxFollowers  = 1024            // streams at a time
	peerFollowers = 4               // streams of one peer: the current one, and broken ones whose end is not noticed yet
	maxProgress   = 64 << 10        // bytes of one line: at most job.MaxRanges ranges
	parentsWithin = 3 * time.Second // for the answers of the owners of parent jobs, when a job is submitted
	// hopelessAfter is when they are waited for no more if no known host could run the job: it will probably be refused for that.
	hopelessAfter  = 100 * time.Millisecond
	parentsAtATime = 16 // owners that are asked at the same time
)

// followRequest names the jobs of one group that a daemon follows. It wants the states of the tasks of those in Tasks, too.
type followRequest struct {
	Jobs  []string `json:"jobs,omitempty" maxItems:"16384"`
	Tasks []string `json:"tasks,omitempty" maxItems:"16384"`
}

func followRequestOf(jobs []job.Follow) (r followRequest) {
	for _, x := range jobs {
		if x.Tasks {
			r.Tasks = append(r.Tasks, string(x.Job))
		} else {
			r.Jobs = append(r.Jobs, string(x.Job))
		}
	}
	return r
}

// follows returns the requested jobs. It returns an error if one is not of the group.
func (r followRequest) follows(g job.Group) ([]job.Follow, error) {
	if n := len(r.Jobs) + len(r.Tasks); n < 1 || n > maxFollowed {
		return nil, bad("follow: %d jobs; want 1 to %d", n, maxFollowed)
	}
	var out []job.Follow
	for i, text := range slices.Concat(r.Jobs, r.Tasks) {
		id, err := job.ParseID(text)
		if err != nil || id.Group() != g {
			return nil, bad("follow %s: not a job of %s", quote(text), g)
		}
		out = append(out, job.Follow{Job: id, Tasks: i >= len(r.Jobs)})
	}
	return out, nil
}

// progressDocument is a line of the stream. Ranges are pairs of the first and the last number.
type progressDocument struct {
	Job       job.ID    `json:"job"`
	State     job.State `json:"state,omitempty"` // empty: there is no such job
	Started   bool      `json:"started,omitempty"`
	Ago       float64   `json:"ago,omitempty"` // seconds
	Succeeded [][2]int  `json:"succeeded,omitempty"`
	Failed    [][2]int  `json:"failed,omitempty"`
	Open      [][2]int  `json:"open,omitempty"`
}

func documentOfProgress(p job.Progress) progressDocument {
	return progressDocument{
		Job: p.Job, State: p.State, Started: p.Started, Ago: p.Ago.Seconds(),
		Succeeded: pairs(p.Tasks.Succeeded), Failed: pairs(p.Tasks.Failed), Open: pairs(p.Tasks.Open),
	}
}

func pairs(ranges []job.Range) (out [][2]int) {
	for _, r := range ranges {
		out = append(out, [2]int{r.First, r.Last})
	}
	return out
}

var errNonsense = errors.New("the answer is not the progress of a job that was asked for")

// value checks a document of another daemon and returns its progress.
func (d progressDocument) value(asked map[job.ID]bool) (job.Progress, error) {
	tasks, known := asked[d.Job]
	lists := [][][2]int{d.Succeeded, d.Failed, d.Open}
	n := len(d.Succeeded) + len(d.Failed) + len(d.Open)
	if !known || d.State != "" && !slices.Contains(job.States(), d.State) || n > job.MaxRanges || n > 0 && !tasks {
		return job.Progress{}, errNonsense
	}
	p := job.Progress{Job: d.Job, State: d.State, Started: d.Started}
	if d.Ago > 0 && d.Ago < (10*366*24*time.Hour).Seconds() {
		p.Ago = time.Duration(d.Ago * float64(time.Second))
	}
	for i, to := range []*[]job.Range{&p.Tasks.Succeeded, &p.Tasks.Failed, &p.Tasks.Open} {
		for _, x := range lists[i] {
			if x[0] < 0 || x[1] < x[0] || x[1] > job.MaxIndex {
				return job.Progress{}, errNonsense
			}
			*to = append(*to, job.Range{First: x[0], Last: x[1]})
		}
	}
	return p, nil
}

type followInput struct {
	Group string `path:"group" maxLength:"16"`
	Body  followRequest
}

// followRoutes serves the progress of this daemon's jobs to other daemons.
type followRoutes struct {
	*daemons

	progress  Progress
	directory Directory

	open perPeer
}

func (r *followRoutes) follow(ctx context.Context, in *followInput) (*huma.StreamResponse, error) {
	g, err := job.ParseGroup(in.Group)
	if err != nil {
		return nil, bad("%w", err)
	}
	jobs, err := in.Body.follows(g)
	if err != nil {
		return nil, err
	}
	if _, self, err := r.directory.Owner(ctx, g); err != nil || !self {
		return nil, problemOfStatus(http.StatusServiceUnavailable, "jobs …-"+in.Group+": this daemon does not own them")
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // the same context, and it ends with the server too
		req, w := humago.Unwrap(hctx)
		if !r.open.enter(req.RemoteAddr, peerFollowers) {
			refuse(w, problemOfStatus(http.StatusServiceUnavailable, "too many streams of progress; end another one"))
			return
		}
		defer r.open.leave(req.RemoteAddr)
		r.stream(hctx.Context(), w, jobs)
	}}, nil
}

// stream sends the progress of jobs until the client is gone or this daemon no longer owns them.
func (r *followRoutes) stream(ctx context.Context, w http.ResponseWriter, jobs []job.Follow) {
	ctx, cancel := context.WithCancel(ctx)
	lines := make(chan job.Progress, eventQueue)
	ended := make(chan error, 1)
	var source sync.WaitGroup
	defer source.Wait()
	defer cancel()
	source.Go(func() {
		ended <- r.progress.Follow(ctx, jobs, func(p job.Progress) error {
			select {
			case lines <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	alive := time.NewTicker(signOfLife)
	defer alive.Stop()
	out := progressWriter{w: w}
	for err := error(nil); err == nil; {
		select {
		case why := <-ended:
			out.end(ctx, why)
			return
		case p := <-lines:
			err = out.line(p, len(lines) == 0)
		case <-alive.C:
			err = out.alive()
		}
	}
}

// progressWriter writes the lines of a stream.
type progressWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (o *progressWriter) line(p job.Progress, last bool) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "application/jsonl")
	}
	err := json.NewEncoder(o.w).Encode(documentOfProgress(p))
	if err == nil && last {
		err = http.NewResponseController(o.w).Flush()
	}
	return err
}

// alive writes an empty line as a sign of life.
func (o *progressWriter) alive() error {
	if !o.begun {
		return nil
	}
	if _, err := o.w.Write([]byte("\n")); err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}

// end answers with a problem if the stream has not begun.
func (o *progressWriter) end(ctx context.Context, why error) {
	if !o.begun && ctx.Err() == nil {
		refuse(o.w, why)
	}
}

// Follow calls each with the progress of jobs of one group, then with each change, whichever daemon owns them. It returns
// when ctx ends, when each returns an error, or when the owner does not answer; the error then names the owner.
func (s *Server) Follow(ctx context.Context, g job.Group, jobs []job.Follow, each func(job.Progress) error) error {
	return s.follows.Follow(ctx, g, jobs, each)
}

// Follow is Server.Follow.
func (r *followRoutes) Follow(ctx context.Context, g job.Group, jobs []job.Follow, each func(job.Progress) error) error {
	peer, self, err := r.directory.Owner(ctx, g)
	switch {
	case err != nil:
		return fmt.Errorf("its owner is not known: %w", err)
	case self:
		return r.progress.Follow(ctx, jobs, each)
	}
	if err := r.followAt(ctx, peer, g, jobs, each); err != nil {
		return fmt.Errorf("its owner %s does not answer: %w", r.nameOf(peer), err)
	}
	return nil
}

// followAt follows jobs of another daemon.
func (d *daemons) followAt(ctx context.Context, peer job.Peer, g job.Group, jobs []job.Follow, each func(job.Progress) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(eventSilence, func() { cancel(errNoAnswer) })
	defer alive.Stop()
	body, err := json.Marshal(followRequestOf(jobs))
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "http", Host: string(peer), Path: "/peer/v1/groups/" + g.String() + "/progress"}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	setRequester(req.Header, requesterOf(ctx))
	leave, err := d.out.wait(ctx, peer, false) // a short slot: in the name of a user it asks only once; see unknownParents
	if err != nil {
		return err
	}
	defer leave()
	resp, err := d.http.Do(req)
	if err != nil {
		return followError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	asked := map[job.ID]bool{}
	for _, x := range jobs {
		asked[x.Job] = asked[x.Job] || x.Tasks
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxProgress)
	for lines.Scan() {
		alive.Reset(eventSilence)
		if len(lines.Bytes()) == 0 {
			continue
		}
		var doc progressDocument
		if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
			return errNonsense
		}
		p, err := doc.value(asked)
		if err == nil {
			err = each(p)
		}
		if err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return followError(ctx, err)
	}
	return errStreamEnded
}

// followError returns a short reason why a stream has ended.
func followError(ctx context.Context, err error) error {
	if late := context.Cause(ctx); late != nil {
		return late
	}
	return errors.New(cause(err))
}

// unknownParents returns the jobs of a dependency that do not exist, as their owners say. Jobs of owners that do not answer
// until ctx ends are left out.
func (r *followRoutes) unknownParents(ctx context.Context, d job.Dependencies) []job.ID {
	groups := map[job.Group][]job.Follow{}
	for _, id := range d.IDs() {
		groups[id.Group()] = append(groups[id.Group()], job.Follow{Job: id})
	}
	var mu sync.Mutex
	var unknown []job.ID
	var asking sync.WaitGroup
	room := make(chan struct{}, parentsAtATime)
	for g, jobs := range groups {
		asking.Go(func() {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-room }()
			left := len(jobs)
			_ = r.Follow(ctx, g, jobs, func(p job.Progress) error { // an owner that does not answer may have the job
				if p.State == "" {
					mu.Lock()
					unknown = append(unknown, p.Job)
					mu.Unlock()
				}
				if left--; left == 0 {
					return errAnswered
				}
				return nil
			})
		})
	}
	asking.Wait()
	slices.SortFunc(unknown, func(a, b job.ID) int { return strings.Compare(string(a), string(b)) })
	return unknown
}

var errAnswered = errors.New("all were answered")
