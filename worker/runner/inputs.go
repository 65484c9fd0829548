package runner

// Which client brings input to which task. A task that loses its client ends after a time, unless the client comes back.

import (
	"net"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// maxInputs bounds the connections that bring input, over all tasks of one runner. Each has a buffer.
const maxInputs = 256

// inputs are the connections that bring input. All methods but serve run in the loop.
type inputs struct {
	do     chan<- func()
	tasks  *tasks
	leases *leases
	open   int // connections
}

// serve handles one connection from its request to its end.
func (in *inputs) serve(conn *net.UnixConn, m protocol.Exec) {
	type welcome struct {
		t         *task
		c, before *client
		refuse    string
	}
	answer := make(chan welcome, 1)
	in.do <- func() {
		t, refuse := in.find(m.Attempt)
		w := welcome{t: t, refuse: refuse}
		if t != nil {
			w.c, w.before = in.begin(conn, t)
		}
		answer <- w
	}
	w := <-answer
	if w.t == nil {
		_ = tell(conn, protocol.Intake{Over: true, Error: w.refuse}) // a daemon that is gone needs no answer
		return
	}
	if w.before != nil {
		<-w.before.done
	}
	w.c.feed(func() { in.do <- func() { in.fed(w.t) } })
	close(w.c.done)
	in.do <- func() { in.end(w.t, w.c) }
}

// find returns a task that gets input, or why there is none.
func (in *inputs) find(attempt string) (t *task, refuse string) {
	t = in.tasks.find(attempt)
	switch {
	case t == nil || t.phase != running:
		return nil, "the task is not running"
	case t.inlet == nil:
		return nil, "the task gets no input: it was not submitted with stdin or tty"
	case in.open >= maxInputs:
		return nil, "its node already passes input to as many tasks as it can"
	}
	return t, ""
}

// begin makes the connection the client of the task, in place of an older one, which it stops.
func (in *inputs) begin(conn *net.UnixConn, t *task) (c, before *client) {
	in.open++
	c, before = &client{conn: conn, in: t.inlet, done: make(chan struct{})}, t.inlet.client
	if before != nil {
		before.stop()
	}
	t.inlet.client = c
	t.watch.attended()
	in.leases.look(t)
	return c, before
}

// end forgets a connection that is over.
func (in *inputs) end(t *task, c *client) {
	in.open--
	if c.in.client != c {
		return // another has taken its place
	}
	c.in.client = nil
	if t.phase == running {
		t.watch.left(in.leases.boot())
		in.leases.look(t)
	}
}

// fed records that the task has got its whole input.
func (in *inputs) fed(t *task) {
	t.watch.fed()
	in.leases.look(t)
}
