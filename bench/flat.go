package main

// Does a daemon's memory grow with the tasks that it has seen?

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	flatFirst = 1_000
	flatLast  = 10_000
	// settle is longer than the two minutes after which the runtime collects
	// garbage in a process that allocates nothing, and gives the memory back.
	settle = 150 * time.Second
)

// flat: the memory of one daemon after 1,000 and after 10,000 tasks, each time
// at rest.
func (c *cluster) flat(ctx context.Context) error {
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
	fmt.Printf("## memory of one daemon at rest after %d and after %d tasks of /bin/true\n", flatFirst, flatLast)
	fmt.Printf("   RSS %.1f MB, then %.1f MB: %+.1f %%\n\n", float64(before)/1e6, float64(after)/1e6, 100*(float64(after)/float64(before)-1))
	return nil
}

// many runs n jobs through the first daemon.
func (c *cluster) many(ctx context.Context, n int) error {
	client := c.clients[0]
	return parallel(n, inFlight, func(int) error {
		j, err := client.Submit(ctx, command("/bin/true"), "")
		if err != nil {
			return err
		}
		done, err := client.Wait(ctx, []job.ID{j.ID}, nil)
		if err == nil && done[0].State != job.Succeeded {
			err = fmt.Errorf("job %s: %s %s", j.ID, done[0].State, done[0].Reason)
		}
		return err
	})
}

// atRest is the resident memory of the daemon when nothing has happened for a
// while.
func (c *cluster) atRest(ctx context.Context) (int, error) {
	wait(ctx, settle)
	all, err := c.usage()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if p.what == "daemon" {
			return p.rss, nil
		}
	}
	return 0, errors.Join(ctx.Err(), errors.New("the daemon is gone"))
}
