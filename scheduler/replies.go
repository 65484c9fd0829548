package scheduler

// Replies: how a reply finds the caller that waits for it.

import "sync"

// replies pairs tokens with the callers that wait.
type replies struct {
	mu   sync.Mutex
	last Token                // guarded by mu
	out  map[Token]chan Reply // guarded by mu
}

func newReplies() *replies { return &replies{out: map[Token]chan Reply{}} }

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
