// Package pump copies the output of tasks from their pipes to their logs. One goroutine reads the pipes of all tasks,
// except that a task whose user wants copies in other files has a goroutine of its own.
package pump

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

const (
	// pumpBytes is the size of the read buffer. It is all the memory that the runner uses for output, however many
	// tasks write.
	pumpBytes = 256 << 10
	// pipeBytes is the kernel's default capacity of a pipe. A task that fills its pipe gets one of wideBytes, so that
	// it blocks less often.
	pipeBytes = 64 << 10
	wideBytes = 1 << 20
	// pumpEvents bounds the events that one call of epoll_wait returns.
	pumpEvents = 64
	// maxRest bounds what is read from a pipe after the last process of its task has ended. A pipe holds less; only a
	// process outside of the task could still be writing.
	maxRest = 64 << 20
)

// Pump copies bytes from the pipes of all tasks into their logs. If both pipes of a task were empty, it first reads the
// one that is written to first, until that is empty. That keeps the order of stdout and stderr. Epoll is edge-triggered:
// level-triggered epoll would return pipes in the order in which they were last read.
type Pump struct {
	poll  int // epoll
	wake  int // eventfd: an outlet was added to ended
	log   *slog.Logger
	mu    sync.Mutex
	all   map[int32]*pipe // guarded by mu; by the descriptor of the read end
	ended []*Outlet       // guarded by mu; outlets whose tasks have no process left
}

// pipe is one pipe of a task.
type pipe struct {
	of     *Outlet
	stream output.Stream
	fd     int  // of the read end; -1 once it is closed
	wide   bool // its capacity is wideBytes
	more   bool // reading stopped before it was empty, to give other pipes a turn
}

// Outlet is the output of a task: both pipes and the log that they are copied to.
type Outlet struct {
	pump   *Pump
	mu     sync.Mutex
	writer *output.Writer // guarded by mu
	pipes  [2]*pipe       // their descriptors are guarded by mu
	copies map[output.Stream]*Copy
	direct *direct     // nil: it has pipes
	tail   chan string // the last lines of stderr, once all is read
	silent atomic.Bool // all was read, and it was nothing
}

// New makes a pump. The caller starts Run in a goroutine.
func New(log *slog.Logger) (*Pump, error) {
	p := &Pump{poll: -1, wake: -1, log: log, all: map[int32]*pipe{}}
	var err error
	if p.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(p.poll, unix.EPOLL_CTL_ADD, p.wake, edge(p.wake))
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("runner: make poll of outputs: %w", err)
	}
	return p, nil
}

func (p *Pump) close() {
	for _, fd := range []int{p.poll, p.wake} {
		if fd >= 0 {
			_ = unix.Close(fd) // holds no data
		}
	}
}

// edge asks epoll for one event when fd has bytes to read: now, or when more bytes come.
func edge(fd int) *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)} //nolint:gosec // descriptors are small
}

// Run copies output for as long as the runner lives. The pump of a single task returns when that task has ended.
func (p *Pump) Run() {
	buf := make([]byte, pumpBytes)
	events := make([]unix.EpollEvent, pumpEvents)
	for {
		n, err := unix.EpollWait(p.poll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.log.Error("output of tasks not read any more", "error", err)
			return
		}
		for _, e := range events[:n] {
			if int(e.Fd) == p.wake {
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

// finished closes the logs of ended tasks. Events that epoll returned before were handled already. Last says that
// this is the pump of a single task, which has ended.
func (p *Pump) finished(buf []byte) (last bool) {
	var count [8]byte
	_, _ = unix.Read(p.wake, count[:]) // several wakes count as one
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

// Open makes the pipes for a task's stdout and stderr and returns their write ends. Give makes the task's user the
// owner of a read end, because the user may open it as /dev/stdout. The outlet owns the copies from now on, also
// after an error.
func (p *Pump) Open(w *output.Writer, give func(fd int) error, copies map[output.Stream]*Copy) (*Outlet, []int, error) {
	o := &Outlet{pump: p, writer: w, copies: copies, tail: make(chan string, 1)}
	if len(copies) > 0 {
		if err := o.ownPump(); err != nil {
			CloseCopies(copies)
			return nil, nil, err
		}
	}
	var ends []int
	for i, stream := range []output.Stream{output.Stdout, output.Stderr} {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err == nil {
			o.pipes[i] = &pipe{of: o, stream: stream, fd: fds[0]}
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

// OpenTerminal returns an outlet that reads what a task writes to its terminal, at the end near. The outlet owns near
// and the copies from now on, also after an error.
func (p *Pump) OpenTerminal(w *output.Writer, near int, copies map[output.Stream]*Copy) (*Outlet, error) {
	o := &Outlet{pump: p, writer: w, copies: copies, tail: make(chan string, 1)}
	if len(copies) > 0 {
		if err := o.ownPump(); err != nil {
			CloseCopies(copies)
			_ = unix.Close(near) // nothing was written
			return nil, err
		}
	}
	o.pipes[0] = &pipe{of: o, stream: output.Stdout, fd: near}
	if err := o.pump.watch(o.pipes[0], func(int) error { return nil }); err != nil {
		o.Finish()
		return nil, fmt.Errorf("runner: read a terminal: %w", err)
	}
	return o, nil
}

// watch adds a pipe to those that Run reads.
func (p *Pump) watch(in *pipe, give func(fd int) error) error {
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

// turn reads a pipe that has bytes. If the task's other pipe was not read until empty, its bytes are older and are
// read first. The caller holds the outlet's lock.
func (in *pipe) turn(buf []byte) {
	for _, other := range in.of.pipes {
		if other != nil && other != in && other.more {
			other.drain(buf)
		}
	}
	in.drain(buf)
}

// drain reads a pipe until it is empty, but at most wideBytes.
func (in *pipe) drain(buf []byte) {
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
		in.of.pump.log.Error("output of a task not read before it ends", "error", err)
	}
}

// read copies at most one buffer from a pipe to the log and returns the number of bytes. It closes a pipe that has no
// writer left. The caller holds the outlet's lock.
func (in *pipe) read(buf []byte) int {
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
		_, _ = unix.FcntlInt(uintptr(in.fd), unix.F_SETPIPE_SZ, wideBytes) // fails at the user's limit of pipe pages, which does no harm
	}
	in.of.writer.Write(in.stream, buf[:n])
	if d := in.of.copies[in.stream]; d != nil {
		d.write(in.of.writer.Note, buf[:n])
	}
	return n
}

func (in *pipe) close() {
	p := in.of.pump
	p.mu.Lock()
	delete(p.all, int32(in.fd)) //nolint:gosec // as in watch
	p.mu.Unlock()
	// A child between fork and exec still has the descriptor, so closing it here would not remove it from epoll.
	_ = unix.EpollCtl(p.poll, unix.EPOLL_CTL_DEL, in.fd, nil)
	_ = unix.Close(in.fd) // was only read
	in.fd = -1
}

// Finish reads the rest of the pipes of a task that has no process left, closes its log and returns the last lines of
// its stderr. If there is a rest, the goroutine of Run reads it, so that the order is kept.
func (o *Outlet) Finish() (tail string) {
	o.mu.Lock()
	open := len(o.copies) > 0
	for _, in := range o.pipes {
		open = open || in != nil && in.fd >= 0
	}
	o.mu.Unlock()
	if o.direct != nil {
		return o.direct.finish()
	}
	if !open {
		return o.end(nil)
	}
	o.pump.mu.Lock()
	o.pump.ended = append(o.pump.ended, o)
	o.pump.mu.Unlock()
	if _, err := unix.Write(o.pump.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil && !errors.Is(err, unix.EAGAIN) {
		o.pump.log.Error("pump not woken for the end of a task's output", "error", err)
	}
	if len(o.copies) == 0 {
		return <-o.tail
	}
	return o.awaitTail()
}

// Silent reports whether the task wrote nothing, after Finish. It returns false while a copy of its output hangs.
func (o *Outlet) Silent() bool { return o.silent.Load() }

// end reads the pipes to their ends, first a pipe that was not read until empty, and closes the log.
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
	o.silent.Store(o.writer.Empty())
	if err := o.writer.Close(); err != nil {
		o.pump.log.Warn("output of a task not closed", "error", err)
	}
	return tail
}
