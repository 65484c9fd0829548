package runner

// The guard of a runner as its child: started, and started again if it dies.

import (
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/proc"
)

const (
	// guardPause is the pause before a guard that has died early is started again. It doubles each time, up to
	// guardPauseMost.
	guardPause     = 50 * time.Millisecond
	guardPauseMost = 10 * time.Second
	// guardSettled is how long a guard must have lived to be started again without a pause.
	guardSettled = time.Minute
)

// guardProcess keeps the guard of this runner running. The guard ends tasks whose lease is over if this runner stands
// still. Containers do not die with the runner, and neither do descendants of a task's main process. So the guard waits
// until the runner is dead, and then ends them.
type guardProcess struct {
	command []string    // nil: there is none
	table   *os.File    // of the leases, for the guard; nil: there is none
	self    *os.File    // pidfd of this process, by which the guard sees its end; nil: the kernel has none
	do      chan func() // runs a function in the loop
	needed  func() bool // whether there is any task
	log     *slog.Logger

	guard  int           // its pid; 0: it does not run
	since  time.Duration // when it was started
	pause  time.Duration // before the next start; 0: the last one lived long
	paused bool
}

// keepGuard starts the guard if it does not run, unless it has just died.
func (g *guardProcess) keepGuard() {
	if g.guard != 0 || g.paused || g.command == nil {
		return
	}
	g.since = proc.BootTime()
	p, err := os.StartProcess(g.command[0], g.command, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr, g.table, g.self}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		g.log.Error("guard not started: what tasks leave would outlive this runner", "error", err)
		g.again()
		return
	}
	g.guard = p.Pid
	_ = p.Release() // the loop reaps every child
}

// guardDied starts another guard if there is any task: at once if this one has lived for a while.
func (g *guardProcess) guardDied() {
	g.guard = 0
	if !g.needed() {
		return
	}
	g.log.Warn("guard died, starting another")
	if proc.BootTime()-g.since >= guardSettled {
		g.pause = 0
		g.keepGuard()
		return
	}
	g.again()
}

// again starts the guard after a pause.
func (g *guardProcess) again() {
	g.pause = min(max(2*g.pause, guardPause), guardPauseMost)
	g.paused = true
	time.AfterFunc(g.pause, func() {
		g.do <- func() {
			if g.paused = false; g.needed() {
				g.keepGuard()
			}
		}
	})
}

// openSelf returns a pidfd of this process, or nil if the kernel has none.
func openSelf(log *slog.Logger) *os.File {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		log.Warn("guard goes by the lock file of this runner", "error", err)
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd of this runner")
}
