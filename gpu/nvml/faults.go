package nvml

// Faults: from one child after another to all that asked.

import (
	"log/slog"
	"sync"

	"github.com/musterhq/muster/gpu"
)

// maxFaults bounds the faults that a reader has not taken: a GPU that falls
// off the bus reports a handful.
const maxFaults = 256

// faults hands each fault to all subscribers.
type faults struct {
	log  *slog.Logger
	mu   sync.Mutex
	subs []chan gpu.Fault // guarded by mu
}

func (f *faults) subscribe() chan gpu.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan gpu.Fault, maxFaults)
	f.subs = append(f.subs, c)
	return c
}

func (f *faults) unsubscribe(c chan gpu.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.subs {
		if s == c {
			f.subs = append(f.subs[:i:i], f.subs[i+1:]...)
			close(c)
			return
		}
	}
}

// publish hands the fault to all subscribers that have room.
func (f *faults) publish(fault gpu.Fault) {
	dropped := 0
	f.mu.Lock()
	for _, c := range f.subs {
		select {
		case c <- fault:
		default:
			dropped++
		}
	}
	f.mu.Unlock()
	if dropped > 0 {
		f.log.Warn("a gpu fault was dropped: it is not read", "uuid", fault.UUID, "xid", fault.Xid)
	}
}
