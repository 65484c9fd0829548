package daemon

// The drain of this host. It outlives the daemon.

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/loop"
)

// drainKey is the key of the drain in the store.
const drainKey = "worker/drain"

// drains writes a drain to disk, and then passes it to the worker.
type drains struct {
	disk interface {
		Put(key string, val []byte) error
		Get(key string) ([]byte, error)
		Delete(key string) error
	}

	mu  sync.Mutex
	now *api.Drain // guarded by mu; nil: in service
}

// load reads the drain from disk.
func (d *drains) load() (worker.Drain, error) {
	text, err := d.disk.Get(drainKey)
	if err != nil || text == nil {
		return worker.Drain{}, err
	}
	var was api.Drain
	if err := json.Unmarshal(text, &was); err != nil {
		return worker.Drain{}, fmt.Errorf("node: read the drain of this host: %w", err)
	}
	d.mu.Lock()
	d.now = &was
	d.mu.Unlock()
	return drainOf(was), nil
}

func drainOf(d api.Drain) worker.Drain {
	out := worker.Drain{On: true, Reason: d.Reason}
	if d.Deadline != nil {
		out.Deadline = *d.Deadline
	}
	return out
}

// set begins or changes a drain; nil ends it. At the end of a drain, set calls ready before it tells the worker.
func (d *drains) set(to *api.Drain, work *loop.Loop, ready func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to == nil {
		if err := d.disk.Delete(drainKey); err != nil {
			return err
		}
		if err := ready(); err != nil {
			return err
		}
		d.now = nil
		work.Drain(worker.Drain{})
		return nil
	}
	text, err := json.Marshal(to)
	if err != nil {
		return fmt.Errorf("node: save the drain of this host: %w", err)
	}
	if err := d.disk.Put(drainKey, text); err != nil {
		return err
	}
	d.now = to
	work.Drain(drainOf(*to))
	return nil
}

func (d *drains) get() *api.Drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}
