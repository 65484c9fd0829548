package store

// What waits for the journal's goroutine.

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/musterhq/muster/job"
)

const (
	// maxRecordBytes bounds a record: a job file as large as one may be, whose
	// every second letter takes two in JSON.
	maxRecordBytes = 2*job.MaxSpecBytes + 64<<10
	// maxQueueRecords bounds the records that wait: a few seconds of the fastest
	// disk, so that who is told ErrFull has reason to be.
	maxQueueRecords = 16384
	// maxQueueBytes bounds their memory, and so a batch: all that waits is
	// written together. MaxRecords jobs with the largest job files fit: who
	// proposes so many at once would be refused for ever otherwise.
	maxQueueBytes = MaxRecords * (job.MaxSpecBytes + recordRoom)
	// recordRoom is what a Submit needs beside its job file.
	recordRoom = 4 << 10
	// maxReads bounds the reads that wait for one round.
	maxReads = 16384
	// maxPings bounds those who wait to see the journal alive.
	maxPings = 64
	// maxInbox bounds the messages of other voters that wait; Raft sends again
	// what is dropped.
	maxInbox = 1024
)

// parcel holds encoded records, one after the other.
type parcel struct {
	buf  []byte
	ends []int // where in buf each record ends
}

// spareBytes is what an empty parcel may keep of its memory: a burst is over.
const spareBytes = 1 << 20

func (p *parcel) reset() {
	if cap(p.buf) > spareBytes {
		p.buf = nil
	}
	p.buf, p.ends = p.buf[:0], p.ends[:0]
}

// readDone answers a ReadIndex.
type readDone = func(job.Epoch, error)

// queue is a leaf container, filled by anyone and emptied by the journal.
type queue struct {
	bell chan struct{} // holds a token when there may be something to do

	mu      sync.Mutex
	closed  bool              // guarded by mu
	records parcel            // guarded by mu
	reads   []readDone        // guarded by mu
	inbox   []*raftpb.Message // guarded by mu
	pings   []chan struct{}   // guarded by mu
}

func newQueue() *queue { return &queue{bell: make(chan struct{}, 1)} }

func (q *queue) ring() {
	select {
	case q.bell <- struct{}{}:
	default: // it has not been heard yet
	}
}

// put adds all records of a parcel or none.
func (q *queue) put(p *parcel) error {
	if err := q.add(p); err != nil {
		return err
	}
	q.ring()
	return nil
}

func (q *queue) add(p *parcel) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.records
	switch {
	case q.closed:
		return ErrClosed
	case len(p.buf) > maxQueueBytes || len(p.ends) > maxQueueRecords:
		return fmt.Errorf("%w: %d records of %d bytes", ErrTooLarge, len(p.ends), len(p.buf))
	case len(r.buf)+len(p.buf) > maxQueueBytes || len(r.ends)+len(p.ends) > maxQueueRecords:
		return fmt.Errorf("%w: %d records wait for the disk", ErrFull, len(r.ends))
	}
	base := len(r.buf)
	r.buf = append(r.buf, p.buf...)
	for _, end := range p.ends {
		r.ends = append(r.ends, base+end)
	}
	return nil
}

// putRead adds a read, or says why not.
func (q *queue) putRead(done readDone) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.reads) >= maxReads:
		return fmt.Errorf("%w: %d reads wait", ErrFull, len(q.reads))
	}
	q.reads = append(q.reads, done)
	return nil
}

// putPing adds a channel to be closed, or says why not.
func (q *queue) putPing(seen chan struct{}) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.pings) >= maxPings:
		return fmt.Errorf("%w: %d pings wait", ErrFull, len(q.pings))
	}
	q.pings = append(q.pings, seen)
	return nil
}

// putMessage adds a message of another voter, or drops it.
func (q *queue) putMessage(m *raftpb.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.inbox) >= maxInbox:
		return fmt.Errorf("%w: %d messages wait", ErrFull, len(q.inbox))
	}
	q.inbox = append(q.inbox, m)
	return nil
}

// takeRecords swaps the records that wait for an empty parcel.
func (q *queue) takeRecords(spare *parcel) {
	spare.reset()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records, *spare = *spare, q.records
}

// takeReads and takeMessages empty theirs.
func (q *queue) takeReads() []readDone {
	q.mu.Lock()
	defer q.mu.Unlock()
	reads := q.reads
	q.reads = nil
	return reads
}

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

// close refuses whatever comes now and returns the reads that still wait.
func (q *queue) close() []readDone {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	reads := q.reads
	q.reads, q.inbox, q.records = nil, nil, parcel{}
	return reads
}
