package scheduler

// What neighbours ask of the loop, from any goroutine.

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// MayBeDead counts the attempts that DeclareDead would give up. It is
// ErrConflict if the host answers this scheduler.
func (l *Loop) MayBeDead(ctx context.Context, p job.Peer) (attempts int, err error) {
	return query(ctx, l.calls, func(c *Core) (int, error) { return c.deaths.mayBeDead(p) })
}

// DeclareDead gives up every attempt of this scheduler that is assigned to the
// host, on the word of the user by that nothing runs there any more. It returns
// how many they are once that is committed. A host that answers is ErrConflict;
// one that is not known here has no attempts. ErrBusy says that the journal
// took too long: they may be given up yet, and it may be declared again.
func (l *Loop) DeclareDead(ctx context.Context, p job.Peer, by string) (given int, err error) {
	r, err := l.calls.ask(ctx, func(t Token) Event { return DeclareDead{Token: t, Peer: p, By: by} })
	return r.Given, err
}

// Deposed tells of the end of ownership, in order with Deliver.
func (l *Loop) Deposed(epoch job.Epoch) { l.calls.box.putAlways(mail{event: Deposed{epoch}}) }

// NotProposed gives back records that the journal took and did not commit, in order with Deliver.
func (l *Loop) NotProposed(records []job.Record, err error) {
	l.calls.box.putAlways(mail{event: NotProposed{Records: records, Err: err}})
}

// SubmitRequest is a job that a user asks for.
type SubmitRequest struct {
	User string
	Key  string // idempotency key, or empty
	Spec job.Spec
}

// change asks for a change of a job; archived says that it ended long ago.
func (l *Loop) change(ctx context.Context, event func(Token) Event) (j job.Job, archived bool, err error) {
	r, err := l.calls.ask(ctx, event)
	if err != nil || r.Archived == nil {
		return r.Job, false, err
	}
	j, err = l.reader.whole(*r.Archived)
	return j, true, err
}

// Submit accepts a job and returns once its record is committed: from then on
// it outlives this daemon. A *NoMatchError says that nothing could ever run it.
func (l *Loop) Submit(ctx context.Context, r SubmitRequest) (job.Job, error) {
	j, archived, err := l.change(ctx, func(t Token) Event { return Submit{Token: t, User: r.User, Key: r.Key, Spec: r.Spec} })
	switch {
	case archived && errors.Is(err, ErrNotFound):
		return job.Job{}, fmt.Errorf("%w: the job of idempotency key %q is just being forgotten", ErrBusy, r.Key)
	case archived && err == nil:
		return sameJob(j, r)
	}
	return j, err
}

// sameJob is the job of an earlier request under the same key, if that was for
// the same job file.
func sameJob(j job.Job, r SubmitRequest) (job.Job, error) {
	first, err := checkSpec(j.Spec)
	again, err1 := checkSpec(r.Spec)
	if err != nil || err1 != nil || first != again || j.User != r.User || j.Key != r.Key {
		return job.Job{}, keyConflict(r.Key, j.ID)
	}
	return j, nil
}

// Cancel ends a job; the answer shows it as it is once that is committed.
func (l *Loop) Cancel(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	j, _, err := l.change(ctx, func(t Token) Event { return Cancel{Token: t, Job: id, Reason: reason} })
	return j, err
}

// Hold keeps a waiting job from being placed.
func (l *Loop) Hold(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.hold(ctx, toHold, id, reason)
}

// Release lets a held job go on.
func (l *Loop) Release(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.hold(ctx, toRelease, id, reason)
}

func (l *Loop) hold(ctx context.Context, kind changeKind, id job.ID, reason string) (job.Job, error) {
	j, archived, err := l.change(ctx, func(t Token) Event {
		return Hold{Token: t, Job: id, Release: kind == toRelease, Reason: reason}
	})
	if archived && err == nil {
		return job.Job{}, conflict(j.ID, j.State(), kind)
	}
	return j, err
}

// Ping returns nil once the loop has come by, or why it did not before ctx ended.
func (l *Loop) Ping(ctx context.Context) error { return l.calls.look(ctx, func(*Core) {}) }

// Job is one job as it looks now, or ErrNotFound.
func (l *Loop) Job(ctx context.Context, id job.ID) (job.Job, error) {
	x, err := query(ctx, l.calls, func(c *Core) (Listed, error) {
		x, there := c.Find(id)
		if !there {
			return x, fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		return x, nil
	})
	if err != nil {
		return job.Job{}, err
	}
	return l.reader.whole(x)
}

// Why explains where a job stands.
func (l *Loop) Why(ctx context.Context, id job.ID) (lease.Explanation, error) {
	x, err := query(ctx, l.calls, func(c *Core) (lease.Explanation, error) { return c.Why(id) })
	if !errors.Is(err, ErrNotFound) {
		return x, err
	}
	j, err := l.Job(ctx, id) // archived, or really not known
	if err != nil {
		return x, err
	}
	return query(ctx, l.calls, func(c *Core) (lease.Explanation, error) { return c.views.whyOf(j) })
}

// Offers is a dry run of a spec.
func (l *Loop) Offers(ctx context.Context, s job.Spec) (lease.Explanation, error) {
	return query(ctx, l.calls, func(c *Core) (lease.Explanation, error) { return c.Offers(s) })
}

// Nodes are the hosts that this scheduler knows.
func (l *Loop) Nodes(ctx context.Context) ([]Node, error) {
	return query(ctx, l.calls, func(c *Core) ([]Node, error) { return c.Nodes(), nil })
}
