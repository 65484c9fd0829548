package runner

// Commands in running tasks (muster exec). A command runs in the task's control groups, as its user and with its
// environment, and is killed when the task has ended. Package protocol describes the request.

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

// maxExecs bounds the commands that run in all tasks of one runner at a time.
const maxExecs = 256

// execution is one command, from its request to its end.
type execution struct {
	spawn.ExecOrder

	task     *task
	pid      int
	unwanted bool                     // its client is gone
	reports  chan protocol.ExecReport // the first says that it runs, the second how it exited
	over     chan struct{}            // closed when it has ended
}

// execs are the commands of a runner. All methods but serve run in the loop.
type execs struct {
	do       chan<- func() // runs a function in the loop
	tasks    *tasks
	spawner  *spawn.Spawner
	inputs   *inputs
	early    earlyDeaths
	answer   time.Duration // how long looking up a command's files may take
	running  map[int]*execution
	starting int
	perUser  map[int]int // commands that run or are being started, by uid
}

// serve handles one connection of the socket of commands, from its request to its end.
func (e *execs) serve(conn *net.UnixConn) error {
	defer conn.Close() //nolint:errcheck // nothing is left to write
	m, files, err := protocol.ReadExec(conn)
	if err != nil {
		closeAll(files)
		return err
	}
	if m.Attach {
		e.inputs.serve(conn, m)
		return nil
	}
	x := &execution{ExecOrder: spawn.ExecOrder{Exec: m, Files: files}, reports: make(chan protocol.ExecReport, 2), over: make(chan struct{})}
	e.do <- func() { e.begin(x) }
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = conn.Read(make([]byte, 1)) // the daemon sends nothing more, so this ends with the connection
	}()
	for {
		select {
		case r := <-x.reports:
			frame, err := protocol.Frame(r)
			if err == nil {
				_, err = conn.Write(frame)
			}
			if r.Exited || r.Error != "" {
				return nil
			}
			if err != nil {
				e.do <- func() { e.end(x) }
			}
		case <-closed:
			e.do <- func() { e.end(x) }
			return nil
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// begin starts the command of a request, or reports why it cannot.
func (e *execs) begin(x *execution) {
	t := e.tasks.find(x.Attempt)
	switch {
	case t != nil && t.container != nil:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task is a container: its container engine runs commands in it"}
	case t == nil || t.phase != running:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task is not running"}
	case len(e.running)+e.starting >= maxExecs:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: fmt.Sprintf("its node already runs %d commands in tasks, which is the limit", maxExecs)}
	case e.perUser[t.who.UID] >= protocol.MaxUserExecs:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: fmt.Sprintf("user %s has %d commands open on its node, which is the limit for a user", spawn.UserName(t.who), protocol.MaxUserExecs)}
	default:
		space, err := t.space.Clone()
		if err != nil {
			x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: err.Error()}
			break
		}
		x.task = t
		x.PID, x.Space, x.Task, x.Who, x.Where = t.pid, space, t.name, t.who, t.where
		e.starting++
		e.perUser[t.who.UID]++
		go e.spawner.RunExec(&x.ExecOrder, func(r spawn.Result) { e.do <- func() { e.started(x, r) } }, x.over)
		time.AfterFunc(e.answer, func() {
			if x.Withdraw() {
				x.reports <- protocol.ExecReport{Code: spawn.CodeNotExecutable, Error: fmt.Sprintf("directory %s or command %s did not answer within %s on its node", t.where, x.Command[0], e.answer)}
			}
		})
		return
	}
	closeAll(x.Files)
}

// started handles the result of a command's start. The process may have ended already.
func (e *execs) started(x *execution, r spawn.Result) {
	e.starting--
	if r.Err != nil {
		e.uncount(x)
		if x.Withdrawn() {
			return
		}
		refused := &spawn.StartError{Code: spawn.CodeNotExecutable, Text: r.Err.Error()}
		_ = errors.As(r.Err, &refused) // any other error is reported with that code
		x.reports <- protocol.ExecReport{Code: refused.Code, Error: refused.Text}
		return
	}
	x.pid = r.PID
	x.reports <- protocol.ExecReport{PID: r.PID}
	if d, ok := e.early.take(r.PID, r.From); ok {
		e.exited(x, d.status)
		return
	}
	e.running[r.PID] = x
	if x.unwanted || x.task.phase != running { // its client or its task is gone
		e.end(x)
	}
}

// reaped handles the exit of a child. It returns false if the child is not a command.
func (e *execs) reaped(pid int, status unix.WaitStatus) bool {
	x := e.running[pid]
	if x != nil {
		delete(e.running, pid)
		e.exited(x, status)
	}
	return x != nil
}

func (e *execs) exited(x *execution, status unix.WaitStatus) {
	e.uncount(x)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	x.reports <- protocol.ExecReport{Exited: true, Code: code}
	close(x.over)
}

// uncount takes a command off its user's count.
func (e *execs) uncount(x *execution) {
	uid := x.task.who.UID
	if e.perUser[uid]--; e.perUser[uid] == 0 {
		delete(e.perUser, uid)
	}
}

// end kills a command whose client is gone, with all its descendants.
func (e *execs) end(x *execution) {
	x.unwanted = true
	x.Withdraw() // a start that hangs makes no process any more
	if x.pid != 0 && e.running[x.pid] == x {
		proc.KillTree(x.pid)
	}
}
