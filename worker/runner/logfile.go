package runner

// The log of a runner: bounded while it lives, and kept for a while when it is
// dead.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// MaxLog bounds the log of a runner, in bytes: at that size it becomes the
	// older half, in place of the one before.
	MaxLog = 4 << 20
	// KeptLogs is how many dead runners' logs are kept, for whoever wants to know
	// why they died.
	KeptLogs = 3
)

// older is where the log goes that is full.
func older(path string) string { return path + ".1" }

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
	f := &logFile{most: MaxLog}
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
	if err := os.Rename(f.path, older(f.path)); err != nil {
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

// ClearLogs removes the logs of dead runners but the newest few. One that is
// just starting has no lock file either, but is among those.
func (d Dir) ClearLogs() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("runner: list %s: %w", d, err)
	}
	var logs []int
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), ".log")
		name, isRunner := strings.CutPrefix(name, "runner-")
		n, err := strconv.Atoi(name)
		if err != nil || !isLog || !isRunner {
			continue
		}
		if _, err := os.Lstat(d.Lock(n)); errors.Is(err, os.ErrNotExist) {
			logs = append(logs, n)
		}
	}
	slices.Sort(logs)
	for _, n := range logs[:max(0, len(logs)-KeptLogs)] {
		err = errors.Join(err, gone(os.Remove(older(d.Log(n)))), gone(os.Remove(d.Log(n))))
	}
	return err
}
