package runner

// The log of a runner: bounded while it lives, and kept for a while when it is
// dead.

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// logFile writes to standard error, which the daemon has made the log of this
// runner, and begins a new file when it is full. It is used under the lock of a
// slog.Handler.
type logFile struct {
	path string // empty: somebody else's, and left as it is
	most int64
	size int64
}

// newLogFile bounds the log at path, if standard error is it.
func newLogFile(path string) *logFile {
	f := &logFile{most: protocol.MaxLog}
	named, err1 := os.Stat(path)
	ours, err2 := os.Stderr.Stat()
	if err1 == nil && err2 == nil && os.SameFile(named, ours) {
		f.path, f.size = path, named.Size()
	}
	return f
}

// Write writes a line.
func (f *logFile) Write(p []byte) (int, error) {
	if f.path != "" && f.size+int64(len(p)) > f.most {
		f.turn()
	}
	f.size += int64(len(p))
	return os.Stderr.Write(p)
}

// turn begins a new file, also for what the runtime says when the process dies.
func (f *logFile) turn() {
	f.size = 0
	if err := os.Rename(f.path, protocol.OlderLog(f.path)); err != nil {
		return // it has been removed: nobody reads it
	}
	fd, err := unix.Open(f.path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	for _, std := range []int{unix.Stdout, unix.Stderr} {
		_ = unix.Dup3(fd, std, 0) // both are open
	}
	_ = unix.Close(fd)
}
