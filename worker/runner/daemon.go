package runner

// The connection of the daemon, and when a runner without one ends.

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// maxQueue bounds the reports that wait for the daemon to read them. A daemon that falls further behind is
// disconnected; it finds everything in the next Welcome and on disk.
const maxQueue = 4096

// daemonConn is the connection to the daemon, if one is connected.
type daemonConn struct {
	log  *slog.Logger
	wait time.Duration // how long the runner stays up without tasks and without a daemon
	idle *time.Timer   // fires after wait
	link *link         // nil: no daemon is connected
	left bool          // the last daemon has ended, and was not killed
}

// link is one connection of a daemon.
type link struct {
	conn  net.Conn
	queue chan []byte
}

func newDaemonConn(wait time.Duration, log *slog.Logger) *daemonConn {
	return &daemonConn{log: log, wait: wait, idle: time.NewTimer(wait)}
}

// attach makes k the daemon's connection and closes an older one.
func (d *daemonConn) attach(k *link, w protocol.Welcome) {
	if d.link != nil {
		d.log.Info("daemon replaced by a newer connection")
		d.unlink()
	}
	d.link, d.left = k, false
	d.report(protocol.Report{Welcome: &w})
	go k.write()
}

// detach forgets a connection that broke.
func (d *daemonConn) detach(k *link, err error) {
	if d.link != k {
		return // it was replaced, and closed then
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		d.log.Warn("connection of daemon broke", "error", err)
	}
	d.unlink()
}

func (d *daemonConn) unlink() {
	if d.link == nil {
		return
	}
	close(d.link.queue)
	d.link = nil
	d.restart()
}

// restart resets the idle timer.
func (d *daemonConn) restart() { d.idle.Reset(d.wait) }

// report sends a report, if a daemon is connected.
func (d *daemonConn) report(m protocol.Report) {
	if d.link == nil {
		return
	}
	frame, err := protocol.Frame(m)
	if err != nil {
		d.log.Error("report not sent", "error", err)
		return
	}
	select {
	case d.link.queue <- frame:
	default:
		d.log.Warn("daemon does not read, connection cut")
		_ = d.link.conn.Close() // the daemon sees the broken connection
		d.unlink()
	}
}

// progress reports why a task has no process yet.
func (d *daemonConn) progress(t *task, text string) {
	if t.pid == 0 {
		d.report(protocol.Report{Progress: &protocol.Progress{Attempt: t.name, Detail: contract.Clip(text)}})
	}
}

// accept passes on connections from processes of the runner's own user until the listener is closed.
func accept(listener net.Listener, log *slog.Logger, serve func(*net.UnixConn)) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Warn("connection not accepted", "error", err)
			continue
		}
		if err := protocol.SameUser(conn); err != nil {
			log.Warn("connection refused", "error", err)
			_ = conn.Close() // nothing was written
			continue
		}
		serve(conn.(*net.UnixConn))
	}
}

// read passes the daemon's requests to take until the connection breaks, and returns that error.
func (k *link) read(take func(protocol.Request)) error {
	r := bufio.NewReader(k.conn)
	for {
		m, err := protocol.ReadRequest(r)
		if err != nil {
			return err
		}
		take(m)
	}
}

// write sends queued reports, several in one system call if they are waiting.
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

// reportUnsaved tells the daemon of exits that are not on disk. If this host crashes now they are lost here, but the owners
// of the tasks have them. See docs/adr, ADR 164.
func (d *daemonConn) reportUnsaved(round []*task) {
	for _, t := range round {
		if t.told || t.phase != ended {
			continue
		}
		t.told = true
		exit := t.record.Exit
		d.report(protocol.Report{Ended: &protocol.Ended{Attempt: t.name, Exit: &exit, CPU: t.record.CPU, MaxRSS: t.record.MaxRSS}})
	}
}
