package daemon

// Members whose daemons were stopped. A daemon that stops says goodbye, so it is shown as lost at once.

import (
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// departed holds the members that said goodbye and are not back. It is safe for concurrent use.
type departed struct {
	mu    sync.Mutex
	since map[job.Peer]time.Time // guarded by mu
}

func newDeparted() *departed { return &departed{since: map[job.Peer]time.Time{}} }

func (d *departed) gone(p job.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since[p] = time.Now()
}

func (d *departed) back(p job.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, p)
}

// when returns the time when the member said goodbye, or false if it did not or is back.
func (d *departed) when(p job.Peer) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.since[p]
	return at, ok
}
