package api

// The streams of events of named jobs, whichever daemons own them, as server-sent events. For daemons of earlier versions
// there is also a stream of all jobs of this daemon.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

// Timeouts and bounds of event streams.
const (
	// after this time without data, a comment shows the client that the stream is alive.
	signOfLife = 10 * time.Second
	// a stream with ended confirms its opening after this time, unless it is complete by then.
	openWithin = 50 * time.Millisecond
	eventQueue = 64 // events between their sources and the writer
)

type eventsInput struct {
	Job    []string  `query:"job" maxItems:"1000" doc:"Ids of jobs, separated by commas. Default: all jobs of the cluster."`
	Mine   bool      `query:"mine" doc:"Only events of jobs of the caller."`
	Ended  bool      `query:"ended" doc:"Send only the end of each of these jobs, then close the stream."`
	Kind   []string  `query:"kind" maxItems:"16" doc:"Only events of these kinds: job, task, node, gpu, member or gone. Events of the stream itself, open, silent and gap, always come."`
	User   string    `query:"user" maxLength:"64" doc:"Only events of this user's jobs."`
	Node   string    `query:"node" maxLength:"128" doc:"Only events of this node, by id or name: its own, and those of jobs that run there."`
	Since  time.Time `query:"since" doc:"Begin with the events since this time, as far as the daemon has them: it collects them while somebody looks."`
	Follow bool      `query:"follow" default:"true" doc:"With false, end after the events that there are."`
	After  string    `header:"Last-Event-ID" maxLength:"64" doc:"Go on after the event with this id. If it is no longer known, the event gap comes first."`
}

func (in eventsInput) query() url.Values {
	q := url.Values{}
	if len(in.Job) > 0 {
		q.Set("job", strings.Join(in.Job, ","))
	}
	if in.Ended {
		q.Set("ended", "true")
	}
	if in.Mine {
		q.Set("mine", "true")
	}
	return q
}

// groups returns the requested jobs by group.
func (in eventsInput) groups() (map[job.Group][]job.ID, error) {
	if in.Ended && len(in.Job) == 0 {
		return nil, bad("events: ended needs the ids of jobs")
	}
	groups := map[job.Group][]job.ID{}
	for _, text := range in.Job {
		id, err := job.ParseID(text)
		if err != nil {
			return nil, &notFoundError{"job", text, "want a whole job id"}
		}
		groups[id.Group()] = append(groups[id.Group()], id)
	}
	return groups, nil
}

// eventRoutes serves the stream of changes to jobs.
type eventRoutes struct {
	*daemons

	jobs      Jobs
	watch     Watch
	directory Directory
	viewer    *viewer
	log       *slog.Logger
}

// known reports whether the request names exactly one job and this daemon has it. It returns an error if this daemon should
// own the job but does not have it, or if the requester may not see it.
func (r *eventRoutes) known(ctx context.Context, in *eventsInput) (bool, error) {
	if len(in.Job) != 1 {
		return false, nil
	}
	id := job.ID(in.Job[0])
	if _, self, err := r.directory.Owner(ctx, id.Group()); err != nil || !self {
		return false, nil //nolint:nilerr // the stream reports it, and goes on looking for the owner
	}
	if _, err := (jobAccess{r.jobs}).may(ctx, partRow, in.Job[0], "follow"); err != nil {
		return false, err
	}
	return true, nil
}

func (r *eventRoutes) stream(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if in.ofCluster(requesterOf(ctx)) {
		return r.cluster(ctx, in)
	}
	groups, err := in.groups()
	if err != nil {
		return nil, err
	}
	known, err := r.known(ctx, in)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // the same context, and it ends with the server too
		_, w := humago.Unwrap(hctx)
		w.Header()[headerFounding] = showProofs(r.directory)
		ctx, cancel := context.WithCancel(hctx.Context())
		queue := eventQueue
		if in.Ended { // each job ends once
			queue = min(queue, len(in.Job))
		}
		f := follower{eventRoutes: r, asker: requesterOf(ctx), out: make(chan outgoing, queue), stop: cancel, peer: requesterOf(ctx).from == fromPeer, ended: in.Ended, single: len(groups) == 1, known: known, mine: in.Mine}
		defer f.sources.Wait()
		defer cancel()
		for g, ids := range groups {
			f.sources.Go(func() { f.group(ctx, g, ids) })
		}
		if in.Ended {
			go func() { f.sources.Wait(); close(f.out) }()
		}
		if len(groups) == 0 { // an earlier version asks for all jobs of this daemon
			// The watch starts before the stream is open, so that no later change is missed.
			changes, err := r.watch.Watch(ctx, nil, false)
			if err != nil {
				refuse(w, err)
				return
			}
			f.sources.Go(func() { f.pass(ctx, changes, nil) })
		}
		writeEvents(ctx, w, f.out, in.Ended)
	}}, nil
}

// writeEvents sends events until the channel is closed, ctx ends, or the client is gone. With ended, the first end goes out
// in one message with EventOpen if it comes within openWithin.
func writeEvents(ctx context.Context, w http.ResponseWriter, events <-chan outgoing, ended bool) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	quiet := time.NewTimer(openWithin)
	defer quiet.Stop()
	err := writeEvent(w, newEvent(EventOpen))
	for held := ended; err == nil; held = false {
		if !held {
			if err = flush(); err != nil {
				return
			}
			quiet.Reset(signOfLife)
		}
		select {
		case <-ctx.Done():
			return
		case e, more := <-events:
			if !more {
				return
			}
			if err = writeEvent(w, e.Event); e.last {
				return
			}
		case <-quiet.C:
			_, err = w.Write([]byte(": alive\n\n"))
		}
	}
}

func writeEvent(w http.ResponseWriter, e Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("api: event: %w", err)
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Kind, data)
	return err
}

func newEvent(kind EventKind) Event {
	return Event{Schema: SchemaEvent, Kind: kind, At: time.Now().UTC()}
}

// follower collects the events of one stream.
type follower struct {
	*eventRoutes

	asker   requester
	out     chan outgoing
	stop    context.CancelFunc // ends the stream; its client opens a new one
	peer    bool               // the request is from another daemon: only this daemon's jobs
	ended   bool               // send only ends; close the stream after the last
	single  bool               // all requested jobs are of one group
	known   bool               // the one requested job is here
	mine    bool               // only jobs of the asker
	sources sync.WaitGroup
}

// outgoing is an event on its way to the writer.
type outgoing struct {
	Event
	last bool // the last event of the stream
}

func (f *follower) send(ctx context.Context, e Event) { f.put(ctx, outgoing{Event: e}) }

func (f *follower) put(ctx context.Context, e outgoing) {
	select {
	case f.out <- e:
	case <-ctx.Done():
	}
}

// awaited holds the jobs whose ends the stream has not sent yet. It is nil for a stream of all changes.
type awaited map[job.ID]bool

func awaitedOf(ids []job.ID) awaited {
	left := make(awaited, len(ids))
	for _, id := range ids {
		left[id] = true
	}
	return left
}

func (left awaited) done() bool { return left != nil && len(left) == 0 }

// tellsEnd reports whether an event says that the job that it names has ended, whatever kind the sending daemon gave it.
func (e Event) tellsEnd() bool { return e.Job != nil && e.Job.ID == e.ID && e.Job.Ended() }

// tell sends an event. A stream with ended skips events of jobs that have not ended. tell returns false when all ends were
// sent.
func (f *follower) tell(ctx context.Context, left awaited, e Event) bool {
	if left == nil {
		f.send(ctx, e)
		return true
	}
	if e.Kind == EventJob || e.Kind == EventGone {
		if !left[e.ID] || (e.Kind == EventJob && !e.tellsEnd()) {
			return true
		}
		delete(left, e.ID)
	}
	f.put(ctx, outgoing{e, f.single && left.done()})
	return !left.done()
}

// gone reports that some jobs do not exist.
func (f *follower) gone(ctx context.Context, left awaited, err error, ids ...job.ID) {
	for _, id := range ids {
		e := newEvent(EventGone)
		e.ID, e.Detail = id, err.Error()
		f.tell(ctx, left, e)
	}
}

// missing reports which of some jobs do not exist.
func (f *follower) missing(ctx context.Context, ids []job.ID, left awaited) {
	for _, id := range ids {
		if _, err := (jobAccess{f.jobs}).may(ctx, partRow, string(id), "follow"); errors.Is(err, ErrNotFound) {
			f.gone(ctx, left, err, id)
		}
	}
}

// here sends events of some jobs that this daemon owns.
func (f *follower) here(ctx context.Context, ids []job.ID, left awaited) {
	if !f.known {
		f.missing(ctx, ids, left)
	}
	if left.done() {
		return
	}
	changes, err := f.watch.Watch(ctx, ids, f.ended)
	if err != nil {
		f.log.WarnContext(ctx, "cannot watch the changes of jobs", "error", err)
		f.stop()
		return
	}
	f.pass(ctx, changes, left)
}

// pass turns changes into events.
func (f *follower) pass(ctx context.Context, changes <-chan job.Job, left awaited) {
	name := f.nameOf(f.self)
	for j := range changes {
		if !f.asker.may(partRow, &j) || f.mine && j.User != f.asker.user {
			continue
		}
		doc := f.asker.shown(&j, briefDocument(&j, f.directory.Copies(j.ID.Group())))
		e := newEvent(EventJob)
		e.Job, e.ID = &doc, j.ID
		doc.OwnerName = name
		if !f.tell(ctx, left, e) {
			return
		}
	}
	f.stop() // the stream fell behind and the watch was closed, or ctx has ended
}

// group sends events of some jobs of one group, whichever daemon owns it.
func (f *follower) group(ctx context.Context, g job.Group, ids []job.ID) {
	silent, left := false, awaited(nil)
	if f.ended {
		left = awaitedOf(ids)
	}
	for n := 1; ctx.Err() == nil; n++ {
		peer, self, err := f.directory.Owner(ctx, g)
		if err == nil && self {
			f.here(ctx, ids, left)
			return
		}
		if err == nil && f.peer {
			f.stop() // the daemon that made the request must look for the owner again
			return
		}
		if err == nil {
			err = f.eventsOf(ctx, peer, eventsInput{Job: texts(ids), Ended: f.ended}, func(e Event) bool { n, silent = 0, false; return f.tell(ctx, left, e) })
		}
		if left.done() {
			return
		}
		if errors.Is(err, ErrNotFound) {
			f.gone(ctx, left, err, ids...)
			return
		}
		if !silent && ctx.Err() == nil {
			silent = true
			f.silence(ctx, peer, err)
		}
		pause(ctx, n)
	}
}

func (f *follower) silence(ctx context.Context, peer job.Peer, err error) {
	e := newEvent(EventSilent)
	e.NodeID, e.Detail = peer, err.Error()
	f.send(ctx, e)
}

// eventsOf receives the events of another daemon until the stream breaks or each returns false.
//
// It drops events of jobs that are not that daemon's own, or that were not requested.
func (d *eventRoutes) eventsOf(ctx context.Context, peer job.Peer, in eventsInput, each func(Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(eventSilence, cancel)
	defer alive.Stop()
	u := url.URL{Scheme: "http", Host: string(peer), Path: "/v1/events", RawQuery: in.query().Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("api: events of %s: %w", peer.Short(), err)
	}
	setRequester(req.Header, requesterOf(ctx))
	leave, err := d.out.wait(ctx, peer, true)
	if err != nil {
		return fmt.Errorf("api: events of %s: %w", peer.Short(), err)
	}
	defer leave()
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("api: events of %s: %w: %s", peer.Short(), ErrUnavailable, cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	from, asked := proven{d.directory, peer, proofsIn(resp.Header)}, map[job.ID]bool{}
	for _, id := range in.Job {
		asked[job.ID(id)] = true
	}
	err = readEvents(resp.Body, func() { alive.Reset(eventSilence) }, func(e Event) bool {
		if e.Kind == EventOpen {
			e.NodeID = peer
		}
		if !from.sends(&e, asked) {
			d.metrics.dropped(1)
			return ctx.Err() == nil
		}
		return each(e) && ctx.Err() == nil
	})
	if err == nil {
		err = errStreamEnded
	}
	return fmt.Errorf("api: events of %s: %w: %w", peer.Short(), ErrUnavailable, err)
}

var errStreamEnded = errors.New("the stream ended")
