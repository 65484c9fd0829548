package api

// The route of the feed: other daemons read the log of this daemon's node and jobs.

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/api/view"
)

// peerFeeds bounds the feeds to one daemon: the current one, and broken ones whose end this daemon has not noticed yet.
const peerFeeds = 4

// feedRoutes serves the feed.
type feedRoutes struct {
	*feedSource

	hello feedHello
	open  perPeer
}

func helloOf(cfg Config) feedHello {
	valid := slices.DeleteFunc(slices.Clone(cfg.Operators), func(u string) bool { return !validUser(u) })
	return feedHello{Own: cfg.OwnOnly, Operators: valid[:min(len(valid), maxOperators)]}
}

type feedInput struct {
	Measured bool `header:"Muster-Measured" doc:"Tell measured values of the node in lines of their own."`
}

func (r *feedRoutes) feed(ctx context.Context, in *feedInput) (*huma.StreamResponse, error) {
	a := requesterOf(ctx)
	withJobs := !a.ownOnly || slices.Contains(a.roles, roleScheduler) // daemons with other roles have no users
	proofs := showProofs(r.directory)
	return &huma.StreamResponse{Body: func(hctx huma.Context) { //nolint:contextcheck // the same context, and it ends with the server too
		req, w := humago.Unwrap(hctx)
		if !r.open.enter(req.RemoteAddr, peerFeeds) {
			refuse(w, problemOfStatus(http.StatusServiceUnavailable, "too many feeds; end another one"))
			return
		}
		defer r.open.leave(req.RemoteAddr)
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header()[headerFounding] = proofs
		r.write(hctx.Context(), w, reader{jobs: withJobs, measured: in.Measured, whole: &r.whole})
	}}, nil
}

// write writes the feed until ctx ends or the reader is gone.
func (r *feedRoutes) write(ctx context.Context, w http.ResponseWriter, to reader) {
	lines, leave := r.read(ctx)
	defer leave()
	if _, err := w.Write(encodeLine(feedLine{Hello: &r.hello})); err != nil {
		return
	}
	flush := http.NewResponseController(w).Flush
	_ = followLog(ctx, lines, func(batch []view.Line, anew bool) error {
		var text []byte
		if anew {
			text = encodeLine(feedLine{Anew: true})
		}
		for _, l := range batch {
			text = append(text, to.text(l)...)
		}
		if len(text) == 0 {
			text = []byte("\n")
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		return flush()
	})
}

// syncing holds back the line Synced until the reader has the lines of all jobs, including jobs that have changed since that
// line was written.
type syncing struct {
	line []view.Line // none or one
	told bool        // the line was passed on; until then there are no pauses, because readers wait for all jobs
}

// last moves the line to the end of the last batch. A full batch is not the last.
func (s *syncing) last(batch []view.Line, full bool) []view.Line {
	if i := slices.IndexFunc(batch, func(l view.Line) bool { return l.Key == keySynced }); i >= 0 {
		s.line = slices.Clone(batch[i : i+1])
		batch = slices.Delete(batch, i, i+1)
	}
	if full {
		return batch
	}
	s.told = s.told || len(s.line) > 0
	batch, s.line = append(batch, s.line...), nil
	return batch
}

// followLog calls each with all lines of a log, then with changed lines, in batches, until ctx ends or each returns
// an error. An empty batch is a sign of life. With anew the reader must forget earlier lines. A pacer spaces the batches.
func followLog(ctx context.Context, lines *view.Log, each func(batch []view.Line, anew bool) error) error {
	alive := time.NewTimer(feedAlive)
	defer alive.Stop()
	var s syncing
	pace := pacer{pause: feedPause}
	for at, missed := uint64(0), false; ; {
		changed := lines.Changed()
		batch, next, anew := lines.Since(at, feedBatch)
		if anew {
			at, missed, s.line = 0, true, nil
			continue
		}
		at = next
		full := len(batch) == feedBatch
		batch = s.last(batch, full)
		if len(batch) > 0 || missed {
			if err := each(batch, missed); err != nil {
				return err
			}
			missed = false
			alive.Reset(feedAlive)
		}
		if full {
			continue
		}
		if len(batch) > 0 && s.told && !pace.rest(ctx, changed) {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-alive.C:
			if err := each(nil, false); err != nil {
				return err
			}
			alive.Reset(feedAlive)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sleep waits. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// perPeer counts the open streams of each daemon.
type perPeer struct {
	mu   sync.Mutex
	open map[string]int // guarded by mu
}

// enter counts a stream and returns true if the daemon has fewer than most.
func (p *perPeer) enter(peer string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[peer] >= most {
		return false
	}
	if p.open == nil {
		p.open = map[string]int{}
	}
	p.open[peer]++
	return true
}

func (p *perPeer) leave(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[peer]--; p.open[peer] == 0 {
		delete(p.open, peer)
	}
}
