package daemon

// Files of the data directory that a running daemon needs. Somebody may delete them meanwhile: the daemon and its runners go on
// with what they have open, but no task can start, or the next daemon would not find the tasks of this one.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// dataFiles sees which files are gone that were there before. Its methods are safe for concurrent use.
type dataFiles struct {
	dir string

	mu    sync.Mutex
	seen  map[string]os.FileInfo // guarded by mu; by the path in dir
	locks *protocol.Locks        // guarded by mu
}

func newDataFiles(dir string) *dataFiles {
	return &dataFiles{dir: dir, seen: map[string]os.FileInfo{}, locks: protocol.NewLocks(protocol.Dir(filepath.Join(dir, "run")))}
}

// lost is what is gone, by the paths in the data directory.
type lost struct {
	own     []string // of the daemon itself: what happens now is not on disk
	running []string // of its runners and tasks
}

func (l lost) any() bool { return len(l.own)+len(l.running) > 0 }

// String says what is gone; empty: nothing.
func (l lost) String() string {
	if !l.any() {
		return ""
	}
	return fmt.Sprintf("files of its data directory are gone while the daemon runs: %s", strings.Join(append(l.own, l.running...), ", "))
}

// advice says what to do; empty: nothing is gone.
func (l lost) advice() string {
	switch {
	case len(l.own) > 0:
		return "accept no more work here (muster node drain), let running tasks end, and stop the daemon; then put the directory back, or start anew with an empty one as a new host"
	case l.any():
		return "the runner makes them again within seconds; if it cannot, let the tasks that run here end, or cancel them, and restart the daemon, which makes them too but does not find tasks that still run"
	}
	return ""
}

// look looks at all files. What it has never seen is not gone.
func (d *dataFiles) look() (l lost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range []string{"identity.key", "db"} {
		if d.gone(path, path == "db") {
			l.own = append(l.own, path)
		}
	}
	if d.gone("run/tasks", false) { // another one is as good
		l.running = append(l.running, "run/tasks")
	}
	for _, path := range d.locks.Lost() {
		l.running = append(l.running, "run/"+filepath.Base(path))
	}
	return l
}

// gone reports whether a file was there at an earlier look and is not now. Same says that another file is not as good.
func (d *dataFiles) gone(path string, same bool) bool {
	now, err := os.Stat(filepath.Join(d.dir, path))
	before := d.seen[path]
	if err == nil && before == nil {
		d.seen[path] = now
	}
	return before != nil && (os.IsNotExist(err) || err == nil && same && !os.SameFile(before, now))
}
