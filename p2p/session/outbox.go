package session

// What waits to be written to one peer: frames in the order they were put,
// bounded in bytes.

import (
	"fmt"
	"sync"

	"github.com/musterhq/muster/p2p/wirepb"
)

type outbox struct {
	wake chan struct{} // holds one token while there may be something to take

	mu     sync.Mutex
	buf    []byte // guarded by mu; encoded frames
	spare  []byte // guarded by mu; the buffer written last, to be filled again
	closed bool   // guarded by mu; nothing more is let in
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds a frame, or reports ErrBusy where there is no room.
func (o *outbox) put(f *wirepb.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrNoSession
	}
	buf, err := appendFrame(o.buf, f)
	if err != nil {
		return err
	}
	if len(buf) > MaxQueue {
		return fmt.Errorf("%w: %d bytes wait for it", ErrBusy, len(o.buf))
	}
	o.buf = buf
	o.signal()
	return nil
}

// close lets nothing more in; what is in goes out.
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

// take returns all that waits, and whether that was the last. The bytes belong
// to the caller until it calls again.
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
