package runner

// The runner's unix socket: who may connect, and the two goroutines of a
// connection.

import (
	"bufio"
	"errors"
	"net"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// maxQueue bounds the reports that a daemon has not read; one that does not
// read is cut off, and finds everything in the next Welcome and on disk.
const maxQueue = 4096

// link is one connection of a daemon.
type link struct {
	conn  net.Conn
	queue chan []byte
}

// accept takes connections until the listener is closed.
func (l *loop) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Warn("connection not accepted", "error", err)
			continue
		}
		if err := protocol.SameUser(conn); err != nil {
			l.log.Warn("connection refused", "error", err)
			_ = conn.Close() // nothing was said
			continue
		}
		k := &link{conn: conn, queue: make(chan []byte, maxQueue)}
		l.do <- func() { l.attach(k) }
	}
}

// read passes a daemon's requests on until the connection breaks.
func (l *loop) read(k *link) {
	r := bufio.NewReader(k.conn)
	for {
		m, err := protocol.ReadRequest(r)
		if err != nil {
			l.do <- func() { l.detach(k, err) }
			return
		}
		l.do <- func() { l.request(k, m) }
	}
}

// write sends what is queued, several reports in one system call.
func (k *link) write() {
	w := bufio.NewWriter(k.conn)
	for frame := range k.queue {
		_, err := w.Write(frame)
		if err == nil && len(k.queue) == 0 {
			err = w.Flush()
		}
		if err != nil {
			_ = k.conn.Close()  // the reader sees it and detaches
			for range k.queue { // until detached
			}
			return
		}
	}
	_ = k.conn.Close() // detached
}
