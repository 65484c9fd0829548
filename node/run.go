package node

// The order in which parts start and stop.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// part is something that runs as long as its context.
type part struct {
	name string
	run  func(context.Context) error
}

// runAll starts the parts in order and, when ctx ends or one of them returns,
// stops them in reverse: each is given grace before it is named as the one
// that does not stop. It returns the error of the part that ended first, if it
// ended by itself.
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
	base := context.WithoutCancel(ctx) // a part ends when its turn comes, not before
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
			log.WarnContext(ctx, "part does not stop", "name", r.name, "grace", grace)
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
