package protocol

// Whether the lock files of living runners are still there.

import (
	"os"
	"slices"

	"github.com/musterhq/muster/worker/runner/proc"
)

// Locks sees which living runners of a directory have lost their lock file. A daemon that starts then does not find them.
type Locks struct {
	dir Dir
	of  map[int]*heldLock // by generation
}

// heldLock is the lock file of a living runner.
type heldLock struct {
	file   os.FileInfo
	pid    int
	ticks  uint64 // start of the process
	missed int    // looks in a row at which it was gone
}

// lockLooks is how many looks in a row must find no lock file of a living runner. One look is not enough, because a
// runner that ends removes the file a moment before.
const lockLooks = 2

// NewLocks returns locks that have seen nothing yet.
func NewLocks(d Dir) *Locks { return &Locks{dir: d, of: map[int]*heldLock{}} }

// Lost looks at all lock files, and returns those that are gone or were replaced while their runner lives.
func (l *Locks) Lost() (paths []string) {
	for n, k := range l.of {
		now, err := os.Stat(l.dir.Lock(n))
		switch {
		case proc.Ended(k.pid) || proc.StartTicks(k.pid) != k.ticks:
			delete(l.of, n)
			continue
		case err == nil && (os.SameFile(k.file, now) || l.isOf(n, k)):
			k.file, k.missed = now, 0
		case err == nil || os.IsNotExist(err):
			k.missed++
		}
		if k.missed >= lockLooks {
			paths = append(paths, l.dir.Lock(n))
		}
	}
	slices.Sort(paths)
	l.find()
	return paths
}

// isOf reports whether a lock file is of this runner, which has made it again.
func (l *Locks) isOf(n int, k *heldLock) bool {
	info, err := l.dir.ReadInfo(n)
	return err == nil && info.PID == k.pid && info.Boot == proc.BootID()
}

// find finds the locks of new runners.
func (l *Locks) find() {
	all, err := l.dir.Generations()
	if err != nil {
		return // there is none
	}
	for _, n := range all {
		file, err := os.Stat(l.dir.Lock(n))
		if l.of[n] != nil || err != nil {
			continue
		}
		info, err := l.dir.ReadInfo(n)
		if err != nil || info.Boot != proc.BootID() {
			continue
		}
		if ticks := proc.StartTicks(info.PID); ticks != 0 && !proc.Ended(info.PID) {
			l.of[n] = &heldLock{file: file, pid: info.PID, ticks: ticks}
		}
	}
}
