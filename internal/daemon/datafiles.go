package daemon

// Files of the data directory that a running daemon needs. Somebody may delete them while the daemon runs. The daemon and
// its runners then go on with the files that they have open, but tasks cannot start, or a restarted daemon would not find
// the running tasks.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// dataFiles finds files that were there before and are gone now. Its methods are safe for concurrent use.
type dataFiles struct {
	dir string

	mu    sync.Mutex
	seen  map[string]os.FileInfo // guarded by mu; keyed by the path in dir
	locks *protocol.Locks        // guarded by mu
}

func newDataFiles(dir string) *dataFiles {
	return &dataFiles{dir: dir, seen: map[string]os.FileInfo{}, locks: protocol.NewLocks(protocol.Dir(filepath.Join(dir, "run")))}
}

// lost lists the files that are gone, as paths in the data directory.
type lost struct {
	own     []string // files of the daemon itself: what happens now is not on disk
	running []string // files of its runners and tasks
}

func (l lost) any() bool { return len(l.own)+len(l.running) > 0 }

// String says which files are gone; it is empty if none are.
func (l lost) String() string {
	if !l.any() {
		return ""
	}
	return fmt.Sprintf("files of its data directory are gone while the daemon runs: %s", strings.Join(append(l.own, l.running...), ", "))
}

// advice says what to do; it is empty if nothing is gone.
func (l lost) advice() string {
	switch {
	case len(l.own) > 0:
		return "accept no more work here (muster node drain), let running tasks end, and stop the daemon; then put the directory back, or start anew with an empty one as a new host"
	case l.any():
		return "the runner makes them again within seconds; if it cannot, let the tasks that run here end, or cancel them, and restart the daemon, which makes them too but does not find tasks that still run"
	}
	return ""
}

// look checks all files. A file that it has never seen does not count as gone.
func (d *dataFiles) look() (l lost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range []string{"identity.key", "db"} {
		if d.gone(path, path == "db") {
			l.own = append(l.own, path)
		}
	}
	if d.gone("run/tasks", false) { // another directory at this path is just as good
		l.running = append(l.running, "run/tasks")
	}
	for _, path := range d.locks.Lost() {
		l.running = append(l.running, "run/"+filepath.Base(path))
	}
	return l
}

// gone reports whether a file was there at an earlier look and is not there now. With same, a different file at the path
// also counts as gone.
func (d *dataFiles) gone(path string, same bool) bool {
	now, err := os.Stat(filepath.Join(d.dir, path))
	before := d.seen[path]
	if err == nil && before == nil {
		d.seen[path] = now
	}
	return before != nil && (os.IsNotExist(err) || err == nil && same && !os.SameFile(before, now))
}
