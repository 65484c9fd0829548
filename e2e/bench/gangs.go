package main

// Gangs, one at a time on idle daemons.

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/api"
)

const startGangs = 200

// gang measures gangs of a rank on each daemon: from the call of submit to the start of the last process, and between
// the starts of the first and the last. The first commit is after the submission is on disk, so the time from there is
// shorter than the first figure.
func (c *cluster) gang(ctx context.Context, r *report) error {
	spec := command("/bin/true")
	spec.Nodes = len(c.clients)
	var started, apart []time.Duration
	for range startGangs {
		began := time.Now()
		j, err := finish(ctx, c.clients[0], spec)
		if err != nil {
			return err
		}
		first, last, err := starts(ctx, c.clients[0], j)
		if err != nil {
			return err
		}
		started, apart = append(started, last.Sub(began)), append(apart, last.Sub(first))
	}
	times(r.value, "gang", started, 0.5, 0.99, 1)
	times(r.value, "gang-apart", apart, 0.5, 0.99, 1)
	return nil
}

// starts returns when the first and the last process of a job started.
func starts(ctx context.Context, client *api.Client, j api.Job) (first, last time.Time, err error) {
	for t, err := range client.AllTasks(ctx, j.ID, api.TaskFilter{}) {
		switch {
		case err != nil:
			return first, last, err
		case t.StartedAt == nil:
			return first, last, errors.New("a rank of a gang that succeeded has not started")
		}
		if first.IsZero() || t.StartedAt.Before(first) {
			first = *t.StartedAt
		}
		if t.StartedAt.After(last) {
			last = *t.StartedAt
		}
	}
	return first, last, nil
}
