package loop

// Followers: other daemons, and this one, that are told the progress of some jobs. A follower keeps only which of its
// jobs have changed. Their progress is read when it can be passed on.
// See docs/adr, ADR 86.

import (
	"slices"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	maxFollowers = 1024 // one for each daemon whose jobs depend on jobs of this one
	// MaxFollowed bounds the jobs that one follower follows: as many as a scheduler ever asks for.
	MaxFollowed = scheduler.MaxParents
	// maxAllFollowed bounds the jobs of all followers together: some 100 MB.
	maxAllFollowed = 1 << 20
)

// follower is a daemon that follows the progress of some jobs.
type follower struct {
	tasks map[job.ID]bool // the jobs; true if the state of each task is wanted

	mu    sync.Mutex
	fresh map[job.ID]bool // the jobs that order has; guarded by mu
	order []job.ID        // jobs that have changed since they were taken; guarded by mu
	over  bool            // guarded by mu
	bell  chan struct{}   // holds one token while there may be something to take
}

func newFollower(all []job.Follow) *follower {
	f := &follower{tasks: map[job.ID]bool{}, fresh: map[job.ID]bool{}, bell: make(chan struct{}, 1)}
	for _, x := range all {
		f.tasks[x.Job] = f.tasks[x.Job] || x.Tasks
		f.mark(x.Job)
	}
	return f
}

// mark notes that a job has changed.
func (f *follower) mark(id job.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fresh[id] {
		f.fresh[id] = true
		f.order = append(f.order, id)
	}
	f.ring()
}

func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.ring()
}

func (f *follower) ring() {
	select {
	case f.bell <- struct{}{}:
	default:
	}
}

// take removes and returns the jobs that have changed.
func (f *follower) take() (ids []job.ID, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, f.order = f.order, nil
	clear(f.fresh)
	return ids, f.over
}

// followers is the set of followers. Only the goroutine of the loop uses it.
type followers struct {
	of   map[job.ID][]*follower
	n    int
	jobs int // of all of them together
}

func (fs *followers) add(f *follower) error {
	if fs.n >= maxFollowers || fs.jobs+len(f.tasks) > maxAllFollowed {
		return step.ErrBusy
	}
	if fs.of == nil {
		fs.of = map[job.ID][]*follower{}
	}
	fs.n++
	fs.jobs += len(f.tasks)
	for id := range f.tasks {
		fs.of[id] = append(fs.of[id], f)
	}
	return nil
}

// remove removes a follower. It does nothing if the follower is not in the set.
func (fs *followers) remove(f *follower) {
	there := false
	for id := range f.tasks {
		i := slices.Index(fs.of[id], f)
		if i < 0 {
			continue
		}
		there = true
		if fs.of[id] = slices.Delete(fs.of[id], i, i+1); len(fs.of[id]) == 0 {
			delete(fs.of, id)
		}
	}
	if there {
		fs.n--
		fs.jobs -= len(f.tasks)
	}
}

// publish tells the followers which jobs have changed or are gone.
func (fs *followers) publish(changed, gone []job.ID) {
	if fs.n == 0 {
		return
	}
	for _, ids := range [][]job.ID{changed, gone} {
		for _, id := range ids {
			for _, f := range fs.of[id] {
				f.mark(id)
			}
		}
	}
}

// end ends all followers: this daemon does not own the jobs, or stops.
func (fs *followers) end() {
	for _, all := range fs.of {
		for _, f := range all {
			f.end()
		}
	}
	*fs = followers{}
}
