package runner

// The log file of a runner. It is rotated when it is full, and kept for a while after the runner's death.

import (
	"io"
	"os"
	"time"

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

// lineQueue passes lines on to a writer in another goroutine, so that logging never waits for the disk.
type lineQueue struct {
	lines   chan []byte   // nil: the last one
	written chan struct{} // closed once nil was received
}

const (
	// maxLines bounds the lines that wait. Further lines are dropped, which happens only while the disk does not answer.
	maxLines = 256
	// closeTime is how long close waits for the disk.
	closeTime = time.Second
)

func newLineQueue(to io.Writer) lineQueue {
	q := lineQueue{lines: make(chan []byte, maxLines), written: make(chan struct{})}
	go func() {
		defer close(q.written)
		for line := <-q.lines; line != nil; line = <-q.lines {
			_, _ = to.Write(line) // there is nowhere to say that it failed
		}
	}()
	return q
}

// Write implements io.Writer.
func (q lineQueue) Write(p []byte) (int, error) {
	select {
	case q.lines <- append([]byte{}, p...):
	default:
	}
	return len(p), nil
}

// close waits until all lines are written, but not for long.
func (q lineQueue) close() {
	late := time.NewTimer(closeTime)
	defer late.Stop()
	select {
	case q.lines <- nil:
	case <-late.C:
		return
	}
	select {
	case <-q.written:
	case <-late.C:
	}
}
