package node

// Who has said goodbye: a daemon that was stopped is gone at once, and nobody
// has to suspect it first.

import (
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// departed are the members whose daemons have stopped by themselves and are not
// back. A leaf with a lock; it holds members only, which are bounded.
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

// when is when the member said goodbye; false if it did not, or is back.
func (d *departed) when(p job.Peer) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.since[p]
	return at, ok
}
