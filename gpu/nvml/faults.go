package nvml

// Delivery of faults, from successive children to all subscribers.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
)

// maxFaults bounds the unread faults of a subscriber. A GPU that the host loses reports only a few.
const maxFaults = 256

// faults delivers each fault to all subscribers.
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

// publish delivers the fault to all subscribers that have room.
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
		f.log.Warn("a gpu fault was dropped: it is not read", "uuid", fault.UUID, "fault", fault.Text)
	}
}

// Faults returns what the driver reports from now on. It keeps a child running while ctx lives and this host has
// GPUs. Faults that nobody reads are dropped and logged.
func (d *Driver) Faults(ctx context.Context) (<-chan gpu.Fault, error) {
	if err := d.take(ctx); err != nil {
		return nil, err
	}
	defer d.give()
	out := d.faults.subscribe()
	d.loops.Go(func() {
		defer d.faults.unsubscribe(out)
		d.watch(ctx)
	})
	return out, nil
}

// watch keeps a child running until ctx ends or the driver is closed.
func (d *Driver) watch(ctx context.Context) {
	for {
		gone, pause := d.keep(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-gone:
		case <-timer.C:
		case <-d.closed:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// keep starts a child if none runs, and makes it list the GPUs, because a child reports faults only of GPUs that it has
// listed. It returns what to wait for before the next call: the child's end, and a time.
func (d *Driver) keep(ctx context.Context) (gone <-chan struct{}, pause time.Duration) {
	if d.take(ctx) != nil {
		return nil, idlePoll // ctx has ended or the driver was closed
	}
	defer d.give()
	err := d.running(ctx)
	if err == nil && d.agent.id == 0 {
		_, err = d.list(ctx)
	}
	switch {
	case err == nil && d.agent != nil:
		return d.agent.gone, noneFor
	case err == nil: // a child found no driver
		return nil, noneFor
	case errors.Is(err, errNone):
		return nil, noneFor
	}
	return nil, max(time.Until(d.retryAt), idlePoll)
}
