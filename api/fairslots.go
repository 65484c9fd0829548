package api

// Rooms: each holds a limited number of slots, which users and daemons share fairly. See docs/adr, ADR 122.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// party is a user or another daemon that shares a room with others.
type party struct {
	user   string
	daemon job.Peer
}

// account says for whom slots are taken. A request of another daemon counts for that daemon and for the user.
type account struct {
	party
	operator bool // may take any free slot, including those kept for operators
}

// parties returns the parties for whom a slot counts. Parties without a name do not count.
func (a account) parties() [2]party { return [2]party{{user: a.user}, {daemon: a.daemon}} }

// slots holds slots. A party may take slots if it then has at most greed times as many as are still free. So one party alone
// gets greed/(greed+1) of all slots, the next party the same part of the rest, and so on. However many slots one party has,
// some are left for others.
type slots struct {
	what  string // what the slots are, in the plural, for messages
	most  int64  // number of slots
	kept  int64  // further slots, which only operators get
	greed int64

	mu    sync.Mutex
	used  int64           // guarded by mu
	has   map[party]int64 // guarded by mu
	lines []*line         // guarded by mu: the queues of waiting accounts
}

// line is the FIFO queue of one account.
type line struct {
	account
	waiters []*waiter
}

type waiter struct {
	places int64
	in     chan struct{} // closed when it has its slots
}

func newSlots(what string, most, kept int64) *slots {
	return &slots{what: what, most: most, kept: kept, greed: 1, has: map[party]int64{}}
}

// fitsLocked reports whether the account may take n slots now.
func (r *slots) fitsLocked(a account, n int64) bool {
	if a.operator {
		return r.used+n <= r.most+r.kept
	}
	free := r.most - r.used - n
	for _, p := range a.parties() {
		if p != (party{}) && r.has[p]+n > r.greed*free {
			return false
		}
	}
	return free >= 0
}

func (r *slots) countLocked(a account, n int64) {
	r.used += n
	for _, p := range a.parties() {
		if p == (party{}) {
			continue
		}
		if r.has[p] += n; r.has[p] == 0 {
			delete(r.has, p)
		}
	}
}

// take takes n slots if the account may have them now. It reports whether it did.
func (r *slots) take(a account, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fitsLocked(a, n) {
		return false
	}
	r.countLocked(a, n)
	return true
}

// give gives n slots back, and gives slots to the waiters that can have them now.
func (r *slots) give(a account, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked(a, -n)
	r.admitLocked()
}

func (r *slots) admitLocked() {
	left := r.lines[:0]
	for _, l := range r.lines {
		for len(l.waiters) > 0 && r.fitsLocked(l.account, l.waiters[0].places) {
			r.countLocked(l.account, l.waiters[0].places)
			close(l.waiters[0].in)
			l.waiters = l.waiters[1:]
		}
		if len(l.waiters) > 0 {
			left = append(left, l)
		}
	}
	clear(r.lines[len(left):])
	r.lines = left
}

// placeWait is how long a request waits for a slot. Clients wait for an answer three times as long.
const placeWait = 15 * time.Second

// wait takes n slots as soon as the account may have them. Requests of one account wait in a queue of their own, which does
// not delay other accounts. It returns ErrTooMany if ctx ends before.
func (r *slots) wait(ctx context.Context, a account, n int64) error {
	w := r.enter(a, n)
	if w == nil {
		return nil
	}
	select {
	case <-w.in:
		return nil
	case <-ctx.Done():
	}
	if !r.leave(w) {
		r.give(a, n)
	}
	return r.refusal(a)
}

// waitBriefly is wait, but for at most placeWait.
func (r *slots) waitBriefly(ctx context.Context, a account, n int64) error {
	if r.take(a, n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	return r.wait(ctx, a, n)
}

// enter takes the slots and returns nil, or returns a waiter in the queue of its account.
func (r *slots) enter(a account, n int64) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	var own *line
	for _, l := range r.lines {
		if l.account == a {
			own = l
			break
		}
	}
	if own == nil {
		if r.fitsLocked(a, n) {
			r.countLocked(a, n)
			return nil
		}
		own = &line{account: a}
		r.lines = append(r.lines, own)
	}
	w := &waiter{places: n, in: make(chan struct{})}
	own.waiters = append(own.waiters, w)
	return w
}

// leave removes a waiter from its queue. It returns false if the waiter already has its slots.
func (r *slots) leave(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		for i, x := range l.waiters {
			if x == w {
				l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
				r.admitLocked() // the next waiter may need fewer slots
				return true
			}
		}
	}
	return false
}

// refusal returns the error for an account that gets no slot.
func (r *slots) refusal(a account) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	who, p := "user "+a.user, party{user: a.user}
	if a.daemon != "" && r.has[party{daemon: a.daemon}] >= r.has[p] {
		who, p = "daemon "+a.daemon.Short(), party{daemon: a.daemon}
	}
	return fmt.Errorf("%w: %s has %d of %d %s of this daemon, and the others are kept for others; end some, or try again in a second",
		ErrTooMany, who, r.has[p], r.most, r.what)
}
