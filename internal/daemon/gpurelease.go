package daemon

// The GPUs of a drained host. A GPU that a process has open cannot be reset, split into MIG instances or given to another
// driver. So the daemon closes all of them, once no task holds one: a task has its GPUs open anyway, and their memory must
// be watched. A single card in quarantine is not closed: the library opens all cards together, and the reset of linked
// cards needs all of them. What was known last stays listed, with the time of its reading. `node resume` answers when the
// worker knows the present state of the GPUs, so a card that did not come back from its reset is given to nobody.

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/musterhq/muster/gpu"
)

// letGo tells the goroutine of devices.run about the drain of the host.
type letGo struct {
	drained atomic.Bool        // no task holds a GPU, and none will get one
	gone    atomic.Bool        // the driver has closed all GPUs
	takeUp  chan chan struct{} // asks run to open the GPUs again; run closes the sent channel once that is done
	stuck   bool               // the last try to close the GPUs failed; only for that goroutine
}

// drain tells run whether the host is drained. It does not wait.
func (d *devices) drain(drained bool) {
	d.drained.Store(drained)
	d.ask()
}

// resume opens the GPUs again, and returns when the worker knows their present state. The host is still drained then.
func (d *devices) resume(ctx context.Context) error {
	if !d.drained.Load() {
		return nil
	}
	done := make(chan struct{})
	select {
	case d.takeUp <- done:
	case <-ctx.Done():
		return fmt.Errorf("take up the GPUs: %w", ctx.Err())
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("take up the GPUs: %w", ctx.Err())
	}
}

// follow reads the status of the GPUs. On a drained host it closes the GPUs instead, after it has read their status once.
func (d *devices) follow(ctx context.Context, w watcher, of whose) {
	holder, holds := d.driver.(gpu.Releaser)
	if !holds {
		d.look(ctx, w, of)
		return
	}
	drained := d.drained.Load()
	if drained == d.gone.Load() {
		if !drained {
			d.look(ctx, w, of)
		}
		return
	}
	act := holder.Resume
	if drained {
		act = holder.Release
		if _, read := d.latest(); read.IsZero() { // a daemon that starts on a drained host
			d.look(ctx, w, of)
		}
	}
	timed, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	switch err := act(timed); {
	case ctx.Err() != nil:
		return
	case err != nil && drained:
		if !d.stuck {
			d.log.WarnContext(ctx, "the GPUs of this drained host are open still: tried again and again", "error", err)
		}
		d.stuck = true
		return
	case err != nil:
		d.log.WarnContext(ctx, "GPUs cannot be taken up yet", "error", err)
	case drained:
		d.gone.Store(true)
		d.stuck = false
		d.log.InfoContext(ctx, "host is drained: its GPUs are let go")
		return
	default:
		d.gone.Store(false)
		d.stuck = false
		d.log.InfoContext(ctx, "GPUs are taken up again")
	}
	d.look(ctx, w, of)
}
