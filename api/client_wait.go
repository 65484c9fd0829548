package api

// Waiting for tasks of a job, and the exit codes of `run` and `wait`, from the document of a job or of a task.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// between is the shortest time between two requests for the tasks of a job. An array may change a thousand times a second.
const between = 200 * time.Millisecond

// WaitTasks waits until these tasks of a job have ended, and returns the ones that did not succeed.
func (c *Client) WaitTasks(ctx context.Context, id job.ID, tasks []job.Range) (failed []Task, err error) {
	err = c.atChanges(ctx, id, func() (bool, error) { return c.haveEnded(ctx, id, tasks) })
	if err != nil {
		return nil, err
	}
	return c.failures(ctx, id, tasks)
}

// atChanges calls look now and whenever the job has changed, until look returns true or an error.
func (c *Client) atChanges(ctx context.Context, id job.ID, look func() (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, over := make(chan struct{}, 1), make(chan error, 1)
	go func() { over <- c.changes(ctx, id, changed) }()
	for {
		select {
		case err := <-over:
			return err
		case <-changed:
		}
		if done, err := look(); err != nil || done {
			return err
		}
		t := time.NewTimer(between)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// changes sends to changed after each change of a job. Changes that come before the last one was received are merged.
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

// haveEnded reports whether all of these tasks have ended.
func (c *Client) haveEnded(ctx context.Context, id job.ID, tasks []job.Range) (bool, error) {
	f := TaskFilter{Tasks: tasks, Limit: 1}
	for _, s := range job.States() {
		if !s.Ended() {
			f.States = append(f.States, s)
		}
	}
	l, err := c.patientTasks(ctx, id, f)
	return err == nil && len(l.Items) == 0, err
}

// patientTasks is Tasks, but it asks again while a daemon on the way does not answer.
func (c *Client) patientTasks(ctx context.Context, id job.ID, f TaskFilter) (Listing[Task], error) {
	for n := 1; ; n++ {
		l, err := c.Tasks(ctx, id, f)
		if err == nil || n > maxBreaks || !mayReturn(err) || ctx.Err() != nil {
			return l, err
		}
		pause(ctx, n)
	}
}

// failures returns the tasks that have ended and did not succeed. It leaves out members of a gang that ended because another
// member failed, unless all of them did.
func (c *Client) failures(ctx context.Context, id job.ID, tasks []job.Range) (failed []Task, err error) {
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
	if causes := slices.DeleteFunc(slices.Clone(failed), func(t Task) bool { return t.Reason == job.ReasonGangEnded }); len(causes) > 0 {
		return causes, nil
	}
	return failed, nil
}

// Exit returns the exit code for the end of the job: the code of its process; 128+N if signal N ended it; 124 for the
// time limit; 125 if no process ran to its own end. Of several tasks it is the highest. It returns false while the
// job has not ended.
func (j Job) Exit() (code int, ended bool) {
	if !j.State.Ended() {
		return 0, false
	}
	if j.ExitStatus != nil {
		return *j.ExitStatus, true
	}
	x := job.Task{State: j.State, Exit: &job.Exit{}} // its owner has an earlier version, which does not send ExitStatus
	if j.ExitCode != nil {
		x.Exit.Code = *j.ExitCode
	}
	return x.Status(), true
}

// Exit returns the same for a task.
func (t Task) Exit() (code int, ended bool) {
	if !t.State.Ended() {
		return 0, false
	}
	x := job.Task{State: t.State, Exit: &job.Exit{Signal: t.Signal}}
	if t.ExitCode != nil {
		x.Exit.Code = *t.ExitCode
	}
	return x.Status(), true
}
