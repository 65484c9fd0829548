package spawn

// The OOM scores of the runner and its tasks. When a host runs out of memory, the kernel should kill a task and not
// the runner, because all tasks die with the runner.

import (
	"os"
	"sync"

	"github.com/musterhq/muster/worker/runner/proc"
)

// lowScore is the lowest score with which a process may still be killed.
const lowScore = "-999"

// oomScore keeps the runner's score low, and starts every child with the score that the runner was started with. A
// child must have that score from its start: if it forks at once, its own children inherit its score.
type oomScore struct {
	mu    sync.Mutex
	file  *os.File // oom_score_adj of this process; nil: it may not be lowered
	tasks []byte   // the score of children
}

// lower lowers the runner's own score, where that is permitted.
func (g *oomScore) lower() {
	const path = "/proc/self/oom_score_adj"
	before, err := proc.ReadBounded(path, proc.MaxSmallFile)
	if err != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	if _, err := f.WriteAt([]byte(lowScore), 0); err != nil {
		_ = f.Close() // nothing was written
		return
	}
	g.file, g.tasks = f, before
}

func (g *oomScore) close() {
	if g.file != nil {
		_ = g.file.Close() // every write was checked
	}
}

// ofTasks makes children start with the score of tasks until back is called. The lock costs nothing: Go runs one fork at
// a time anyway.
func (g *oomScore) ofTasks() (back func()) {
	if g.file == nil {
		return func() {}
	}
	g.mu.Lock()
	_, _ = g.file.WriteAt(g.tasks, 0) // raising the score is always permitted
	return func() {
		_, _ = g.file.WriteAt([]byte(lowScore), 0) // it was permitted before
		g.mu.Unlock()
	}
}
