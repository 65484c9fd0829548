package scheduler

// What neighbours ask of the loop, from any goroutine.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ErrStopped is a call to a scheduler that has ended; the daemon is going down.
var ErrStopped = errors.New("scheduler: stopped")

// SubmitRequest is a job that a user asks for.
type SubmitRequest struct {
	User string
	Key  string // idempotency key, or empty
	Spec job.Spec
}

// replies pairs tokens with those who wait. A leaf with a lock.
type replies struct {
	mu   sync.Mutex
	last Token                // guarded by mu
	out  map[Token]chan Reply // guarded by mu
}

func newReplies() replies { return replies{out: map[Token]chan Reply{}} }

func (r *replies) open() (Token, chan Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	c := make(chan Reply, 1)
	r.out[r.last] = c
	return r.last, c
}

func (r *replies) forget(t Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.out, t)
}

func (r *replies) reply(x Reply) {
	r.mu.Lock()
	c := r.out[x.Token]
	delete(r.out, x.Token)
	r.mu.Unlock()
	if c != nil {
		c <- x // has room for the one reply
	}
}

// ask sends a request and waits for its answer.
func (l *Loop) ask(ctx context.Context, event func(Token) Event) (Reply, error) {
	tok, answer := l.tell.open()
	defer l.tell.forget(tok)
	if !l.box.call(mail{event: event(tok)}) {
		return Reply{}, l.refusal()
	}
	select {
	case r := <-answer:
		return r, r.Err
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	case <-l.done:
		return Reply{}, ErrStopped
	}
}

// change asks for a change of a job; archived says that it ended long ago.
func (l *Loop) change(ctx context.Context, event func(Token) Event) (j job.Job, archived bool, err error) {
	r, err := l.ask(ctx, event)
	if err != nil || r.Archived == nil {
		return r.Job, false, err
	}
	j, err = l.whole(*r.Archived)
	return j, true, err
}

// refusal is why the mailbox took nothing.
func (l *Loop) refusal() error {
	select {
	case <-l.done:
		return ErrStopped
	default:
		return fmt.Errorf("%w: %d requests wait", ErrBusy, maxCall)
	}
}

// look runs f on the core, after all that came in before, and waits for it.
func (l *Loop) look(ctx context.Context, f func(*Core)) error {
	seen := make(chan struct{})
	if !l.box.call(mail{look: func(c *Core) { f(c); close(seen) }}) {
		return l.refusal()
	}
	select {
	case <-seen:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return ErrStopped
	}
}

// Submit accepts a job and returns once its record is committed: from then on
// it outlives this daemon. A *NoMatchError says that nothing could ever run it.
func (l *Loop) Submit(ctx context.Context, r SubmitRequest) (job.Job, error) {
	j, archived, err := l.change(ctx, func(t Token) Event { return SubmitAsk{Token: t, User: r.User, Key: r.Key, Spec: r.Spec} })
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
	j, _, err := l.change(ctx, func(t Token) Event { return CancelAsk{Token: t, Job: id, Reason: reason} })
	return j, err
}

// Hold keeps a waiting job from being placed.
func (l *Loop) Hold(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.hold(ctx, askHold, id, reason)
}

// Release lets a held job go on.
func (l *Loop) Release(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.hold(ctx, askRelease, id, reason)
}

func (l *Loop) hold(ctx context.Context, kind askKind, id job.ID, reason string) (job.Job, error) {
	j, archived, err := l.change(ctx, func(t Token) Event {
		return HoldAsk{Token: t, Job: id, Release: kind == askRelease, Reason: reason}
	})
	if archived && err == nil {
		return job.Job{}, conflict(j.ID, j.State(), kind)
	}
	return j, err
}

// Ping returns nil once the loop has come by, or why it did not before ctx ended.
func (l *Loop) Ping(ctx context.Context) error { return l.look(ctx, func(*Core) {}) }

// Job is one job as it looks now, or ErrNotFound.
func (l *Loop) Job(ctx context.Context, id job.ID) (job.Job, error) {
	x, err := query(ctx, l, func(c *Core) (Listed, error) {
		x, there := c.Find(id)
		if !there {
			return x, fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		return x, nil
	})
	if err != nil {
		return job.Job{}, err
	}
	return l.whole(x)
}

// Why explains where a job stands.
func (l *Loop) Why(ctx context.Context, id job.ID) (lease.Explanation, error) {
	x, err := query(ctx, l, func(c *Core) (lease.Explanation, error) { return c.Why(id) })
	if !errors.Is(err, ErrNotFound) {
		return x, err
	}
	j, err := l.Job(ctx, id) // archived, or really not known
	if err != nil {
		return x, err
	}
	return query(ctx, l, func(c *Core) (lease.Explanation, error) { return c.whyOf(j) })
}

// Offers is a dry run of a spec.
func (l *Loop) Offers(ctx context.Context, s job.Spec) (lease.Explanation, error) {
	return query(ctx, l, func(c *Core) (lease.Explanation, error) { return c.Offers(s) })
}

// Nodes are the hosts that this scheduler knows.
func (l *Loop) Nodes(ctx context.Context) ([]Node, error) {
	return query(ctx, l, func(c *Core) ([]Node, error) { return c.Nodes(), nil })
}

// query runs f on the core and brings its answer. The answer travels through a
// channel of its own: one that nobody waits for any more touches nothing.
func query[T any](ctx context.Context, l *Loop, f func(*Core) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	out := make(chan answer, 1)
	err := l.look(ctx, func(c *Core) {
		v, err := f(c)
		out <- answer{v, err}
	})
	if err != nil {
		var none T
		return none, err
	}
	a := <-out
	return a.value, a.err
}
