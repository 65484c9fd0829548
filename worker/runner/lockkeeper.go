package runner

// The lock file of a runner, and the directory of all runners: the runner makes them again if somebody removes them.
// Without the lock file the next daemon would not find the runner, and would not know of its tasks.

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/keptsocket"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// lockKeeper holds the lock of this runner.
type lockKeeper struct {
	dir  protocol.Dir
	info protocol.Info
	log  *slog.Logger

	mu   sync.Mutex
	lock *os.File // guarded by mu; nil once it is released
}

// run looks at the files until the process ends or the lock is released. It logs only the first of several failures in a
// row.
func (k *lockKeeper) run() {
	tick := time.NewTicker(keptsocket.Every)
	defer tick.Stop()
	for failed := false; ; <-tick.C {
		again, held, err := k.look()
		switch {
		case !held:
			return
		case again:
			k.log.Warn("files of the runner were removed and are there again", "lock", k.dir.Lock(k.info.Generation))
		case err != nil && !failed:
			k.log.Error("files of the runner were removed and cannot be made again, still trying", "error", err)
		}
		failed = err != nil
	}
}

// look makes the lock file, and the directory of tasks, again if they are gone.
func (k *lockKeeper) look() (again, held bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lock == nil {
		return false, false, nil
	}
	now, err := protocol.Relock(k.dir, k.info, k.lock)
	again = now != k.lock // the earlier one stays locked: somebody may wait for it
	k.lock = now
	if _, gone := os.Stat(k.dir.Tasks()); err == nil && errors.Is(gone, os.ErrNotExist) {
		again, err = true, protocol.MakeAgain(k.dir)
	}
	return again && err == nil, true, err
}

// release deletes the files of this runner. A daemon then takes the runner for dead. If another runner has taken its
// place, the files are that runner's.
func (k *lockKeeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	removeOwn(k.dir, k.info.Generation, k.lock)
	_ = k.lock.Close() // what it says matters no more
	k.lock = nil
}

// removeOwn deletes the files of this runner. If its lock file was deleted, those of its name may be another runner's.
func removeOwn(dir protocol.Dir, generation int, lock *os.File) {
	ours, err1 := lock.Stat()
	named, err2 := os.Stat(dir.Lock(generation))
	if err1 == nil && err2 == nil && os.SameFile(ours, named) {
		_ = dir.Remove(generation) // a daemon that finds the files sees that the lock is free
	}
}
