// Package pump moves what tasks write from their pipes to their logs. One goroutine reads the pipes of all tasks,
// but a task whose user wants copies in other files has a goroutine of its own.
package pump

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

const (
	// pumpBytes is read of a pipe at a time. It is the runner's whole memory for
	// output, however many tasks write.
	pumpBytes = 256 << 10
	// pipeBytes is what the kernel takes for a pipe unasked. A task that fills
	// it is given a larger one, of wideBytes, so that it waits less often.
	pipeBytes = 64 << 10
	wideBytes = 1 << 20
	// pumpEvents is how many pipes may say at once that there is something.
	pumpEvents = 64
	// maxRest bounds what is read of a pipe after the last process of its task:
	// all that it can hold. Only a process outside could still be writing.
	maxRest = 64 << 20
)

// Pump moves bytes from the pipes of all tasks into their logs as they come. Of a
// task's two pipes it reads first the one that was written to first since both were
// empty, and reads it until it is empty. Epoll is edge-triggered, because
// level-triggered epoll returns pipes in the order in which they were last read.
type Pump struct {
	poll  int // epoll
	bell  int // eventfd: an outlet was added to ended
	log   *slog.Logger
	mu    sync.Mutex
	all   map[int32]*intake // guarded by mu; by read end
	ended []*Outlet         // guarded by mu; outlets whose tasks have no process left
}

// intake is one pipe of a task.
type intake struct {
	of     *Outlet
	stream output.Stream
	fd     int // of the read end; -1 once it is closed
	wide   bool
	more   bool // it was not read until empty, so that other pipes have their turn
}

// Outlet is both pipes of a task and the log that they end in.
type Outlet struct {
	pump   *Pump
	mu     sync.Mutex
	writer *output.Writer // guarded by mu
	pipes  [2]*intake     // their descriptors are guarded by mu
	copies map[output.Stream]*Copy
	tail   chan string // the end of stderr, once all is read
}

// New opens the poll of a pump. Run has to be called.
func New(log *slog.Logger) (*Pump, error) {
	p := &Pump{poll: -1, bell: -1, log: log, all: map[int32]*intake{}}
	var err error
	if p.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(p.poll, unix.EPOLL_CTL_ADD, p.bell, edge(p.bell))
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("runner: make poll of outputs: %w", err)
	}
	return p, nil
}

func (p *Pump) close() {
	for _, fd := range []int{p.poll, p.bell} {
		if fd >= 0 {
			_ = unix.Close(fd) // holds no data
		}
	}
}

// edge asks epoll for one event when a file has bytes to read: now, or when more come.
func edge(fd int) *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)} //nolint:gosec // descriptors are small
}

// Run reads what tasks write for as long as the runner lives. A pump of one task
// returns when that task has ended.
func (p *Pump) Run() {
	buf := make([]byte, pumpBytes)
	events := make([]unix.EpollEvent, pumpEvents)
	for {
		n, err := unix.EpollWait(p.poll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.log.Error("outputs of tasks not read any more", "error", err)
			return
		}
		for _, e := range events[:n] {
			if int(e.Fd) == p.bell {
				if p.finished(buf) {
					return
				}
				continue
			}
			p.mu.Lock()
			in := p.all[e.Fd]
			p.mu.Unlock()
			if in != nil {
				in.of.mu.Lock()
				in.turn(buf)
				in.of.mu.Unlock()
			}
		}
	}
}

// finished closes the logs of ended tasks, after the events that epoll returned
// before. Last says that this is a pump of one task, which has ended.
func (p *Pump) finished(buf []byte) (last bool) {
	var count [8]byte
	_, _ = unix.Read(p.bell, count[:]) // it may have rung twice
	p.mu.Lock()
	ended := p.ended
	p.ended = nil
	p.mu.Unlock()
	for _, o := range ended {
		o.tail <- o.end(buf)
		last = len(o.copies) > 0
	}
	return last
}

// Open makes the pipes of a task's stdout and stderr and returns the ends that the
// task writes to. Give hands a read end to the task's user, who may open it as
// /dev/stdout. The outlet owns the copies from now on.
func (p *Pump) Open(w *output.Writer, give func(fd int) error, copies map[output.Stream]*Copy) (*Outlet, []int, error) {
	o := &Outlet{pump: p, writer: w, copies: copies, tail: make(chan string, 1)}
	if len(copies) > 0 {
		if err := o.alone(); err != nil {
			CloseCopies(copies)
			return nil, nil, err
		}
	}
	var ends []int
	for i, stream := range []output.Stream{output.Stdout, output.Stderr} {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err == nil {
			o.pipes[i] = &intake{of: o, stream: stream, fd: fds[0]}
			ends = append(ends, fds[1])
			err = o.pump.watch(o.pipes[i], give)
		}
		if err != nil {
			o.Finish()
			for _, fd := range ends {
				_ = unix.Close(fd) // nothing was written
			}
			return nil, nil, fmt.Errorf("runner: make pipe for output: %w", err)
		}
	}
	return o, ends, nil
}

// watch has run read a pipe.
func (p *Pump) watch(in *intake, give func(fd int) error) error {
	if err := give(in.fd); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(in.fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return err
	}
	p.mu.Lock()
	p.all[int32(in.fd)] = in //nolint:gosec // descriptors are small
	p.mu.Unlock()
	return unix.EpollCtl(p.poll, unix.EPOLL_CTL_ADD, in.fd, edge(in.fd))
}

// turn reads a pipe that has bytes, after the rest of the task's other pipe, which
// was written to earlier. The caller holds the outlet's lock.
func (in *intake) turn(buf []byte) {
	for _, other := range in.of.pipes {
		if other != nil && other != in && other.more {
			other.drain(buf)
		}
	}
	in.drain(buf)
}

// drain reads a pipe until it is empty, but no more bytes than it can hold.
func (in *intake) drain(buf []byte) {
	in.more = false
	for left := wideBytes; left > 0; {
		n := in.read(buf)
		if n == 0 {
			return // an edge comes when it is written to again
		}
		left -= n
	}
	in.more = true
	if err := unix.EpollCtl(in.of.pump.poll, unix.EPOLL_CTL_MOD, in.fd, edge(in.fd)); err != nil {
		in.of.pump.log.Error("output of a task waits for its end", "error", err)
	}
}

// read moves at most one buffer from a pipe to the log and returns the number of
// bytes. It closes a pipe that has no writer left. The caller holds the outlet's lock.
func (in *intake) read(buf []byte) int {
	if in.fd < 0 {
		return 0
	}
	n, err := unix.Read(in.fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(in.fd, buf)
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0
	case err != nil || n <= 0:
		in.close()
		return 0
	}
	if n >= pipeBytes && !in.wide {
		in.wide = true
		_, _ = unix.FcntlInt(uintptr(in.fd), unix.F_SETPIPE_SZ, wideBytes) // a user has only so many pages; it works without
	}
	in.of.writer.Write(in.stream, buf[:n])
	if d := in.of.copies[in.stream]; d != nil {
		d.write(in.of.writer, buf[:n])
	}
	return n
}

func (in *intake) close() {
	p := in.of.pump
	p.mu.Lock()
	delete(p.all, int32(in.fd)) //nolint:gosec // as in watch
	p.mu.Unlock()
	// A child on its way to exec still has the pipe, so closing alone would not
	// end what epoll says of it.
	_ = unix.EpollCtl(p.poll, unix.EPOLL_CTL_DEL, in.fd, nil)
	_ = unix.Close(in.fd) // was only read
	in.fd = -1
}

// Finish reads the rest of the pipes of a task that has no process left, closes its
// log and returns the end of its stderr. The goroutine of run reads the rest, so that
// the order stays, unless all was read before.
func (o *Outlet) Finish() (tail string) {
	o.mu.Lock()
	open := len(o.copies) > 0
	for _, in := range o.pipes {
		open = open || in != nil && in.fd >= 0
	}
	o.mu.Unlock()
	if !open {
		return o.end(nil)
	}
	o.pump.mu.Lock()
	o.pump.ended = append(o.pump.ended, o)
	o.pump.mu.Unlock()
	if _, err := unix.Write(o.pump.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil && !errors.Is(err, unix.EAGAIN) {
		o.pump.log.Error("end of a task's output not told", "error", err)
	}
	if len(o.copies) == 0 {
		return <-o.tail
	}
	return o.tailSoon()
}

// end reads the pipes to their ends, first a pipe that was not read until empty.
func (o *Outlet) end(buf []byte) (tail string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, more := range []bool{true, false} {
		for _, in := range o.pipes {
			if in == nil || in.fd < 0 || in.more != more {
				continue
			}
			for left := maxRest; left > 0; {
				n := in.read(buf)
				if n == 0 {
					break
				}
				left -= n
			}
			if in.fd >= 0 {
				in.close()
			}
		}
	}
	tail = o.writer.Tail()
	if err := o.writer.Close(); err != nil {
		o.pump.log.Warn("output of a task not closed", "error", err)
	}
	return tail
}

// Direct is an outlet without pipes, whose streams are written to by inlets.
func (p *Pump) Direct(w *output.Writer) *Outlet { return &Outlet{pump: p, writer: w} }

// Stream writes to one stream of a log without a pipe. Its Write never fails: what
// cannot be kept is noted in the log.
func (o *Outlet) Stream(s output.Stream) io.Writer { return inlet{o, s} }

// inlet is a stream of a log that is written to without a pipe.
type inlet struct {
	o      *Outlet
	stream output.Stream
}

// Write is io.Writer.
func (i inlet) Write(p []byte) (int, error) {
	i.o.mu.Lock()
	defer i.o.mu.Unlock()
	i.o.writer.Write(i.stream, p)
	return len(p), nil
}
