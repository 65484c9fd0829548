package loop

// Watchers: each gets the newest state of the jobs that its filter chooses, even if it reads slowly.

import (
	"context"
	"slices"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

const (
	maxWatchers = 4096 // one for each waiting client: more than the API has streams
	// maxBehind bounds the jobs that a watcher has not read yet. Beyond that the watcher is closed, and its reader
	// lists again.
	maxBehind = 8192
)

// watcher keeps the newest unread state of each job.
type watcher struct {
	filter job.Query
	out    chan job.Job

	mu     sync.Mutex
	latest map[job.ID]*job.Job // guarded by mu; shared with other watchers, so that many slow ones cost little
	order  []job.ID            // of latest, the oldest change first; guarded by mu
	over   bool                // nothing is added any more; guarded by mu
	bell   chan struct{}       // holds one token while there may be something to read
}

// watchers is the set of open watchers. Only the goroutine of the loop uses it.
type watchers struct {
	all    map[*watcher]bool
	naming map[job.ID][]*watcher // those that ask for certain jobs, by the job
	others map[*watcher]bool     // all others
}

func newWatchers() watchers {
	return watchers{all: map[*watcher]bool{}, naming: map[job.ID][]*watcher{}, others: map[*watcher]bool{}}
}

func (ws *watchers) add(w *watcher) {
	ws.all[w] = true
	if len(w.filter.IDs) == 0 {
		ws.others[w] = true
	}
	for _, id := range w.filter.IDs {
		if !slices.Contains(ws.naming[id], w) { // it may name a job twice
			ws.naming[id] = append(ws.naming[id], w)
		}
	}
}

func (ws *watchers) remove(w *watcher) {
	delete(ws.all, w)
	delete(ws.others, w)
	for _, id := range w.filter.IDs {
		left := slices.DeleteFunc(ws.naming[id], func(x *watcher) bool { return x == w })
		if ws.naming[id] = left; len(left) == 0 {
			delete(ws.naming, id)
		}
	}
}

// publish gives changed jobs to the watchers whose filter chooses them. A job that nobody watches costs next to nothing.
func (ws *watchers) publish(v scheduler.View, ids []job.ID) {
	if len(ws.all) == 0 {
		return
	}
	for _, id := range ids {
		naming := ws.naming[id]
		if len(naming)+len(ws.others) == 0 {
			continue
		}
		state := v.State(id)
		if state == "" {
			continue
		}
		ended := state.Ended()
		var j *job.Job // made for the first watcher that may want it
		give := func(w *watcher) {
			if w.filter.Ended && !ended {
				return
			}
			if j == nil {
				j = new(v.Brief(id))
			}
			if w.watches(j) {
				w.put(j)
			}
		}
		for _, w := range naming {
			give(w)
		}
		for w := range ws.others {
			give(w)
		}
	}
}

func (ws *watchers) end() {
	for w := range ws.all {
		w.end()
	}
}

// watches is Match without the ids, which are known to match, and without the states, because a watcher wants to see when a
// job leaves a state.
func (w *watcher) watches(j *job.Job) bool {
	f := w.filter
	f.IDs, f.States = nil, nil
	return f.Match(j)
}

func (w *watcher) put(j *job.Job) { w.set(j, true) }

// putOld adds a state that was read some time ago, unless there is a newer one.
func (w *watcher) putOld(j *job.Job) { w.set(j, false) }

func (w *watcher) set(j *job.Job, newer bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.latest[j.ID]
	if w.over || there && !newer {
		return
	}
	if !there {
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

// next removes and returns the oldest unread job.
func (w *watcher) next() (j job.Job, there, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return job.Job{}, false, w.over
	}
	id := w.order[0]
	w.order = w.order[1:]
	j = *w.latest[id]
	delete(w.latest, id)
	return j, true, false
}

// pump sends unread jobs to the reader until the watcher or ctx ends.
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
