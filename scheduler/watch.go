package scheduler

// Watchers: each sees the newest state of the jobs that it asked for, however slowly it reads.

import (
	"context"
	"sync"

	"github.com/musterhq/muster/job"
)

const (
	maxWatchers = 1024 // at a time: one per waiting client
	// maxBehind bounds the jobs that a watcher has yet to read; beyond, it is
	// closed, and its reader lists anew.
	maxBehind = 8192
)

// watcher keeps, for each job, only what was not yet read.
type watcher struct {
	filter job.Query
	out    chan job.Job

	mu     sync.Mutex
	latest map[job.ID]job.Job // guarded by mu
	order  []job.ID           // of latest, oldest change first; guarded by mu
	over   bool               // nothing more comes; guarded by mu
	bell   chan struct{}      // holds one ring
}

// watchers are the open ones; the loop's goroutine owns the set.
type watchers struct {
	all map[*watcher]bool
}

func newWatchers() watchers { return watchers{all: map[*watcher]bool{}} }

// publish hands changed jobs to those who watch them.
func (ws *watchers) publish(c *Core, ids []job.ID) {
	if len(ws.all) == 0 {
		return
	}
	for _, id := range ids {
		j, ok := c.Job(id)
		if !ok {
			continue
		}
		for w := range ws.all {
			if watches(&w.filter, &j) {
				w.put(j)
			}
		}
	}
}

// watches is matches without the state: a watcher wants to see a job leave it.
func watches(f *job.Query, j *job.Job) bool {
	g := *f
	g.States = nil
	return g.Match(j)
}

func (ws *watchers) end() {
	for w := range ws.all {
		w.end()
	}
}

func (w *watcher) put(j job.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if _, there := w.latest[j.ID]; !there {
		if len(w.order) >= maxBehind {
			w.over = true
			w.latest, w.order = nil, nil
			w.ring()
			return
		}
		w.order = append(w.order, j.ID)
	}
	w.latest[j.ID] = j
	w.ring()
}

func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.ring()
}

func (w *watcher) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// next takes the oldest unread job.
func (w *watcher) next() (j job.Job, there, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return job.Job{}, false, w.over
	}
	id := w.order[0]
	w.order = w.order[1:]
	j = w.latest[id]
	delete(w.latest, id)
	return j, true, false
}

// pump brings unread jobs to the reader until nothing more comes.
func (w *watcher) pump(ctx context.Context) {
	for {
		j, there, over := w.next()
		if over {
			return
		}
		if !there {
			select {
			case <-w.bell:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.out <- j:
		case <-ctx.Done():
			return
		}
	}
}
