package loop

// The methods of the loop for the rest of the daemon. Any goroutine may call them.

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// MayBeDead returns how many attempts DeclareDead would give up. It is ErrConflict if the host answers this scheduler.
func (l *Loop) MayBeDead(ctx context.Context, p job.Peer, store string) (attempts int, err error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (int, error) {
		return c.View().MayBeDead(p, store)
	})
}

// DeclareDead gives up every attempt of this scheduler that is assigned to the host, because the user by guarantees
// that nothing runs there any more. It returns how many there were, once that is committed. ErrConflict says that the
// host answers. A host that this scheduler does not know has no attempts. ErrBusy says that the journal took too long:
// the attempts may still be given up, and DeclareDead may be called again. A store is the data directory with which the host
// answers now: then only the attempts of earlier ones are given up.
func (l *Loop) DeclareDead(ctx context.Context, p job.Peer, store, by string) (given int, err error) {
	r, err := l.calls.ask(ctx, func(t step.Token) step.Event { return step.DeclareDead{Token: t, Peer: p, Store: store, By: by} })
	return r.GivenUp, err
}

// Deposed tells the scheduler that its ownership has ended, in order with Deliver.
func (l *Loop) Deposed(epoch job.Epoch) {
	l.calls.box.putAlways(mail{event: step.Deposed{Epoch: epoch}})
}

// NotProposed gives back records that the journal accepted and did not commit, in order with Deliver.
func (l *Loop) NotProposed(records []job.Record, err error) {
	l.calls.box.putAlways(mail{event: step.NotProposed{Records: records, Err: err}})
}

// change requests a change of a job. known is its job file, if the caller has it. archived says that the job is
// archived, so nothing was changed.
func (l *Loop) change(ctx context.Context, known *job.Spec, event func(step.Token) step.Event) (j job.Job, archived bool, err error) {
	r, err := l.calls.ask(ctx, event)
	if err != nil {
		return r.Job, false, err
	}
	if r.Archived == nil {
		if r.Job.Lean && known != nil {
			r.Job.Spec, r.Job.Lean = *known, false
		}
		j, err = l.reader.withBulk(r.Job, r.File)
		return j, false, err
	}
	j, err = l.reader.full(ctx, *r.Archived)
	return j, true, err
}

// Submit accepts a job and returns once its record is committed. From then on the job outlives this daemon. A
// *NoMatchError says that no host could ever run it, ErrFull that too much work of the user waits.
func (l *Loop) Submit(ctx context.Context, r job.Submission) (job.Job, error) {
	j, archived, err := l.change(ctx, &r.Spec, func(t step.Token) step.Event {
		return step.Submit{Token: t, Submission: r}
	})
	switch {
	case archived && errors.Is(err, step.ErrNotFound):
		return job.Job{}, fmt.Errorf("%w: the job of idempotency key %q is just being forgotten", step.ErrBusy, r.Key)
	case archived && err == nil:
		return sameJob(j, r)
	}
	return j, err
}

// HasKey reports whether a job of the user was submitted to this scheduler with an idempotency key.
func HasKey(ctx context.Context, l *Loop, user, key string) (bool, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (bool, error) {
		return c.View().Keyed(user, key) != "", nil
	})
}

// sameJob returns the job of an earlier request with the same idempotency key. It is ErrConflict if the job file
// differs.
func sameJob(j job.Job, r job.Submission) (job.Job, error) {
	first, err := step.CheckSpec(j.Spec)
	again, err1 := step.CheckSpec(r.Spec)
	if err != nil || err1 != nil || first != again || j.User != r.User || j.Key != r.Key {
		return job.Job{}, scheduler.KeyConflict(r.Key, j.ID)
	}
	return j, nil
}

// Cancel ends tasks of a job; no ranges means all. It returns the job once the Cancel is committed.
func (l *Loop) Cancel(ctx context.Context, id job.ID, tasks []job.Range, reason string) (job.Job, error) {
	j, _, err := l.change(ctx, nil, func(t step.Token) step.Event { return step.Cancel{Token: t, Job: id, Tasks: tasks, Reason: reason} })
	return j, err
}

// Hold keeps waiting tasks of a job from being placed, or releases those that are held; no ranges means all.
func (l *Loop) Hold(ctx context.Context, id job.ID, tasks []job.Range, release bool, reason string) (job.Job, error) {
	j, archived, err := l.change(ctx, nil, func(t step.Token) step.Event {
		return step.Hold{Token: t, Job: id, Tasks: tasks, Release: release, Reason: reason}
	})
	if archived && err == nil {
		return job.Job{}, scheduler.Conflict("job "+string(j.ID)+" is", j.State(), release)
	}
	return j, err
}

// Requeue makes tasks of a job run again, whether they have ended or still run. Those that run are ended first. No
// ranges means all tasks; failed means only those that have ended, and not with SUCCEEDED. It returns the job once the
// Requeue is committed. ErrConflict says that there is nothing to run again, or that it is not possible any more.
func (l *Loop) Requeue(ctx context.Context, id job.ID, tasks []job.Range, failed bool, reason string) (job.Job, error) {
	x, err := query(ctx, l.calls, func(c *scheduler.Core) (step.Listed, error) { return c.View().Listed(id) })
	if err != nil {
		return job.Job{}, err
	}
	if x.Job == nil { // its rows are needed once the record is committed; it is too late for an error then
		switch _, err := l.reader.decode(id); {
		case errors.Is(err, step.ErrNotFound):
			return job.Job{}, scheduler.Unreadable(id, "are missing")
		case err != nil:
			return job.Job{}, scheduler.Unreadable(id, "cannot be read: "+err.Error())
		}
	}
	j, _, err := l.change(ctx, nil, func(t step.Token) step.Event {
		return step.Requeue{Token: t, Job: id, Tasks: tasks, Failed: failed, Reason: reason}
	})
	return j, err
}

// ForgetJob deletes a job that has ended, and returns once that is committed. ErrConflict says that the job has not ended.
func ForgetJob(ctx context.Context, l *Loop, id job.ID) error {
	_, err := l.calls.ask(ctx, func(t step.Token) step.Event { return step.Forget{Token: t, Job: id} })
	return err
}

// ResetBackoff ends the back-offs of waiting jobs, of one user or of all, and searches for hosts again. It returns the
// result after two seconds.
func ResetBackoff(ctx context.Context, l *Loop, user string) (step.ResetResult, error) {
	r, err := l.calls.ask(ctx, func(t step.Token) step.Event { return step.Schedule{Token: t, User: user} })
	if r.Reset == nil {
		return step.ResetResult{}, err
	}
	return *r.Reset, err
}

// Ping returns nil once the loop has answered, or an error if ctx ends before that.
func (l *Loop) Ping(ctx context.Context) error { return l.calls.look(ctx, func(*scheduler.Core) {}) }

// Job returns one job as it looks now, or ErrNotFound.
func (l *Loop) Job(ctx context.Context, id job.ID) (job.Job, error) {
	x, err := query(ctx, l.calls, func(c *scheduler.Core) (step.Listed, error) { return c.View().Listed(id) })
	if err != nil {
		return job.Job{}, err
	}
	j, err := l.reader.full(ctx, x)
	if err != nil {
		return j, err
	}
	return j, l.reader.addUsage(id, j.Tasks)
}

// Tasks returns the tasks of a job that the query selects, or ErrNotFound.
func (l *Loop) Tasks(ctx context.Context, id job.ID, q job.TaskQuery) ([]job.Task, error) {
	for try := 1; ; try++ {
		tasks, err := query(ctx, l.calls, func(c *scheduler.Core) ([]job.Task, error) { return c.View().Tasks(id, q) })
		if err == nil {
			return tasks, l.reader.addTexts(id, tasks)
		}
		if errors.Is(err, step.ErrNotFound) { // it may be archived
			tasks, err = l.reader.tasks(id, q)
		}
		if !errors.Is(err, errReopened) || try == readTries {
			return tasks, err
		}
	}
}

// Why explains the state of a job.
func (l *Loop) Why(ctx context.Context, id job.ID) (contract.Explanation, error) {
	x, err := query(ctx, l.calls, func(c *scheduler.Core) (contract.Explanation, error) { return c.View().Why(id) })
	if !errors.Is(err, step.ErrNotFound) {
		return x, err
	}
	j, err := l.Job(ctx, id) // it may be archived
	if err != nil {
		return x, err
	}
	return query(ctx, l.calls, func(c *scheduler.Core) (contract.Explanation, error) { return c.View().Explain(j) })
}

// Offers says which hosts would take a job of this user with this spec, without submitting it.
func (l *Loop) Offers(ctx context.Context, user string, operator bool, s job.Spec) (contract.Explanation, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (contract.Explanation, error) { return c.View().Offers(user, operator, s) })
}

// Nodes returns the hosts that this scheduler knows.
func (l *Loop) Nodes(ctx context.Context) ([]scheduler.Node, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) ([]scheduler.Node, error) { return c.View().Nodes(), nil })
}
