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
func (l *Loop) ask(ctx context.Context, event func(Token) Event) (job.Job, error) {
	tok, answer := l.tell.open()
	defer l.tell.forget(tok)
	if !l.box.call(mail{event: event(tok)}) {
		return job.Job{}, l.refusal()
	}
	select {
	case r := <-answer:
		return r.Job, r.Err
	case <-ctx.Done():
		return job.Job{}, context.Cause(ctx)
	case <-l.done:
		return job.Job{}, ErrStopped
	}
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
	return l.ask(ctx, func(t Token) Event { return SubmitAsk{Token: t, User: r.User, Key: r.Key, Spec: r.Spec} })
}

// Cancel ends a job; the answer shows it as it is once that is committed.
func (l *Loop) Cancel(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.ask(ctx, func(t Token) Event { return CancelAsk{Token: t, Job: id, Reason: reason} })
}

// Hold keeps a waiting job from being placed.
func (l *Loop) Hold(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.ask(ctx, func(t Token) Event { return HoldAsk{Token: t, Job: id, Reason: reason} })
}

// Release lets a held job go on.
func (l *Loop) Release(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	return l.ask(ctx, func(t Token) Event { return HoldAsk{Token: t, Job: id, Release: true, Reason: reason} })
}

// Ping returns nil once the loop has come by, or why it did not before ctx ended.
func (l *Loop) Ping(ctx context.Context) error { return l.look(ctx, func(*Core) {}) }

// Job is one job as it looks now, or ErrNotFound.
func (l *Loop) Job(ctx context.Context, id job.ID) (job.Job, error) {
	type answer struct {
		job   job.Job
		known bool
	}
	a, err := query(ctx, l, func(c *Core) (answer, error) {
		j, ok := c.Job(id)
		return answer{j, ok}, nil
	})
	if err == nil && !a.known {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return a.job, err
}

// Jobs are the jobs that the filter chooses, newest first.
func (l *Loop) Jobs(ctx context.Context, f Filter) ([]job.Job, error) {
	return query(ctx, l, func(c *Core) ([]job.Job, error) { return c.Jobs(f), nil })
}

// Why explains where a job stands.
func (l *Loop) Why(ctx context.Context, id job.ID) (lease.Explanation, error) {
	return query(ctx, l, func(c *Core) (lease.Explanation, error) { return c.Why(id) })
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
