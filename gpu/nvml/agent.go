package nvml

// The agent as the daemon sees it: one running child, its requests and replies.

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
	errWrong = errors.New("the agent sent an invalid message")
)

// agent is one child. Only the holder of the driver's turn may send it requests.
type agent struct {
	child   *child
	began   time.Time
	ready   chan struct{} // closed when hello has arrived
	hello   hello         // valid once ready is closed
	replies chan reply    // the newest reply that nobody has taken
	gone    chan struct{} // closed when nothing more will be read
	why     error         // valid once gone is closed
	asked   time.Time     // when the oldest unanswered request was sent; zero: none
	id      uint64        // of the last request
}

func startAgent(c *child, onFault func(gpu.Fault)) *agent {
	a := &agent{child: c, began: time.Now(), ready: make(chan struct{}), replies: make(chan reply, 1), gone: make(chan struct{})}
	go a.read(onFault)
	return a
}

// read receives the child's messages until it ends.
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

// replace stores the newest reply; the caller of an older one has given up.
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
			return nil // hello arrived before the child ended
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
	case r := <-a.replies: // an old reply, whose caller has given up
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
	// The write cannot block: a child that does not read its requests is killed long before the pipe is full.
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
				if r.ID == a.id { // the child answered before it ended
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

// end closes the agent's input and kills it. The channel done is closed when it is gone.
func (a *agent) end() {
	a.child.kill()
	_ = a.child.in.Close() // no error matters: the child is being killed
}
