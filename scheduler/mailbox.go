package scheduler

// The mailbox of the loop: one queue for events, which are handled in order, and one for the calls of each asker.

import (
	"sync"

	"github.com/musterhq/muster/job"
)

// The bounds of what waits. Each kind has its own bound, so that no kind can crowd out the others.
const (
	maxMail = 16384 // messages of hosts; beyond that the session of the sender is cut
	// maxEntries bounds the committed entries that wait. It is more than maxOutgoing plus the proposals of one plan, so
	// all entries that the core has proposed fit. So the journal never waits here for the loop while the loop waits for
	// the journal. Only a replay can fill it, and nothing is proposed during a replay.
	maxEntries = 2 * (maxOutgoing + planLimit)
	// maxEntryBulk bounds the bytes of job files in those entries, likewise. One entry is always taken.
	maxEntryBulk = 8 << 20
)

// mailbox is the queue. Its lock is held only to append or to swap.
type mailbox struct {
	mu      sync.Mutex
	mails   []mail // guarded by mu
	entries int    // committed entries among them; guarded by mu
	bulk    int    // bytes of job files in these; guarded by mu
	askers  askers // requests and looks; guarded by mu
	closed  bool   // guarded by mu
	room    sync.Cond
	bell    chan struct{} // holds one token while there may be mail
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

// put adds a message. It returns false if too many wait, or if the mailbox is closed.
func (b *mailbox) put(m mail) bool {
	b.mu.Lock()
	ok := !b.closed && len(b.mails)-b.entries < maxMail
	if ok {
		b.mails = append(b.mails, m)
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// call adds a request or a look of an asker, as put does.
func (b *mailbox) call(asker string, m mail) bool {
	b.mu.Lock()
	ok := !b.closed && b.askers.put(asker, m)
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// putEntry adds a committed entry. In a replay it waits for room. The loop empties the mailbox without waiting for
// anybody, so it never waits for long.
func (b *mailbox) putEntry(c Committed) {
	bulk := 0
	for _, r := range c.Records {
		if s, ok := r.(job.SubmitRecord); ok {
			bulk += s.Spec.Bulk()
		}
	}
	b.mu.Lock()
	for !b.closed && (b.entries >= maxEntries || b.bulk > 0 && b.bulk+bulk > maxEntryBulk) {
		b.room.Wait()
	}
	if !b.closed {
		b.mails = append(b.mails, mail{event: c})
		b.entries++
		b.bulk += bulk
	}
	b.mu.Unlock()
	b.ring()
}

// putAlways adds mail that is bounded elsewhere, such as answers to questions of the loop.
func (b *mailbox) putAlways(m mail) {
	b.mu.Lock()
	if !b.closed {
		b.mails = append(b.mails, m)
	}
	b.mu.Unlock()
	b.ring()
}

// take returns all mail but the calls. spare is a slice to fill next.
func (b *mailbox) take(spare []mail) []mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.mails
	b.mails, b.entries, b.bulk = spare[:0], 0, 0
	b.room.Broadcast()
	return all
}

// takeCall returns the call whose turn it is.
func (b *mailbox) takeCall() (m mail, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.askers.take()
}

// close drops the mail that waits, and all that comes later.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.mails, b.askers = true, nil, askers{}
	b.room.Broadcast()
}
