package pump

// Output that does not come through pipes: that of containers, which the engine sends in the order in which it was
// written. It goes to the log at once, and to copies by a goroutine, because a copy may hang.

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/worker/output"
)

// queuedWrites is how many writes, of at most some 32 KiB, wait for the copies. Beyond that the task waits.
const queuedWrites = 32

// errCut is the error of writes after Cut.
var errCut = errors.New("runner: a copy of the output hangs")

// direct is the part of an outlet without pipes.
type direct struct {
	*Outlet

	queue chan queued
	cut   chan struct{} // closed: nothing more can be written
	once  sync.Once     // closes cut
	done  chan struct{} // closed when all copies are written
	over  bool          // guarded by Outlet.mu: the log is closed
}

// queued is what is to be written to a copy.
type queued struct {
	to   *Copy
	text []byte
}

// Direct returns an outlet without pipes. Its streams are written to with Stream. The outlet owns the copies from now on.
func (p *Pump) Direct(w *output.Writer, copies map[output.Stream]*Copy) *Outlet {
	o := &Outlet{pump: p, writer: w, copies: copies}
	o.direct = &direct{Outlet: o, queue: make(chan queued, queuedWrites), cut: make(chan struct{}), done: make(chan struct{})}
	if len(copies) == 0 {
		close(o.direct.done)
		return o
	}
	go func() {
		defer close(o.direct.done)
		defer CloseCopies(copies)
		for x := range o.direct.queue {
			x.to.write(o.direct.note, x.text)
		}
	}()
	return o
}

// note writes a line of muster to the log, unless it is closed.
func (d *direct) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.writer.Note(text)
	}
}

// Cut makes writes to the streams of Direct fail from now on, also those that wait for a copy.
func (o *Outlet) Cut() { o.direct.once.Do(func() { close(o.direct.cut) }) }

// Stream returns a writer to one stream of the log. Its Write fails only after Cut; the log notes what is missing.
func (o *Outlet) Stream(s output.Stream) io.Writer { return streamWriter{o, s} }

// streamWriter writes to one stream of a log, without a pipe.
type streamWriter struct {
	o      *Outlet
	stream output.Stream
}

// Write implements io.Writer.
func (i streamWriter) Write(p []byte) (int, error) {
	i.o.mu.Lock()
	i.o.writer.Write(i.stream, p)
	i.o.mu.Unlock()
	to := i.o.copies[i.stream]
	if to == nil {
		return len(p), nil
	}
	select {
	case i.o.direct.queue <- queued{to, bytes.Clone(p)}:
		return len(p), nil
	case <-i.o.direct.cut:
		return 0, errCut
	}
}

// finish waits at most copyWait for the copies, and closes the log. Nothing is written any more.
func (d *direct) finish() (tail string) {
	close(d.queue)
	late := time.NewTimer(copyWait)
	defer late.Stop()
	select {
	case <-d.done:
	case <-late.C:
		d.pump.log.Warn("a copy of a task's output hangs; the task's end does not wait for it")
	}
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	return d.end(nil)
}
