package daemon

// The order in which parts start and stop.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// part is a part of the daemon. run returns after its context has ended.
type part struct {
	name string
	run  func(context.Context) error
}

// runAll starts the parts in order. When ctx ends or a part returns, it stops them in reverse order, one after the
// other. It waits at most grace for each part, and logs the name of a part that has not stopped by then. If a part
// returned before ctx ended, runAll returns its error.
func runAll(ctx context.Context, grace time.Duration, log *slog.Logger, parts []part) error {
	type ended struct {
		name string
		err  error
	}
	first := make(chan ended, len(parts))
	type running struct {
		name   string
		cancel context.CancelFunc
		done   chan struct{}
	}
	var up []running
	base := context.WithoutCancel(ctx) // the end of ctx must not stop all parts at once
	for _, p := range parts {
		partCtx, cancel := context.WithCancel(base)
		r := running{p.name, cancel, make(chan struct{})}
		up = append(up, r)
		go func() {
			defer close(r.done)
			first <- ended{p.name, p.run(partCtx)}
		}()
	}
	var why error
	select {
	case <-ctx.Done():
	case e := <-first:
		why = fmt.Errorf("%s: %w", e.name, orEnded(e.err))
	}
	for _, r := range slices.Backward(up) {
		r.cancel()
		late := time.NewTimer(grace)
		select {
		case <-r.done:
		case <-late.C:
			log.WarnContext(ctx, "part did not stop in time", "name", r.name, "grace", grace)
		}
		late.Stop()
	}
	return why
}

var errEnded = errors.New("ended by itself")

func orEnded(err error) error {
	if err == nil {
		return errEnded
	}
	return err
}
