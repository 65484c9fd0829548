package supervisor

// Ending all tasks of a daemon that stops for good.
// See docs/adr, ADR 166.

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// endAllWithin is how long a runner that was told to end may take: it gives its tasks 5 s after TERM. Then it is killed, and
// its tasks with it.
const endAllWithin = 10 * time.Second

// EndAll ends all runners of a directory, and their tasks with them. No driver may run there. It returns when no task has
// a process, or an error that names what may be left. endContainers is Config.EndContainers.
//
// A runner that is dead already is left alone: what its lock file says may be of another host, from which the directory was
// copied.
func EndAll(ctx context.Context, dir string, endContainers func(ctx context.Context, dir string, generation int) error, log *slog.Logger) error {
	d := protocol.Dir(dir)
	generations, err := d.Generations()
	if errors.Is(err, os.ErrNotExist) {
		return nil // no runner was ever started
	}
	if err != nil {
		return err
	}
	errs := make([]error, len(generations))
	var wg sync.WaitGroup
	for i, n := range generations {
		wg.Go(func() {
			killed, err := endRunner(ctx, d, n, log)
			if err == nil && killed {
				err = endLeft(ctx, d, n, endContainers)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endRunner tells runner n to end, and waits until it has. It returns whether the runner had to be killed.
func endRunner(ctx context.Context, d protocol.Dir, n int, log *slog.Logger) (killed bool, err error) {
	term, err := signalRunner(d, n, unix.SIGTERM)
	if err != nil || !term {
		return false, err
	}
	dead := make(chan error, 1)
	go func() { dead <- d.AwaitDeath(n) }()
	late := time.NewTimer(endAllWithin)
	defer late.Stop()
	for {
		select {
		case err := <-dead:
			return killed, err
		case <-late.C:
			log.WarnContext(ctx, "runner does not end, killing it", "generation", n)
			if killed, err = signalRunner(d, n, unix.SIGKILL); err != nil {
				return killed, err
			}
		case <-ctx.Done():
			return killed, ctx.Err()
		}
	}
}

// endLeft ends what a killed runner left.
func endLeft(ctx context.Context, d protocol.Dir, n int, endContainers func(context.Context, string, int) error) error {
	lock, err := d.TryLock(n)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	info, err := d.ReadInfo(n)
	if err != nil {
		return err
	}
	if err := endOrphans(ctx, d, info); err != nil || endContainers == nil {
		return err
	}
	return endContainers(ctx, string(d), n)
}
