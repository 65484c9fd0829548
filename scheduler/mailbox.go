package scheduler

// The mailbox of the loop: one queue for all that comes in, so that nothing overtakes anything.

import "sync"

// The bounds of what waits to be looked at. Each kind has its own, so that no
// one can crowd the others out.
const (
	maxMail = 16384 // messages of workers, sessions and searches: beyond, a sender is cut off
	maxCall = 4096  // requests of people: beyond, they are told to come again
	// maxEntries bounds the committed entries that wait. It is above
	// maxOutgoing plus one plan's proposals: once the core proposes, what is
	// under way fits, and a journal never waits here for the loop while the
	// loop waits for the journal. Only a replay, during which nothing is
	// proposed, can fill it.
	maxEntries = 2 * (maxOutgoing + planLimit)
)

// mail is an event for the core, or a look at it.
type mail struct {
	event Event
	look  func(*Core)
}

// mailbox is a leaf: its lock is held for an append or a swap, never for more.
type mailbox struct {
	mu      sync.Mutex
	mails   []mail // guarded by mu
	entries int    // committed entries among them; guarded by mu
	calls   int    // requests among them; guarded by mu
	closed  bool   // guarded by mu
	room    sync.Cond
	bell    chan struct{} // holds one ring
}

func newMailbox() *mailbox {
	b := &mailbox{bell: make(chan struct{}, 1)}
	b.room.L = &b.mu
	return b
}

func (b *mailbox) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// put adds a message; false if there are too many, or nobody reads any more.
func (b *mailbox) put(m mail) bool {
	b.mu.Lock()
	ok := !b.closed && len(b.mails)-b.entries-b.calls < maxMail
	if ok {
		b.mails = append(b.mails, m)
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// call adds a request.
func (b *mailbox) call(m mail) bool {
	b.mu.Lock()
	ok := !b.closed && b.calls < maxCall
	if ok {
		b.mails = append(b.mails, m)
		b.calls++
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// putEntry adds a committed entry, and waits for room in a replay.
func (b *mailbox) putEntry(m mail) {
	b.mu.Lock()
	for !b.closed && b.entries >= maxEntries {
		b.room.Wait()
	}
	if !b.closed {
		b.mails = append(b.mails, m)
		b.entries++
	}
	b.mu.Unlock()
	b.ring()
}

// putAlways adds what is bounded elsewhere: answers to what the loop asked.
func (b *mailbox) putAlways(m mail) {
	b.mu.Lock()
	if !b.closed {
		b.mails = append(b.mails, m)
	}
	b.mu.Unlock()
	b.ring()
}

// take empties the mailbox; spare is an old one to fill next.
func (b *mailbox) take(spare []mail) []mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.mails
	b.mails, b.entries, b.calls = spare[:0], 0, 0
	b.room.Broadcast()
	return all
}

// close drops what is there and what comes.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.mails = true, nil
	b.room.Broadcast()
}
