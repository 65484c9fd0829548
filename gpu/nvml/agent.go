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
	replies chan reply    // the newest reply, until somebody receives it
	gone    chan struct{} // closed when nothing more will be read
	why     error         // valid once gone is closed
	turns   chan turned   // the newest card that the child has turned to, until somebody receives it
	at      *at           // the card that the oldest unanswered request is at; nil: not known
	asked   time.Time     // when the oldest unanswered request was sent, or its child turned to a card; zero: none
	id      uint64        // of the last request
}

// turned says when the child turned to a card.
type turned struct {
	to   at
	when time.Time
}

func startAgent(c *child, onFault func(gpu.Fault)) *agent {
	a := &agent{
		child: c, began: time.Now(), ready: make(chan struct{}), replies: make(chan reply, 1), turns: make(chan turned, 1),
		gone: make(chan struct{}),
	}
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
			replace(a.replies, *m.Reply)
		case m.At != nil && greeted:
			replace(a.turns, turned{to: *m.At, when: time.Now()})
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

// replace stores the newest value; nobody waits for an older one. Only one goroutine may call it.
func replace[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// answered notes that no request is unanswered. The reply to the newest request must have been received.
func (a *agent) answered() {
	a.asked, a.at = time.Time{}, nil
	select {
	case <-a.turns: // sent before the reply
	default:
	}
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

// patience is how long the driver waits for the child: in all, or since the child turned to a card.
type patience struct {
	answer time.Duration
	wake   time.Duration // for a card that may sleep
}

// deadline returns how long to wait from now on. A request must be unanswered.
func (a *agent) deadline(p patience) time.Duration {
	within := p.answer
	if a.at != nil && a.at.Wake {
		within = p.wake
	}
	return within - time.Since(a.asked)
}

// ask sends a request and waits for its reply.
func (a *agent) ask(ctx context.Context, closed <-chan struct{}, r request, p patience) (reply, error) {
	if err := a.send(r); err != nil {
		return reply{}, err
	}
	timer := time.NewTimer(a.deadline(p))
	defer timer.Stop()
	for {
		select {
		case r := <-a.replies:
			if r.ID == a.id {
				a.answered()
				return r, nil
			}
		case t := <-a.turns:
			a.asked, a.at = t.when, &t.to
			timer.Reset(a.deadline(p))
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
			if a.at == nil {
				return reply{}, fmt.Errorf("%w: %s took more than %s", errSlow, r.Op, p.answer)
			}
			return reply{}, fmt.Errorf("%w: %s of GPU %d took too long", errSlow, r.Op, a.at.Card)
		case <-closed:
			return reply{}, gpu.ErrClosed
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

// send sends a request. The child may still be busy with an older one, whose caller has given up.
func (a *agent) send(r request) error {
	select {
	case old := <-a.replies:
		if old.ID == a.id {
			a.answered()
		}
	default:
	}
	if a.asked.IsZero() {
		a.asked = time.Now()
	}
	select {
	case t := <-a.turns:
		a.asked, a.at = t.when, &t.to
	default:
	}
	a.id++
	r.ID = a.id
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("nvml: request: %w", err)
	}
	// The write cannot block: a child that does not read its requests is killed long before the pipe is full.
	if _, err := a.child.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return nil
}
