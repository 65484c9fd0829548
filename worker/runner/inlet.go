package runner

// The input of one task, and the connection that brings it. A task keeps its pipe or terminal when its client goes, and
// the next connection goes on where the last one has stopped. Package protocol describes the messages.

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// inlet is the input of one task. Only the loop uses client. taken and over belong to the goroutine of the present client;
// the next client gets them when that one is done.
type inlet struct {
	sink     spawn.Sink
	terminal bool
	client   *client
	taken    int64
	over     bool
}

// client is one connection that brings the input of a task.
type client struct {
	conn *net.UnixConn
	in   *inlet
	done chan struct{} // closed when it uses the inlet no more
}

// close ends the input of a task that has ended.
func (n *inlet) close() {
	if n == nil {
		return
	}
	if n.client != nil {
		n.client.stop()
	}
	_ = n.sink.Close() // nobody reads what is in it
}

// stop ends the connection, also while it waits for the task to read. It still reports how much the task took: a key such as
// Ctrl-C may end the task before that report is written.
func (c *client) stop() {
	_ = c.conn.CloseRead()                 // its goroutine notices, and closes it
	_ = c.in.sink.SetWriteDeadline(past()) // a sink that is closed already needs none
}

func past() time.Time { return time.Unix(1, 0) }

// feed writes the input to the task until the connection ends. It calls fed once the task gets no more input.
func (c *client) feed(fed func()) {
	_ = c.in.sink.SetWriteDeadline(time.Time{}) // a sink that is closed needs none
	if tell(c.conn, c.intake()) != nil {
		return
	}
	chunks, written := make(chan []byte, 1), make(chan struct{})
	go func() {
		defer close(written)
		for p := range chunks {
			if !c.write(p, fed) {
				_ = c.conn.Close() // which ends the loop below
			}
		}
	}()
	var bufs [2][protocol.MaxInput]byte // the writer owns one buffer until it has answered; the other is read into
	for i := 0; ; {
		used, ok := c.next(bufs[i][:], chunks)
		if !ok {
			break
		}
		if used {
			i = 1 - i
		}
	}
	_ = c.in.sink.SetWriteDeadline(past()) // what is not written yet does not count as taken
	close(chunks)
	<-written
}

// next reads one frame into buf. It passes bytes on to the writer, which then uses buf. It returns false when the
// connection is over.
func (c *client) next(buf []byte, chunks chan<- []byte) (used, ok bool) {
	kind, p, err := protocol.ReadInput(c.conn, buf)
	if err != nil {
		return false, false
	}
	switch kind {
	case protocol.InputSize:
		if rows, cols := protocol.SizeOf(p); rows > 0 && cols > 0 {
			_ = c.in.sink.Resize(rows, cols) // a terminal that is gone needs no size
		}
		return false, true
	case protocol.InputEnd:
		p = nil
	case protocol.InputBytes:
		if len(p) == 0 {
			return false, true
		}
	default:
		return false, false
	}
	select {
	case chunks <- p:
		return true, true
	default:
		return false, false // the daemon sent more before it had the answer
	}
}

// write writes bytes to the task, or ends its input if there are none, and tells the daemon. It returns false if the
// connection is of no more use.
func (c *client) write(p []byte, fed func()) bool {
	n, err := 0, error(nil)
	switch {
	case c.in.over:
	case p == nil && c.in.terminal: // it stays open: the task also writes to it
	case p == nil:
		err = c.in.sink.CloseWrite()
		c.in.over = true
		fed()
	default:
		n, err = c.in.sink.Write(p)
		c.in.taken += int64(n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.in.over = true // the task has closed its input
			if !c.in.terminal {
				fed()
			}
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	return tell(c.conn, c.intake()) == nil
}

func (c *client) intake() protocol.Intake { return protocol.Intake{Taken: c.in.taken, Over: c.in.over} }

func tell(conn net.Conn, m protocol.Intake) error {
	frame, err := protocol.Frame(m)
	if err == nil {
		_, err = conn.Write(frame)
	}
	return err
}

// inletOf returns the inlet that writes to f, or nil if the process gets no input.
func inletOf(f *os.File, in *protocol.Input) *inlet {
	if f == nil {
		return nil
	}
	return &inlet{sink: fileSink{f, in.TTY}, terminal: in.TTY}
}

// fileSink is a pipe or a terminal.
type fileSink struct {
	*os.File

	terminal bool
}

// CloseWrite closes a pipe.
func (s fileSink) CloseWrite() error { return s.Close() }

func (s fileSink) Resize(rows, cols uint16) error {
	if !s.terminal {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	return errors.Join(err, failed)
}
