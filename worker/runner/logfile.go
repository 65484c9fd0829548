package runner

// The log file of a runner. It is rotated when it is full, and kept for a while after the runner's death.

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// logFile writes to standard error, which the daemon has redirected to this runner's log, and rotates that file. A
// slog.Handler serializes its use.
type logFile struct {
	path string // empty: standard error is another file, which is not rotated
	most int64
	size int64
}

// newLogFile rotates the file at path if standard error is that file.
func newLogFile(path string) *logFile {
	f := &logFile{most: protocol.MaxLog}
	named, err1 := os.Stat(path)
	ours, err2 := os.Stderr.Stat()
	if err1 == nil && err2 == nil && os.SameFile(named, ours) {
		f.path, f.size = path, named.Size()
	}
	return f
}

// Write implements io.Writer.
func (f *logFile) Write(p []byte) (int, error) {
	if f.path != "" && f.size+int64(len(p)) > f.most {
		f.rotate()
	}
	f.size += int64(len(p))
	return os.Stderr.Write(p)
}

// rotate moves the log aside and opens a new one. It also redirects stdout and stderr, so that a Go panic goes to the
// new file.
func (f *logFile) rotate() {
	f.size = 0
	if err := os.Rename(f.path, protocol.OlderLog(f.path)); err != nil {
		return // the log was removed: nobody reads it
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
