package journal

// The queue: what waits for the goroutine of Run.

import (
	"fmt"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

const (
	// maxQueueRecords bounds the records that wait. It is a few seconds' work for the fastest disk, so that ErrFull
	// means real overload.
	maxQueueRecords = 16384
	// maxQueueBytes bounds their memory, and so one write: all that waits is written together. MaxRecords jobs with the
	// largest job files fit, because otherwise a call with so many would be refused for ever.
	maxQueueBytes = MaxRecords * (job.MaxSpecBytes + recordRoom)
	// recordRoom is what a Submit needs besides its job file.
	recordRoom = 4 << 10
	// maxReads bounds the reads that wait for one round.
	maxReads = 16384
	// maxPings bounds the pings that wait.
	maxPings = 64
	// maxInbox bounds the messages of other voters that wait. Raft sends dropped messages again.
	maxInbox = 1024
)

// batch holds encoded records, one after the other, each with its field tag and length.
type batch struct {
	buf   []byte
	ends  []int     // where in buf each record ends
	since time.Time // when the first one came
}

// spareBytes bounds the memory that an empty batch keeps, so that memory is freed after a burst.
const spareBytes = 1 << 20

func (b *batch) reset() {
	if cap(b.buf) > spareBytes {
		b.buf = nil
	}
	b.buf, b.ends = b.buf[:0], b.ends[:0]
}

// readDone is the callback of a ReadIndex.
type readDone = func(job.Epoch, error)

// queue is filled by any goroutine and emptied by the goroutine of Run. Nothing blocks while its lock is held.
type queue struct {
	wake chan struct{} // holds one token while there may be something to do

	mu      sync.Mutex
	closed  bool              // guarded by mu
	records batch             // guarded by mu
	reads   []readDone        // guarded by mu
	inbox   []*raftpb.Message // guarded by mu
	pings   []chan struct{}   // guarded by mu
	raise   uint64            // guarded by mu; the term that this daemon must exceed; 0: none
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// notify wakes the goroutine of Run.
func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default: // the last token was not taken yet
	}
}

// put adds all records of a batch. After an error none was added.
func (q *queue) put(b *batch) error {
	if err := q.add(b); err != nil {
		return err
	}
	q.notify()
	return nil
}

func (q *queue) add(b *batch) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.records
	switch {
	case q.closed:
		return store.ErrClosed
	case len(b.buf) > maxQueueBytes || len(b.ends) > maxQueueRecords:
		return fmt.Errorf("%w: %d records of %d bytes", store.ErrTooLarge, len(b.ends), len(b.buf))
	case len(r.buf)+len(b.buf) > maxQueueBytes || len(r.ends)+len(b.ends) > maxQueueRecords:
		return fmt.Errorf("%w: %d records wait for the disk", store.ErrFull, len(r.ends))
	}
	base := len(r.buf)
	if base == 0 {
		r.since = time.Now()
	}
	r.buf = append(r.buf, b.buf...)
	for _, end := range b.ends {
		r.ends = append(r.ends, base+end)
	}
	return nil
}

// putRead adds a read, or returns the reason why it cannot.
func (q *queue) putRead(done readDone) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return store.ErrClosed
	case len(q.reads) >= maxReads:
		return fmt.Errorf("%w: %d reads wait", store.ErrFull, len(q.reads))
	}
	q.reads = append(q.reads, done)
	return nil
}

// putPing adds a channel to close, or returns the reason why it cannot.
func (q *queue) putPing(seen chan struct{}) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return store.ErrClosed
	case len(q.pings) >= maxPings:
		return fmt.Errorf("%w: %d pings wait", store.ErrFull, len(q.pings))
	}
	q.pings = append(q.pings, seen)
	return nil
}

// putMessage adds a message of another voter, or returns the reason why it is dropped.
func (q *queue) putMessage(m *raftpb.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return store.ErrClosed
	case len(q.inbox) >= maxInbox:
		return fmt.Errorf("%w: %d messages wait", store.ErrFull, len(q.inbox))
	}
	q.inbox = append(q.inbox, m)
	return nil
}

// putRaise asks for a term beyond this one.
func (q *queue) putRaise(term uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.raise = max(q.raise, term)
}

// takeRaise removes and returns the term that this daemon must exceed.
func (q *queue) takeRaise() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	term := q.raise
	q.raise = 0
	return term
}

// takeRecords exchanges the records that wait for an empty batch.
func (q *queue) takeRecords(spare *batch) {
	spare.reset()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records, *spare = *spare, q.records
}

// takeReads removes and returns the reads that wait.
func (q *queue) takeReads() []readDone {
	q.mu.Lock()
	defer q.mu.Unlock()
	reads := q.reads
	q.reads = nil
	return reads
}

// takeMessages removes and returns the messages that wait.
func (q *queue) takeMessages() []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	inbox := q.inbox
	q.inbox = nil
	return inbox
}

// answerPings closes every channel that waits.
func (q *queue) answerPings() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, seen := range q.pings {
		close(seen)
	}
	q.pings = nil
}

// close refuses everything from now on and returns the reads that still wait.
func (q *queue) close() []readDone {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	reads := q.reads
	q.reads, q.inbox, q.records = nil, nil, batch{}
	return reads
}
