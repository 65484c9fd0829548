package scheduler

// Watchers: each sees the newest state of the jobs that it asked for, however
// slowly it reads.

import (
	"context"
	"errors"
	"slices"
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

// Watch streams the jobs that the filter chooses: as they are, then as they
// change; what was overtaken before it was read is left out. The channel is
// closed when ctx ends, when the scheduler does, or when the reader is too far
// behind: list and watch again.
func (l *Loop) Watch(ctx context.Context, f job.Query) (<-chan job.Job, error) {
	w := &watcher{filter: f, out: make(chan job.Job), latest: map[job.ID]job.Job{}, bell: make(chan struct{}, 1)}
	archived, err := query(ctx, l, func(c *Core) (archived []Listed, err error) {
		if len(l.watchers.all) >= maxWatchers {
			return nil, ErrBusy
		}
		l.watchers.all[w] = true
		for _, x := range slices.Backward(c.Page(f)) {
			if x.Job != nil {
				w.put(*x.Job)
			} else {
				archived = append(archived, x)
			}
		}
		return archived, nil
	})
	if err == nil {
		err = l.putArchived(w, archived)
	}
	if err != nil {
		l.unwatch(w)
		return nil, err
	}
	go func() {
		defer close(w.out)
		w.pump(ctx)
		l.unwatch(w)
	}()
	return w.out, nil
}

// putArchived hands archived jobs to a watcher; nothing newer can come of them.
func (l *Loop) putArchived(w *watcher, archived []Listed) error {
	for _, x := range archived {
		j, err := l.whole(x)
		if errors.Is(err, ErrNotFound) {
			continue // forgotten since
		}
		if err != nil {
			return err
		}
		if w.filter.Match(&j) {
			w.put(j)
		}
	}
	return nil
}

// unwatch has the loop forget the watcher.
func (l *Loop) unwatch(w *watcher) {
	l.box.putAlways(mail{look: func(*Core) { delete(l.watchers.all, w) }})
}

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
