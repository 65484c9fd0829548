package runner

// Commands in running tasks: in a task's control groups, as its user, with its environment, and killed when the task
// has ended. Package protocol says how they are asked for.

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
	reports  chan protocol.ExecReport // that it runs, and how it ended
	over     chan struct{}            // closed when it has ended
}

// execs are the commands of a runner. All its methods but serve run in the loop.
type execs struct {
	do       chan<- func() // runs a function in the loop
	tasks    *tasks
	spawner  *spawn.Spawner
	early    earlyDeaths
	answer   time.Duration // how long the files of a command may take to answer
	running  map[int]*execution
	starting int
	perUser  map[int]int // commands that run or are being started, by uid
}

// serve is the whole of one connection.
func (e *execs) serve(conn *net.UnixConn) error {
	defer conn.Close() //nolint:errcheck // the daemon sees it
	m, files, err := protocol.ReadExec(conn)
	if err != nil {
		closeAll(files)
		return err
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

// begin has the command started that a request asks for.
func (e *execs) begin(x *execution) {
	t := e.tasks.find(x.Attempt)
	switch {
	case t != nil && t.box != nil:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task is a container, and commands in it are its engine's"}
	case t == nil || t.phase != running:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "the task does not run"}
	case len(e.running)+e.starting >= maxExecs:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: "as many commands run as its node takes at once"}
	case e.perUser[t.who.UID] >= protocol.MaxUserExecs:
		x.reports <- protocol.ExecReport{Code: spawn.CodeOurs, Error: fmt.Sprintf("user %s has %d commands open on its node, as many as one may have", spawn.UserName(t.who), protocol.MaxUserExecs)}
	default:
		x.task = t
		x.PID, x.Task, x.Who, x.Where = t.pid, t.name, t.who, t.where
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

// started notes that a command has a process, which may have ended already.
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
	if x.unwanted || x.task.phase != running { // it started too late to be ended with its task
		e.end(x)
	}
}

// reaped notes the end of a process, if it is that of a command.
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

// uncount takes a command off the count of its user.
func (e *execs) uncount(x *execution) {
	uid := x.task.who.UID
	if e.perUser[uid]--; e.perUser[uid] == 0 {
		delete(e.perUser, uid)
	}
}

// end kills a command that nobody waits for any more, and its descendants.
func (e *execs) end(x *execution) {
	x.unwanted = true
	x.Withdraw() // if its start hangs, there will be no process
	if x.pid != 0 && e.running[x.pid] == x {
		proc.KillTree(x.pid)
	}
}
