package spawn

// The /tmp and the /dev/shm that tasks have of their own.
//
// See docs/adr, ADR 173.

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/runner/private"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/userfile"
)

// tmpMode is the mode of a task's /tmp, the usual one: programs of a task may run as several users.
const tmpMode = 0o1777

// TmpDirs makes the directories that are the /tmp of tasks, and mounts them. Its methods are safe for concurrent use.
type TmpDirs struct {
	dir    string // that only this process's user can enter: a task reaches its directory by its mount alone
	mounts *private.Mounter
	log    *slog.Logger

	mu    sync.Mutex
	spare []*TmpDir // guarded by mu; empty ones of ended tasks, the oldest first
	last  int       // guarded by mu; number of the newest
}

// TmpDir is the /tmp of one task.
type TmpDir struct {
	Path string // outside of the task

	who    spareOwner
	made   bool          // it exists: another task has had it
	task   string        // name of its attempt
	kept   *private.Kept // of the host's
	memory int64         // limit of the task's memory; 0: none
	names  []string      // in it, for what is kept
}

// newTmpDirs makes tasks of runner n have directories of their own. The error says why they share those of the host.
func newTmpDirs(d protocol.Dir, n int, spaces *pidspace.Maker, log *slog.Logger) (*TmpDirs, error) {
	m, err := private.New(string(d))
	if err != nil {
		return nil, err
	}
	ts := &TmpDirs{dir: protocol.Tmps(d, n), mounts: m, log: log}
	if err := os.MkdirAll(ts.dir, scratchMode); err != nil {
		return nil, fmt.Errorf("directory of tasks' /tmp: %w", err)
	}
	if err := ts.try(spaces); err != nil {
		ts.close()
		return nil, err
	}
	return ts, nil
}

// try makes and mounts directories once without a task, to see whether that works.
func (ts *TmpDirs) try(spaces *pidspace.Maker) error {
	t, err := ts.take(spareOwner{})
	if err != nil {
		return err
	}
	t.kept = ts.mounts.Keep(os.Geteuid())
	err = onThread(func() error { return spaces.Within(t.mount) })
	if !ts.Spare(t) && err == nil {
		err = fmt.Errorf("%s is not empty after a try", t.Path)
	}
	return err
}

// take returns a directory for a task of a user.
func (ts *TmpDirs) take(who spareOwner) (*TmpDir, error) {
	for {
		t := ts.pick(who)
		if t.made {
			if _, err := os.Lstat(t.Path); err != nil {
				continue // somebody has removed it
			}
			return t, nil
		}
		err := unix.Mkdir(t.Path, scratchMode)
		if errors.Is(err, unix.ENOENT) { // somebody has removed the directory that it is in
			if err = os.Mkdir(ts.dir, scratchMode); err == nil || errors.Is(err, os.ErrExist) {
				err = unix.Mkdir(t.Path, scratchMode)
			}
		}
		if errors.Is(err, unix.EEXIST) { // a dead runner of this generation has left it
			continue
		}
		if err == nil {
			err = unix.Chmod(t.Path, tmpMode)
		}
		if err != nil {
			return nil, fmt.Errorf("directory of a task's /tmp: %w", err)
		}
		return t, nil
	}
}

// pick returns the newest spare directory of a user, or else one that is not made yet.
func (ts *TmpDirs) pick(who spareOwner) *TmpDir {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i, t := range slices.Backward(ts.spare) {
		if t.who == who {
			ts.spare = slices.Delete(ts.spare, i, i+1)
			return t
		}
	}
	ts.last++
	return &TmpDir{Path: filepath.Join(ts.dir, strconv.Itoa(ts.last)), who: who}
}

// Spare keeps the directory of a task that has ended for another task of its user, and returns true, if it is as good as
// new. Otherwise the caller removes it.
func (ts *TmpDirs) Spare(t *TmpDir) bool {
	err := private.Clear(t.Path, t.names)
	if err != nil || !asNew(t.Path, Account{UID: os.Geteuid(), GID: os.Getegid()}, tmpMode) {
		return false
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.spare) >= maxSpares {
		_ = unix.Rmdir(ts.spare[0].Path) // it is empty
		ts.spare = slices.Delete(ts.spare, 0, 1)
	}
	ts.spare = append(ts.spare, &TmpDir{Path: t.Path, who: t.who, made: true})
	return true
}

// close removes the directories that no task has.
func (ts *TmpDirs) close() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.spare {
		_ = unix.Rmdir(t.Path) // it is empty
	}
	ts.spare = nil
	_ = unix.Rmdir(ts.dir) // the daemon removes what tasks have left in it
}

// mount mounts the task's directories. The thread must have entered the namespaces of the task.
func (t *TmpDir) mount() (err error) {
	t.names, err = t.kept.Mount(t.Path, t.memory)
	return err
}

// give gives the launch a /tmp. All else in the launch must be set before. A task that gets no /tmp shares that of the
// host.
func (ts *TmpDirs) give(o *Order, l *launch) {
	t, err := ts.take(l.who.spareOwner())
	if err != nil {
		ts.log.Warn("task shares the /tmp of the host", "attempt", o.Name, "error", err)
		return
	}
	t.task, t.memory, t.kept = o.Name, int64(o.Start.Limits.Memory), ts.mounts.Keep(l.who.UID)
	for _, path := range o.Start.Shared {
		t.kept.Path(path)
	}
	t.kept.Path(l.workdir.resolved())
	for _, path := range l.programs {
		t.kept.Path(path)
	}
	t.kept.Words(l.argv)
	t.kept.Words(l.attr.Env)
	t.kept.Words([]string{"/tmp/muster-" + strconv.Itoa(l.who.UID) + "/"}) // where a daemon of the user's own has its socket
	l.tmp = t
}

// takeBack takes the /tmp back from a launch that has made no process.
func (ts *TmpDirs) takeBack(l *launch) {
	if l.tmp != nil && !ts.Spare(l.tmp) {
		ts.log.Warn("directory of a task's /tmp stays until this runner has ended", "path", l.tmp.Path)
	}
}

// resolved returns the path of the directory without symbolic links; empty: it is the scratch directory.
func (w workdir) resolved() string {
	if w.fd < 0 {
		return ""
	}
	return cmp.Or(userfile.PathOf(w.fd), w.path)
}
