package loop

// The mailbox of the loop: one queue for events of this daemon, which are handled in order, one for the mail of each member,
// and one for the calls of each asker. See docs/adr, ADR 152.

import (
	"math"
	"sync"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/inbox"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// The bounds of what waits. Each kind has its own bound, so that no kind can crowd out the others.
const (
	maxProgress = 16384 // news of jobs of other daemons that jobs here depend on
	// maxOwn bounds the messages of this daemon's own worker. Beyond that the local session is closed and opened again.
	maxOwn = 16384
	// maxEntries bounds the committed entries that wait. It is more than MaxOutgoing plus the proposals of one plan, so
	// all entries that the core has proposed fit. So the journal never waits here for the loop while the loop waits for
	// the journal. Only a replay can fill it, and nothing is proposed during a replay.
	maxEntries = 2 * (step.MaxOutgoing + step.PlanLimit)
	// maxEntryBulk bounds the bytes of job files in those entries, likewise. One entry is always taken.
	maxEntryBulk = 8 << 20
)

// perMember bounds the mail of each member, and of all together. Messages has room for a burst from a busy host. One
// message weighs a few MiB at most. The loop takes no more at once than it handles in some milliseconds.
var perMember = inbox.Limits{Messages: 4096, Weight: 2 << 20, All: 64 << 20, Small: 16 << 10, Share: 64 << 10, Turn: 2 << 20}

// mailbox is the queue. Its lock is held only to append or to swap.
type mailbox struct {
	members *inbox.Inbox[job.Peer, step.Event]

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
	b.members = inbox.New[job.Peer, step.Event](perMember, b.ring)
	b.room.L = &b.mu
	return b
}

func (b *mailbox) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// from adds an event of a member, in order. It waits while too much mail of that member waits; nobody else's mail counts.
// It returns false if the mailbox is closed.
func (b *mailbox) from(p job.Peer, e step.Event) bool {
	weight := 0
	if m, ok := e.(step.FromWorker); ok {
		weight = contract.Weight(m.Msg)
	}
	return b.members.Put(p, e, weight)
}

// fromOwn adds an event of this daemon's own worker, and does not wait. It returns false if too many messages wait.
func (b *mailbox) fromOwn(p job.Peer, e step.Event) bool {
	if m, ok := e.(step.FromWorker); ok {
		return b.members.Offer(p, e, contract.Weight(m.Msg), maxOwn)
	}
	return b.members.Offer(p, e, 0, math.MaxInt) // sessions begin and end seldom
}

// takeMail appends the mail of the members whose turn it is to events.
func (b *mailbox) takeMail(events []step.Event) []step.Event {
	events, more := b.members.Take(events)
	if more {
		b.ring()
	}
	return events
}

// putNews adds news of another daemon's jobs. It returns false if too many wait, or if the mailbox is closed.
func (b *mailbox) putNews(m mail) bool {
	b.mu.Lock()
	ok := !b.closed && len(b.mails)-b.entries < maxProgress
	if ok {
		b.mails = append(b.mails, m)
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// call adds a request of an asker, or a read of the core for it. It returns false if too many wait, or if the mailbox is
// closed.
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
func (b *mailbox) putEntry(c step.Committed) {
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

// take returns all mail except that of members and the calls. The mailbox fills the slice spare next.
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
	b.members.Close()
}
