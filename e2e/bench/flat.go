package main

// Whether the memory of a daemon grows with the tasks that it has seen.

import (
	"context"
	"errors"
	"time"
)

const (
	flatFirst = 1_000
	flatLast  = 10_000
	// settle is longer than two minutes. After that time, the Go runtime collects garbage even in a process that
	// allocates nothing, and returns the memory.
	settle = 150 * time.Second
)

// flat measures the memory of one daemon at rest after some tasks and after many.
func (c *cluster) flat(ctx context.Context, r *report) error {
	if err := c.many(ctx, flatFirst); err != nil {
		return err
	}
	before, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	if err := c.many(ctx, flatLast-flatFirst); err != nil {
		return err
	}
	after, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	r.value("flat", "after 1,000", before/1e6)
	r.value("flat", "after 10,000", after/1e6)
	r.value("flat-growth", "", 100*(after/before-1))
	return nil
}

// many runs n jobs through the first daemon.
func (c *cluster) many(ctx context.Context, n int) error {
	return parallel(n, inFlight, func(int) error {
		_, err := finish(ctx, c.clients[0], command("/bin/true"))
		return err
	})
}

// atRest is the resident memory of the daemon, in bytes, when nothing has happened for a while.
func (c *cluster) atRest(ctx context.Context) (float64, error) {
	wait(ctx, settle)
	all, err := c.usage()
	if err != nil {
		return 0, err
	}
	daemons := all.only("daemon")
	if len(daemons) == 0 {
		return 0, errors.Join(ctx.Err(), errors.New("the daemon is gone"))
	}
	return float64(daemons.rss()), nil
}
