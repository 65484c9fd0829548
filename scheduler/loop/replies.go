package loop

// Replies: how a reply finds the caller that waits for it.

import (
	"sync"

	"github.com/musterhq/muster/scheduler/step"
)

// replies pairs tokens with the callers that wait.
type replies struct {
	mu   sync.Mutex
	last step.Token                     // guarded by mu
	out  map[step.Token]chan step.Reply // guarded by mu
}

func newReplies() *replies { return &replies{out: map[step.Token]chan step.Reply{}} }

func (r *replies) open() (step.Token, chan step.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	c := make(chan step.Reply, 1)
	r.out[r.last] = c
	return r.last, c
}

func (r *replies) forget(t step.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.out, t)
}

func (r *replies) reply(x step.Reply) {
	r.mu.Lock()
	c := r.out[x.Token]
	delete(r.out, x.Token)
	r.mu.Unlock()
	if c != nil {
		c <- x // has room for the one reply
	}
}
