package api

// The stream of events of the whole cluster, from the view.

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/job"
)

const (
	// eventBatch is the number of events that are written together.
	eventBatch = 256
	// maxEventWrite bounds the bytes that are unpacked before a write; the last event may exceed it.
	maxEventWrite = 256 << 10
	// streamPause is the time between two batches under load. It exists because a busy cluster has many events and each
	// batch wakes the client. It allows ten batches in the first second, because the second one comes early; see pacer.
	streamPause = 110 * time.Millisecond
	// ownWithin bounds how long a stream waits for this daemon's own jobs before it opens.
	ownWithin = 2 * time.Second
)

// ofCluster reports whether the view serves a stream. It does not serve plain streams of named jobs: these begin with the
// present states of the jobs, and their events come from the owners without a pause. Nor does it serve other daemons.
func (in *eventsInput) ofCluster(a requester) bool {
	more := len(in.Kind) > 0 || in.User != "" || in.Node != "" || !in.Since.IsZero() || in.After != "" || !in.Follow
	return a.from != fromPeer && !in.Ended && (len(in.Job) == 0 || more)
}

// eventFilter selects events of the view.
type eventFilter struct {
	asker requester
	kinds []EventKind
	jobs  map[job.ID]bool
	user  string
	mine  bool // of the events of jobs, only those of the asker's jobs; events of nodes and members are not affected
	node  job.Peer
}

// filter returns the filter that a request describes.
func (r *eventRoutes) filter(ctx context.Context, in *eventsInput) (*eventFilter, error) {
	f := &eventFilter{asker: requesterOf(ctx), user: in.User, mine: in.Mine, jobs: map[job.ID]bool{}}
	known := []EventKind{EventJob, EventTask, EventNode, EventGPU, EventMember, EventGone}
	for _, k := range in.Kind {
		if !slices.Contains(known, EventKind(k)) {
			return nil, bad("kind %s: no such events; want some of %v", quote(k), known)
		}
		f.kinds = append(f.kinds, EventKind(k))
	}
	for _, text := range in.Job {
		id, err := job.ParseID(text)
		if err != nil {
			return nil, &notFoundError{"job", text, "want a whole job id"}
		}
		f.jobs[id] = true
	}
	if in.Node != "" {
		m, err := r.find(ctx, in.Node)
		if err != nil {
			return nil, err
		}
		f.node = m.Peer
	}
	return f, nil
}

// selects reports whether the requester gets an event, and whether they may see all of it.
func (f *eventFilter) selects(e *viewEvent) (chosen, all bool) {
	if e.kind == EventOpen || e.kind == EventSilent { // these affect the stream itself: every client gets them
		return true, false
	}
	switch {
	case len(f.kinds) > 0 && !slices.Contains(f.kinds, e.kind),
		f.user != "" && f.user != e.user,
		f.mine && e.job != "" && f.asker.user != e.user,
		len(f.jobs) > 0 && !f.jobs[e.job],
		f.node != "" && !slices.Contains(e.nodes, f.node),
		e.sight != nil && !e.sight.may(&f.asker, e.user):
		return false, false
	}
	return true, e.sight != nil && e.sight.all(&f.asker, e.user)
}

// cluster streams events of the whole cluster.
func (r *eventRoutes) cluster(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	f, err := r.filter(ctx, in)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // the same context, and it ends with the server too
		_, w := humago.Unwrap(hctx)
		v, leave := r.viewer.hold(hctx.Context())
		defer leave()
		at, missed := v.start(in)
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		s := clusterStream{clusterView: v, filter: f, w: w, flush: http.NewResponseController(w).Flush}
		_ = s.run(hctx.Context(), at, missed, in.Follow) // an error means that the client is gone
	}}, nil
}

// start returns the number of the event after which a stream begins. missed is true if the view lacks requested events.
func (w *clusterView) start(in *eventsInput) (number uint64, missed bool) {
	if in.After != "" {
		epoch, text, _ := strings.Cut(in.After, "-")
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || epoch != w.epoch || n > w.ring.Last() {
			return w.ring.Last(), true
		}
		return n, false
	}
	if !in.Since.IsZero() {
		return w.ring.Before(in.Since, w.begun)
	}
	return w.ring.Last(), false
}

// clusterStream writes events to one client.
type clusterStream struct {
	*clusterView

	filter *eventFilter
	w      http.ResponseWriter
	flush  func() error
	alive  *time.Timer // fires when nothing was written for a while, even if there were events that the filter dropped
}

// run writes the events after the number at, until ctx ends or the client is gone. Without follow it stops after the present
// events. A pacer spaces the batches.
func (s *clusterStream) run(ctx context.Context, at uint64, missed, follow bool) error {
	if follow {
		s.awaitOwn(ctx)
	}
	s.alive = time.NewTimer(signOfLife)
	defer s.alive.Stop()
	if err := s.mark(EventOpen, at, ""); err != nil {
		return err
	}
	pace := pacer{pause: streamPause}
	for {
		changed := s.ring.Changed()
		n, next, err := s.batch(at, missed)
		if err != nil {
			return err
		}
		at, missed = next, false
		if n == eventBatch {
			continue
		}
		if !follow {
			return nil
		}
		if n > 0 && !pace.rest(ctx, changed) {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-s.alive.C:
			if err := s.put([]byte(": alive\n\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitOwn waits until the view has this daemon's own jobs. Until then a submitted job causes no event. So if the stream
// opened earlier, a client that lists the jobs once the stream is open could miss a job. If the wait takes too long, the
// stream opens anyway, and a later open event names this daemon.
func (s *clusterStream) awaitOwn(ctx context.Context) {
	late := time.NewTimer(ownWithin)
	defer late.Stop()
	select {
	case <-s.ready:
	case <-late.C:
		s.late.Store(true)
	case <-ctx.Done():
	}
}

// batch writes the next events. If events are missing, it writes EventGap first.
func (s *clusterStream) batch(at uint64, missed bool) (n int, next uint64, err error) {
	events, next, gap := s.ring.After(at, eventBatch)
	if gap || missed {
		err = s.mark(EventGap, next-uint64(len(events)), "events are missing here; load again what you show")
	}
	if err == nil {
		err = s.write(events)
	}
	return len(events), next, err
}

// write writes the events that the filter selects.
func (s *clusterStream) write(events []viewEvent) error {
	var text []byte
	for i := range events {
		if chosen, all := s.filter.selects(&events[i]); chosen {
			text = s.packer.Append(text, events[i].frame, all)
		}
		if last := i == len(events)-1; len(text) > 0 && (last || len(text) > maxEventWrite) {
			if err := s.put(text); err != nil {
				return err
			}
			text = text[:0]
		}
	}
	return nil
}

func (s *clusterStream) put(text []byte) error {
	s.alive.Reset(signOfLife)
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.flush()
}

// mark writes an event about the stream itself. Its id has the number at, so that a client that connects again goes on
// after the event with that number.
func (s *clusterStream) mark(kind EventKind, at uint64, detail string) error {
	id := s.epoch + "-" + strconv.FormatUint(at, 10)
	c := change{viewEvent: viewEvent{kind: kind}, detail: detail}
	return s.put(frameOf(id, time.Now().UTC(), &c, nil))
}
