package loop

// Calls: how other goroutines send requests to the loop, run functions on its core, and get the answers.

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// calls sends calls to the loop. Any goroutine may use it.
type calls struct {
	box     *mailbox
	replies *replies
	done    chan struct{} // closed when Loop.Run ends
}

// ask sends a request and waits for its answer.
func (cs *calls) ask(ctx context.Context, event func(step.Token) step.Event) (step.Reply, error) {
	tok, answer := cs.replies.open()
	defer cs.replies.forget(tok)
	if !cs.box.call(job.AskerOf(ctx), mail{event: event(tok)}) {
		return step.Reply{}, cs.refusal()
	}
	select {
	case r := <-answer:
		return r, r.Err
	case <-ctx.Done():
		return step.Reply{}, context.Cause(ctx)
	case <-cs.done:
		return step.Reply{}, step.ErrStopped
	}
}

// look runs f on the core and waits until it is done. All events and calls of the same asker that came in before go
// first.
func (cs *calls) look(ctx context.Context, f func(*scheduler.Core)) error {
	seen := make(chan struct{})
	if !cs.box.call(job.AskerOf(ctx), mail{look: func(c *scheduler.Core) { f(c); close(seen) }}) {
		return cs.refusal()
	}
	select {
	case <-seen:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-cs.done:
		return step.ErrStopped
	}
}

// refusal returns why the mailbox took no call.
func (cs *calls) refusal() error {
	select {
	case <-cs.done:
		return step.ErrStopped
	default:
		return fmt.Errorf("%w: too many requests wait", step.ErrBusy)
	}
}

// query runs f on the core and returns its answer. The answer goes through a channel, so that f writes to no variable
// of a caller that has stopped waiting.
func query[T any](ctx context.Context, cs *calls, f func(*scheduler.Core) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	out := make(chan answer, 1)
	err := cs.look(ctx, func(c *scheduler.Core) {
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

// end refuses all further calls and those that wait.
func (cs *calls) end() {
	cs.box.close()
	close(cs.done)
}
