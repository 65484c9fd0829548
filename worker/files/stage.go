package files

// Bringing a task's files: fetch, copy, hand the task on.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

const (
	// againFirst and againMost bound the pause before holders that did not
	// answer are asked again.
	againFirst = 500 * time.Millisecond
	againMost  = 10 * time.Second
	// neverRan is the exit code of what was not executed, and ours that of what
	// was not because of this host.
	neverRan = job.ExitNotExecutable
	ours     = job.ExitMuster
	// maxReason bounds the sentence in an exit: it travels between hosts.
	maxReason = 1024
	// entryBytes is what a file takes beside its bytes, and a directory: a block.
	entryBytes = 4 << 10
)

// stopped is the cause of a context that ends with an attempt.
type stopped struct{ exit job.Exit }

func (s stopped) Error() string { return s.exit.Reason }

// begin brings the files in the background.
func (d *Driver) begin(t worker.Task) {
	own := &task{Task: t, staging: true, end: make(chan struct{}), over: make(chan struct{})}
	d.mu.Lock()
	d.tasks[t.Attempt] = own
	d.mu.Unlock()
	d.wg.Go(func() {
		defer close(own.over)
		ctx, cancel := context.WithCancel(d.running())
		defer cancel()
		d.wg.Go(func() {
			select {
			case <-own.end:
				cancel()
			case <-ctx.Done():
			}
		})
		stop, quiet := d.fence(own), d.say(own)
		err := d.bring(ctx, own)
		stop()
		quiet()
		if err == nil {
			err = d.handOn(own)
		}
		if err == nil {
			return
		}
		d.mu.Lock()
		ending := own.ending
		d.mu.Unlock()
		switch {
		case ending != nil:
			d.fail(t.Attempt, ending)
		case ctx.Err() == nil:
			d.fail(t.Attempt, err)
		} // else the daemon stops, and the next one goes on
	})
}

// fail ends an attempt that never began.
func (d *Driver) fail(a job.Attempt, err error) {
	exit := job.Exit{State: job.Failed, Code: neverRan, Reason: err.Error()}
	if s := (stopped{}); errors.As(err, &s) {
		exit = s.exit
	}
	exit.Reason = exit.Reason[:min(len(exit.Reason), maxReason)]
	exit.Began = time.Now()
	exit.Ended = exit.Began
	d.forget(a)
	d.needs.Tell(worker.DriverEvent{Attempt: a, Kind: worker.DriverFailed, Exit: exit})
}

// fence ends the wait when the lease does. The deadline is looked at anew when
// it is reached, as it may have been moved; that a process never begins after
// it is the wrapped driver's to see to.
func (d *Driver) fence(t *task) (stop func()) {
	if t.Hold {
		return func() {}
	}
	left := func() time.Duration {
		d.mu.Lock()
		defer d.mu.Unlock()
		return t.Deadline.Sub(worker.Now())
	}
	done := make(chan struct{})
	timer := time.NewTimer(0)
	d.wg.Go(func() {
		defer timer.Stop()
		for more := left(); more > 0; more = left() {
			timer.Reset(more)
			select {
			case <-done:
				return
			case <-timer.C:
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		t.finish(stopped{job.Exit{State: job.NodeFail, Code: neverRan, Reason: "the lease ran out while its files were awaited"}})
	})
	return func() { close(done) }
}

// bring fetches and unpacks until it is done or cannot be.
func (d *Driver) bring(ctx context.Context, t *task) error {
	h, err := blob.ParseHash(t.Spec.Tree)
	if err != nil {
		return err
	}
	owner, err := d.cfg.owner(t.Task)
	if err != nil {
		return err
	}
	began, asked := time.Now(), false
	fetching := func() string { return d.fetching(h) }
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		d.does(t, fetching)
		tree, came, err := d.needs.Fetcher.Fetch(ctx, h, d.needs.Holders(ctx, t.Attempt.Job))
		if err == nil {
			if err = d.unpack(ctx, t, tree, owner); err == nil {
				d.log.InfoContext(ctx, "files of attempt are here", "attempt", t.Attempt.String(), "files", len(tree.Entries), "bytes", tree.Size(), "fetched", came, "took", time.Since(began))
				return nil
			}
			if errors.Is(err, blob.ErrTooLarge) {
				return fmt.Errorf("its files: %w", err)
			}
			if !errors.Is(err, blob.ErrMissing) || asked {
				return stopped{job.Exit{State: job.Failed, Code: ours, Reason: "its files: " + err.Error()}}
			}
			asked = true // a chunk went between the two: fetch it again
			continue
		}
		if errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrInvalid) || errors.Is(err, blob.ErrFull) {
			return fmt.Errorf("its files cannot be had: %w", err)
		}
		d.log.WarnContext(ctx, "files of attempt not fetched yet", "attempt", t.Attempt.String(), "error", err)
		d.does(t, says("no node that has its files answers, asking again: %s", strings.TrimPrefix(err.Error(), "api: ")))
		wait(ctx, pause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// unpack makes the copy that becomes the task's directory.
func (d *Driver) unpack(ctx context.Context, t *task, tree blob.Tree, owner *blob.Owner) error {
	d.does(t, says("its files wait until those of other tasks are unpacked"))
	select {
	case d.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.room }()
	if err := d.fits(tree); err != nil {
		return err
	}
	d.does(t, says("unpacking its files: %s", megabytes(tree.Size())))
	dir := d.cfg.brought(t.Attempt)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return d.needs.Store.Unpack(ctx, tree, dir, owner)
}

// fits says whether there may be and is room for the files of a tree. What they
// take is known before the first is written: the disk is not this task's alone.
func (d *Driver) fits(tree blob.Tree) error {
	size := job.Size(tree.Size()) + job.Size(len(tree.Entries))*entryBytes
	if d.cfg.Most > 0 && size > d.cfg.Most {
		return fmt.Errorf("%w: they take %s of a scratch quota of %s", blob.ErrTooLarge, size, d.cfg.Most)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(d.cfg.staging(), &disk); err != nil {
		return fmt.Errorf("files: room on the disk: %w", err)
	}
	if room := job.Size(disk.Bavail) * job.Size(disk.Bsize) / 10 * 9; size > room { //nolint:gosec // no disk has 2^63 bytes
		return fmt.Errorf("they take %s, and this node has room for %s: %w", size, room, unix.ENOSPC)
	}
	return nil
}

// handOn gives the task to the driver that runs it.
func (d *Driver) handOn(t *task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.ending != nil {
		return t.ending
	}
	t.staging = false
	t.Files = d.cfg.brought(t.Attempt)
	return d.needs.Driver.Start(t.Task)
}
