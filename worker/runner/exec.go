package runner

// Commands beside a running task: in its groups, as its user, with its
// environment, and gone when it is.
//
// They come over a socket of their own, one connection for each. The daemon
// sends an Exec, and with its first byte the descriptors that become standard
// input, output and error, or the one of a terminal that becomes all three. The
// runner answers with an ExecReport that says that the command runs, and with
// one that says how it ended. A daemon that closes the connection ends the
// command.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// maxExecs bounds the commands of one runner.
const maxExecs = 256

// execution is one command, from its request to its end.
type execution struct {
	spawn.ExecOrder

	task     *task
	pid      int
	unwanted bool                     // nobody waits for it any more
	said     chan protocol.ExecReport // the loop's words: that it runs, how it ended
	over     chan struct{}            // closed when it has ended
}

// acceptExecs takes requests for commands until the listener is closed.
func (l *loop) acceptExecs(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Warn("connection for a command not accepted", "error", err)
			continue
		}
		go l.serveExec(conn.(*net.UnixConn))
	}
}

// serveExec is the whole of one connection.
func (l *loop) serveExec(conn *net.UnixConn) {
	defer conn.Close() //nolint:errcheck // the daemon sees it
	if err := protocol.SameUser(conn); err != nil {
		l.log.Warn("connection for a command refused", "error", err)
		return
	}
	m, files, err := protocol.ReadExec(conn)
	if err != nil {
		l.log.Warn("request for a command refused", "error", err)
		closeAll(files)
		return
	}
	x := &execution{ExecOrder: spawn.ExecOrder{Exec: m, Files: files}, said: make(chan protocol.ExecReport, 2), over: make(chan struct{})}
	l.do <- func() { l.beginExec(x) }
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // nothing more is sent: it has closed
	}()
	for {
		select {
		case r := <-x.said:
			frame, err := protocol.Frame(r)
			if err == nil {
				_, err = conn.Write(frame)
			}
			if r.Exited || r.Error != "" {
				return
			}
			if err != nil {
				l.do <- func() { l.endExec(x) }
			}
		case <-gone:
			gone = nil
			l.do <- func() { l.endExec(x) }
			return
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // the command has its own descriptors
	}
}

// beginExec has the command started that a request asks for.
func (l *loop) beginExec(x *execution) {
	t := l.find(x.Attempt)
	switch {
	case t != nil && t.box != nil:
		x.said <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task is a container, and commands in it are its engine's"}
	case t == nil || l.mains[t.pid] != t:
		x.said <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task does not run"}
	case len(l.execs)+l.execing >= maxExecs:
		x.said <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "as many commands run as its node takes at once"}
	case l.execsOf[t.who.UID] >= protocol.MaxUserExecs:
		x.said <- protocol.ExecReport{Code: spawn.CodeOurs, Error: fmt.Sprintf("user %s has %d commands open on its node, as many as one may have", spawn.UserName(t.who), protocol.MaxUserExecs)}
	default:
		x.task = t
		x.PID, x.Task, x.Who, x.Where = t.pid, t.name, t.who, t.where
		l.execing++
		l.execsOf[t.who.UID]++
		go l.starter.RunExec(&x.ExecOrder, func(r spawn.Result) { l.do <- func() { l.execBorn(x, r) } }, x.over)
		time.AfterFunc(l.cfg.Answer, func() {
			if x.Withdraw() {
				x.said <- protocol.ExecReport{Code: spawn.CodeNotExecutable, Error: fmt.Sprintf("directory %s or command %s did not answer within %s on its node", t.where, x.Command[0], l.cfg.Answer)}
			}
		})
		return
	}
	closeAll(x.Files)
}

// execBorn takes note of a command's process, which may be dead already.
func (l *loop) execBorn(x *execution, r spawn.Result) {
	l.execing--
	if r.Err != nil {
		l.execDone(x)
		if x.Withdrawn() {
			return
		}
		refused := &spawn.Refusal{Code: spawn.CodeNotExecutable, Text: r.Err.Error()}
		_ = errors.As(r.Err, &refused) // else as it is
		x.said <- protocol.ExecReport{Code: refused.Code, Error: refused.Text}
		return
	}
	x.pid = r.PID
	x.said <- protocol.ExecReport{PID: r.PID}
	if d, ok := l.early[r.PID]; ok && d.at >= r.From {
		delete(l.early, r.PID)
		l.execExited(x, d.status)
		return
	}
	l.execs[r.PID] = x
	if x.unwanted || l.mains[x.task.pid] != x.task { // it came too late to be ended with it
		l.endExec(x)
	}
}

func (l *loop) execExited(x *execution, status unix.WaitStatus) {
	l.execDone(x)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	x.said <- protocol.ExecReport{Exited: true, Code: code}
	close(x.over)
}

// execDone counts a command no more.
func (l *loop) execDone(x *execution) {
	uid := x.task.who.UID
	if l.execsOf[uid]--; l.execsOf[uid] == 0 {
		delete(l.execsOf, uid)
	}
}

// endExec ends a command that nobody waits for any more, and what it began.
func (l *loop) endExec(x *execution) {
	x.unwanted = true
	x.Withdraw() // if it hangs, it never begins
	if x.pid == 0 || l.execs[x.pid] != x {
		return
	}
	proc.KillTree(x.pid)
}
