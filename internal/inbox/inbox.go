// Package inbox queues what members send to one loop. Each member has a queue of its own, bounded in messages and in
// bytes, so a full queue stops only its own sender.
//
// Members take turns by the weight of their mail. One that had no mail goes before those with a backlog. So the mail of
// a member that sends little waits for no flood. This is deficit round robin with sparse flows first, as in FQ-CoDel
// (RFC 8290). The mail of one member stays in order.
package inbox

import "sync"

// Limits bound what waits and what is taken. A weight is about the number of bytes that a message has in memory.
type Limits struct {
	Messages int // of one member
	Weight   int // of the mail of one member. One message may always wait.
	All      int // weight of the mail of all members. Beyond it, only Small of each may wait.
	Small    int // weight of the mail of a member that may always wait
	Share    int // weight that is taken of one member before the next one's turn
	Turn     int // weight that Take returns
}

// Inbox holds the mail. Any goroutine may use it.
type Inbox[K comparable, T any] struct {
	limits Limits
	bell   func() // called after mail was added

	mu      sync.Mutex
	room    sync.Cond
	queues  map[K]*queue[K, T] // guarded by mu; those in fresh or backlog
	fresh   []*queue[K, T]     // guarded by mu; members that had no mail before, in the order of their turns
	backlog []*queue[K, T]     // guarded by mu; the others that have mail, or had some in the last round
	spare   []*queue[K, T]     // guarded by mu; for reuse
	weight  int                // guarded by mu
	waiting int                // guarded by mu; goroutines in Put
	closed  bool               // guarded by mu
}

// queue is the mail of one member.
type queue[K comparable, T any] struct {
	member  K
	letters []letter[T]
	first   int // in letters
	weight  int
	credit  int // weight that may still be taken in this turn
}

type letter[T any] struct {
	msg    T
	weight int
}

const (
	maxSpare   = 64 // queues that are kept for reuse
	maxLetters = 64 // room for letters that they keep
)

// New makes an inbox that calls bell when there is mail. The bell must not call the inbox.
func New[K comparable, T any](limits Limits, bell func()) *Inbox[K, T] {
	b := &Inbox[K, T]{limits: limits, bell: bell, queues: map[K]*queue[K, T]{}}
	b.room.L = &b.mu
	return b
}

// Put adds a message of a member. It waits while the queue of that member is full. It returns false once the inbox is
// closed.
func (b *Inbox[K, T]) Put(from K, msg T, weight int) bool {
	b.mu.Lock()
	b.waiting++
	for !b.closed && !b.fits(from, weight) {
		b.room.Wait()
	}
	b.waiting--
	open := !b.closed
	if open {
		b.add(from, msg, weight)
	}
	b.mu.Unlock()
	if open {
		b.bell()
	}
	return open
}

// Offer adds a message without waiting. It returns false if most messages of the member wait, or if the inbox is closed.
// No other bound counts.
func (b *Inbox[K, T]) Offer(from K, msg T, weight, most int) bool {
	b.mu.Lock()
	q := b.queues[from]
	ok := !b.closed && (q == nil || q.len() < most)
	if ok {
		b.add(from, msg, weight)
	}
	b.mu.Unlock()
	if ok {
		b.bell()
	}
	return ok
}

// Take appends the mail whose turn it is to into, up to Limits.Turn. more is true if mail is left.
func (b *Inbox[K, T]) Take(into []T) (mail []T, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.limits.Turn
	for left > 0 {
		q, wasFresh := b.next()
		if q == nil {
			break
		}
		before := q.weight
		into = q.take(into, min(q.credit, left))
		took := before - q.weight
		left, q.credit, b.weight = left-took, q.credit-took, b.weight-took
		switch {
		case q.len() == 0 && wasFresh:
			b.backlog = append(b.backlog, q) // for one round, so that it does not count as fresh again at once
		case q.len() == 0:
			b.drop(q)
		case q.credit <= 0:
			b.backlog = append(b.backlog, q)
		case wasFresh: // Take is full: its turn goes on with the next
			b.fresh = append([]*queue[K, T]{q}, b.fresh...)
		default:
			b.backlog = append([]*queue[K, T]{q}, b.backlog...)
		}
	}
	if b.waiting > 0 {
		b.room.Broadcast()
	}
	return into, b.weight > 0
}

// Close drops the mail that waits, and all that comes later.
func (b *Inbox[K, T]) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.weight = true, 0
	b.fresh, b.backlog, b.spare = nil, nil, nil
	clear(b.queues)
	b.room.Broadcast()
}

// fits reports whether a message of a member may wait. mu is held.
func (b *Inbox[K, T]) fits(from K, weight int) bool {
	messages, waiting := 0, 0
	if q := b.queues[from]; q != nil {
		messages, waiting = q.len(), q.weight
	}
	switch {
	case messages >= b.limits.Messages:
		return false
	case waiting+weight <= b.limits.Small:
		return true // others cannot take this room
	}
	return b.weight+weight <= b.limits.All && (messages == 0 || waiting+weight <= b.limits.Weight)
}

// add adds a message. mu is held.
func (b *Inbox[K, T]) add(from K, msg T, weight int) {
	weight = max(weight, 1)
	q := b.queues[from]
	if q == nil {
		if n := len(b.spare); n > 0 {
			q, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			q = &queue[K, T]{}
		}
		q.member, q.credit = from, b.limits.Share
		b.queues[from] = q
		b.fresh = append(b.fresh, q)
	}
	q.letters = append(q.letters, letter[T]{msg, weight})
	q.weight += weight
	b.weight += weight
}

// next removes the queue whose turn it is from its list. mu is held.
func (b *Inbox[K, T]) next() (q *queue[K, T], fresh bool) {
	if len(b.fresh) > 0 {
		q, b.fresh = b.fresh[0], b.fresh[1:]
		return q, true
	}
	for len(b.backlog) > 0 {
		q, b.backlog = b.backlog[0], b.backlog[1:]
		if q.len() == 0 {
			b.drop(q)
			continue
		}
		if q.credit <= 0 {
			q.credit += b.limits.Share
		}
		if q.credit > 0 {
			return q, false
		}
		b.backlog = append(b.backlog, q)
	}
	return nil, false
}

// drop forgets a queue without mail. mu is held.
func (b *Inbox[K, T]) drop(q *queue[K, T]) {
	delete(b.queues, q.member)
	if len(b.spare) < maxSpare && cap(q.letters) <= maxLetters {
		*q = queue[K, T]{letters: q.letters[:0]}
		b.spare = append(b.spare, q)
	}
}

func (q *queue[K, T]) len() int { return len(q.letters) - q.first }

// take appends messages to into until their weight is at least most.
func (q *queue[K, T]) take(into []T, most int) []T {
	for most > 0 && q.first < len(q.letters) {
		l := &q.letters[q.first]
		into = append(into, l.msg)
		most -= l.weight
		q.weight -= l.weight
		*l = letter[T]{}
		q.first++
	}
	switch {
	case q.first == len(q.letters):
		q.letters, q.first = q.letters[:0], 0
	case q.first >= len(q.letters)/2+maxLetters:
		q.letters, q.first = append(q.letters[:0], q.letters[q.first:]...), 0
	}
	return into
}
