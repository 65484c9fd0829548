package api

// Waiting for tasks of a job.

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
)

// between is the shortest time between two looks at the tasks of a job. An array may change a thousand times a second.
const between = 200 * time.Millisecond

// WaitTasks returns when these tasks of a job have ended, with those of them that did not succeed. It looks at the tasks
// whenever the job has changed.
func (c *Client) WaitTasks(ctx context.Context, id job.ID, tasks []job.Range) (failed []Task, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, over := make(chan struct{}, 1), make(chan error, 1)
	go func() { over <- c.changes(ctx, id, changed) }()
	for {
		select {
		case err := <-over:
			return nil, err
		case <-changed:
		}
		if ended, err := c.haveEnded(ctx, id, tasks); err != nil || ended {
			return c.failures(ctx, id, tasks, err)
		}
		t := time.NewTimer(between)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// changes tells of each change of a job. Several changes that nobody has taken are one.
func (c *Client) changes(ctx context.Context, id job.ID, changed chan<- struct{}) error {
	for e, err := range c.Events(ctx, EventFilter{Jobs: []job.ID{id}}) {
		switch {
		case err != nil:
			return err
		case e.Kind == EventGone:
			return fmt.Errorf("job %s: %w: %s", e.ID, ErrNotFound, e.Detail)
		case e.Kind != EventJob && e.Kind != EventOpen:
			continue
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return ctx.Err()
}

// haveEnded reports whether all of these tasks have ended. While a daemon on the way does not answer, it asks again.
func (c *Client) haveEnded(ctx context.Context, id job.ID, tasks []job.Range) (bool, error) {
	f := TaskFilter{Tasks: tasks, Limit: 1}
	for _, s := range job.States() {
		if !s.Ended() {
			f.States = append(f.States, s)
		}
	}
	for n := 1; ; n++ {
		l, err := c.Tasks(ctx, id, f)
		if err == nil || n > maxBreaks || !mayReturn(err) || ctx.Err() != nil {
			return err == nil && len(l.Items) == 0, err
		}
		pause(ctx, n)
	}
}

// failures returns those of the tasks that have ended and did not succeed.
func (c *Client) failures(ctx context.Context, id job.ID, tasks []job.Range, err error) (failed []Task, _ error) {
	if err != nil {
		return nil, err
	}
	f := TaskFilter{Tasks: tasks, Limit: maxLimit}
	for _, s := range job.States() {
		if s.Ended() && s != job.Succeeded {
			f.States = append(f.States, s)
		}
	}
	for t, err := range c.AllTasks(ctx, id, f) {
		if err != nil {
			return nil, err
		}
		failed = append(failed, t)
	}
	return failed, nil
}
