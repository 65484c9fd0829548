package supervisor

// Which attempts may still write output.

import (
	"sync"

	"github.com/musterhq/muster/job"
)

// activity tells the readers of an attempt's output whether the attempt may still write.
type activity struct {
	mu   sync.Mutex
	all  map[job.Attempt]*attemptActivity // guarded by mu
	next chan struct{}                    // guarded by mu; closed at the next begin; nil while nobody waits
}

// attemptActivity signals two moments by closing channels.
type attemptActivity struct {
	started chan struct{} // its files exist
	ended   chan struct{} // nothing more will be written
}

// begin records that a start of the attempt was requested.
func (v *activity) begin(a job.Attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[a] == nil {
		v.all[a] = &attemptActivity{started: make(chan struct{}), ended: make(chan struct{})}
		if v.next != nil {
			close(v.next)
			v.next = nil
		}
	}
}

// run records that the attempt has a process.
func (v *activity) run(a job.Attempt) {
	v.begin(a)
	v.mu.Lock()
	defer v.mu.Unlock()
	closeOnce(v.all[a].started)
}

// end records that the attempt has no process left.
func (v *activity) end(a job.Attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.all[a]; l != nil {
		closeOnce(l.started)
		closeOnce(l.ended)
		delete(v.all, a)
	}
}

// of returns the activity of an attempt, or nil if it has ended or is not known.
func (v *activity) of(a job.Attempt) *attemptActivity {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[a]
}

// closeOnce closes a channel that may be closed already. Only one goroutine at a time may do so.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
