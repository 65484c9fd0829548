package nvml

// The agent as the daemon sees it: one running child, its questions and answers.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/gpu"
)

var (
	errSlow  = errors.New("the agent does not answer")
	errEnded = errors.New("the agent ended")
	errWrong = errors.New("the agent said what is no message")
)

// agent is one child. Whoever has the driver's turn may ask it.
type agent struct {
	child   *child
	began   time.Time
	ready   chan struct{} // closed when hello is there
	hello   hello         // after ready
	replies chan reply    // the newest that nobody has taken
	gone    chan struct{} // closed when no more will be read
	why     error         // after gone
	asked   time.Time     // when the oldest unanswered request was sent; zero: none
	id      uint64        // of the last request
}

func startAgent(c *child, onFault func(gpu.Fault)) *agent {
	a := &agent{child: c, began: time.Now(), ready: make(chan struct{}), replies: make(chan reply, 1), gone: make(chan struct{})}
	go a.read(onFault)
	return a
}

// read takes what the child says until it ends.
func (a *agent) read(onFault func(gpu.Fault)) {
	defer close(a.gone)
	defer a.child.kill()
	defer a.child.out.Close()
	lines := bufio.NewScanner(a.child.out)
	lines.Buffer(make([]byte, 0, maxRequest), maxMessage)
	greeted := false
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			a.why = fmt.Errorf("%w: %w", errWrong, err)
			return
		}
		switch {
		case m.Hello != nil && !greeted:
			greeted = true
			a.hello = *m.Hello
			close(a.ready)
		case m.Reply != nil && greeted:
			a.replace(*m.Reply)
		case m.Fault != nil && greeted:
			onFault(*m.Fault)
		default:
			a.why = fmt.Errorf("%w: %.60q", errWrong, lines.Text())
			return
		}
	}
	a.why = errEnded
	if err := lines.Err(); err != nil {
		a.why = fmt.Errorf("%w: %w", errEnded, err)
	}
}

// replace keeps the newest reply; older ones were given up.
func (a *agent) replace(r reply) {
	select {
	case <-a.replies:
	default:
	}
	a.replies <- r // only this goroutine sends
}

// greet waits for the child's hello.
func (a *agent) greet(ctx context.Context, closed <-chan struct{}, within time.Duration) error {
	select {
	case <-a.ready:
		return nil
	default:
	}
	timer := time.NewTimer(within - time.Since(a.began))
	defer timer.Stop()
	select {
	case <-a.ready:
		return nil
	case <-a.gone:
		select {
		case <-a.ready:
			return nil // it said hello before it ended
		default:
			return a.why
		}
	case <-timer.C:
		return fmt.Errorf("%w: no hello in %s", errSlow, within)
	case <-closed:
		return gpu.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a request and waits for its reply.
func (a *agent) ask(ctx context.Context, closed <-chan struct{}, what op, within time.Duration) (reply, error) {
	select {
	case r := <-a.replies: // to one who gave up
		if r.ID == a.id {
			a.asked = time.Time{}
		}
	default:
	}
	if a.asked.IsZero() {
		a.asked = time.Now()
	}
	a.id++
	line, err := json.Marshal(request{ID: a.id, Op: what})
	if err != nil {
		return reply{}, fmt.Errorf("nvml: request: %w", err)
	}
	// Cannot block: a child that has not read the few requests that fit into a
	// pipe is killed long before it is full.
	if _, err := a.child.in.Write(append(line, '\n')); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errEnded, err)
	}
	timer := time.NewTimer(within - time.Since(a.asked))
	defer timer.Stop()
	for {
		select {
		case r := <-a.replies:
			if r.ID == a.id {
				a.asked = time.Time{}
				return r, nil
			}
		case <-a.gone:
			select {
			case r := <-a.replies:
				if r.ID == a.id { // it answered before it ended
					return r, nil
				}
			default:
			}
			return reply{}, a.why
		case <-timer.C:
			return reply{}, fmt.Errorf("%w: %s took more than %s", errSlow, what, within)
		case <-closed:
			return reply{}, gpu.ErrClosed
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

// end closes the agent's input and kills it. That it is gone shows in done.
func (a *agent) end() {
	a.child.kill()
	_ = a.child.in.Close() // nothing is lost: it is being killed
}
