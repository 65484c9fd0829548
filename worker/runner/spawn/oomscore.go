package spawn

// The OOM scores of the runner and its tasks. When a host runs out of memory the kernel
// shall kill a task, and not the runner, with which all tasks would die.

import (
	"os"
	"sync"
	"syscall"

	"github.com/musterhq/muster/worker/runner/proc"
)

// guardedScore is the least likely to be killed, short of never.
const guardedScore = "-999"

// oomScore keeps the runner's score low, and gives every child the one that the
// runner was started with: from its birth, as a child that forks at once would
// hand a low one on.
type oomScore struct {
	mu    sync.Mutex
	score *os.File // of this process; nil: it may not be lowered
	tasks []byte   // what children have
}

// up lowers the runner's own score, where that is permitted.
func (g *oomScore) up() {
	const path = "/proc/self/oom_score_adj"
	before, err := proc.ReadBounded(path, proc.MaxSmallFile)
	if err != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	if _, err := f.WriteAt([]byte(guardedScore), 0); err != nil {
		_ = f.Close() // nothing was written
		return
	}
	g.score, g.tasks = f, before
}

func (g *oomScore) close() {
	if g.score != nil {
		_ = g.score.Close() // every write was seen to
	}
}

// fork makes a process. Forks wait for each other in any case.
func (g *oomScore) fork(l *launch) (int, error) {
	path, argv := l.program()
	if g.score == nil {
		return syscall.ForkExec(path, argv, &l.attr)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = g.score.WriteAt(g.tasks, 0)             // to raise it is always permitted
	defer g.score.WriteAt([]byte(guardedScore), 0) //nolint:errcheck // it was permitted before
	return syscall.ForkExec(path, argv, &l.attr)
}
