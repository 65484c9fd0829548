package files

// Staging a task's files: fetching them, unpacking them, and passing the task on.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

const (
	// retryFirst and retryMost bound the pause before holders that did not answer are asked again.
	retryFirst = 500 * time.Millisecond
	retryMost  = 10 * time.Second
	// neverRan is the exit code of a task that was not executed; hostFailed is its exit code if this host is the
	// cause.
	neverRan   = job.ExitNotExecutable
	hostFailed = job.ExitMuster
	// maxReason bounds the reason in an exit, in bytes, because it is sent between hosts.
	maxReason = 1024
)

// stopped is an error that carries the exit of an attempt.
type stopped struct{ exit job.Exit }

func (s stopped) Error() string { return s.exit.Reason }

// begin stages the files in the background.
func (d *Driver) begin(t driver.Task) {
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
		stopTimer, stopReports := d.expire(own), d.reportProgress(own)
		err := d.stage(ctx, own)
		stopTimer()
		stopReports()
		if err == nil {
			err = d.passOn(own)
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
		} // otherwise this daemon stops, and the next one continues
	})
}

// fail ends an attempt that was never started.
func (d *Driver) fail(a job.Attempt, err error) {
	exit := job.Exit{State: job.Failed, Code: neverRan, Reason: err.Error()}
	if s := (stopped{}); errors.As(err, &s) {
		exit = s.exit
	}
	exit.Reason = exit.Reason[:min(len(exit.Reason), maxReason)]
	exit.Began = time.Now()
	exit.Ended = exit.Began
	d.forget(a)
	d.needs.Tell(driver.Event{Attempt: a, Kind: driver.Failed, Exit: exit})
}

// expire ends the staging when the lease runs out. When the deadline is reached it is read again, because it may have
// moved. The wrapped driver ensures that no process starts after the deadline.
func (d *Driver) expire(t *task) (stop func()) {
	if t.Hold {
		return func() {}
	}
	left := func() time.Duration {
		d.mu.Lock()
		defer d.mu.Unlock()
		return t.Deadline.Sub(leaseclock.Now())
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

// stage fetches and unpacks the files. It tries again until it succeeds or cannot succeed.
func (d *Driver) stage(ctx context.Context, t *task) error {
	h, err := upload.ParseHash(t.Spec.Tree)
	if err != nil {
		return err
	}
	owner, err := d.cfg.owner(t.Task)
	if err != nil {
		return err
	}
	began, refetched := time.Now(), false
	fetching := func() string { return d.fetching(h) }
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		d.waitsFor(t, fetching)
		tree, came, err := d.needs.Fetcher.Fetch(ctx, h, d.needs.Holders(ctx, t.Attempt.Job))
		if err == nil {
			if err = d.unpacker.unpack(ctx, tree, d.cfg.staged(t.Attempt), owner, func(text func() string) { d.waitsFor(t, text) }); err == nil {
				d.log.InfoContext(ctx, "files of attempt are here", "attempt", t.Attempt.String(), "user", t.User, "files", len(tree.Entries), "bytes", tree.Size(), "fetched", came, "took", time.Since(began))
				return nil
			}
			if errors.Is(err, upload.ErrTooLarge) {
				return fmt.Errorf("its files: %w", err)
			}
			if !errors.Is(err, upload.ErrMissing) || refetched {
				return stopped{job.Exit{State: job.NodeFail, Code: hostFailed, Reason: "its files: " + err.Error()}}
			}
			refetched = true // a chunk was pruned between fetching and unpacking
			continue
		}
		if err, never := unfetchable(err); never {
			return err
		}
		d.log.WarnContext(ctx, "files of attempt not fetched yet", "attempt", t.Attempt.String(), "user", t.User, "error", err)
		d.waitsFor(t, fixedText("no node that has its files answers, asking again: %s", strings.TrimPrefix(err.Error(), "api: ")))
		wait(ctx, pause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// unfetchable reports whether a fetch that failed with this error can never succeed here, and how the attempt then ends.
func unfetchable(err error) (end error, never bool) {
	switch {
	case errors.Is(err, upload.ErrFull): // the store of another host may have room for this user
		return stopped{job.Exit{State: job.NodeFail, Code: neverRan, Reason: "its files cannot be had: " + err.Error()}}, true
	case errors.Is(err, upload.ErrMissing), errors.Is(err, upload.ErrInvalid):
		return fmt.Errorf("its files cannot be had: %w", err), true
	}
	return nil, false
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// passOn starts the task with the wrapped driver.
func (d *Driver) passOn(t *task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.ending != nil {
		return t.ending
	}
	t.staging = false
	t.Files = d.cfg.staged(t.Attempt)
	return d.needs.Driver.Start(t.Task)
}
