package session

// The queue of frames to write to one peer, in order and bounded in bytes.

import (
	"fmt"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

type outbox struct {
	wake     chan struct{} // holds one token while there may be something to take
	underWay underWay

	mu     sync.Mutex
	buf    []byte      // guarded by mu; encoded frames
	spare  []byte      // guarded by mu; the buffer written last, for reuse
	closed bool        // guarded by mu; nothing more is accepted
	files  files[bool] // guarded by mu; the job files that were sent
	knows  features
}

// newOutbox makes a queue to a peer that knows these features.
func newOutbox(knows features) *outbox {
	return &outbox{wake: make(chan struct{}, 1), files: files[bool]{repeats: !knows.arrays}, knows: knows}
}

// refuses returns an error if the peer would misread a frame.
func (o *outbox) refuses(f *wirepb.Frame) error {
	switch {
	case !o.knows.arrays && f.GetStart().GetArray():
		return errNoArrays
	case !o.knows.gangs && (f.GetOffer().GetGang() != 0 || f.GetStart().GetGang() != nil):
		return errNoGangs
	}
	return nil
}

// put queues a frame. It returns ErrBusy if the queue is full.
func (o *outbox) put(f *wirepb.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrNoSession
	}
	if err := o.refuses(f); err != nil {
		return err
	}
	sum, size := o.shorten(f.GetStart())
	buf, err := appendFrame(o.buf, f)
	if err != nil {
		return err
	}
	if len(buf) > MaxQueue {
		return fmt.Errorf("%w: %d bytes are queued for it", ErrBusy, len(o.buf))
	}
	if size > 0 {
		o.files.add(sum, size, true)
	}
	o.buf = buf
	o.signal()
	return nil
}

// shorten removes the job file from a Start if the peer already has it. Otherwise it returns the digest and the size of
// the file that is sent now. mu is held.
func (o *outbox) shorten(m *wirepb.Start) (sum job.Digest, size int) {
	if m == nil {
		return sum, 0
	}
	sum = job.Digest(m.GetFile())
	if o.files.known[sum] {
		m.Spec = nil
		return sum, 0
	}
	return sum, len(m.GetSpec())
}

// close accepts no more frames; queued frames are still written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns all queued bytes, and whether they are the last. They are valid until the next call.
func (o *outbox) take() (b []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b = o.buf
	o.buf, o.spare = o.spare[:0], nil
	if cap(b) <= keepBuffer {
		o.spare = b
	}
	return b, o.closed
}
