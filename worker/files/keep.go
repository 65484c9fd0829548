package files

// Keeping the files that a job asked for when its task has ended.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"sync"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/userfile"
)

// about describes the kept files of an attempt that has ended.
type about struct {
	User string `json:"user"`
	// Container says that the task was a container.
	Container bool `json:"container,omitempty"`
	// Workdir, if not empty, is the task's working directory, which still holds its files. Then none were moved.
	Workdir string   `json:"workdir,omitempty"`
	Kept    int      `json:"kept"`              // matches that were moved
	Missing []string `json:"missing,omitempty"` // globs that nothing matched
	Problem string   `json:"problem,omitempty"` // why some files could not be kept
}

// keeper keeps files of tasks that have ended.
type keeper struct {
	cfg Config
	log *slog.Logger

	mu    sync.Mutex
	looks map[string]*sync.Mutex // guarded by mu; by user: held while one goroutine looks at what is kept for that user
}

// turn waits until no other goroutine looks at what is kept for the user. A look may read a million names, and looks of
// several ended tasks at the same time would each keep a thread.
func (k *keeper) turn(user string) (end func()) {
	k.mu.Lock()
	if k.looks == nil {
		k.looks = map[string]*sync.Mutex{}
	}
	look := k.looks[user]
	if look == nil {
		look = &sync.Mutex{}
		k.looks[user] = look // no more than there are accounts
	}
	k.mu.Unlock()
	look.Lock()
	return look.Unlock
}

// keep moves the files that the job's globs match out of the scratch directory, which is removed, to a directory that
// is kept as long as the task's output. A move is a rename and costs nothing, whatever the size. If the task has a
// working directory of its own, the files stay there.
func (k *keeper) keep(t driver.Task, e driver.Event) {
	a := t.Attempt
	if len(t.Spec.Download) == 0 || e.Kind == driver.Failed {
		return
	}
	if _, err := os.Lstat(k.cfg.about(a)); err == nil {
		return // an earlier daemon has done this
	}
	say := about{User: t.User, Container: t.Spec.Image != "", Workdir: workdir(t.Spec)}
	if say.Workdir == "" {
		err := k.room(t.User, a)
		if err == nil {
			say.Kept, say.Missing, err = k.move(a, t.Spec.Download)
		}
		if err != nil {
			say.Problem = err.Error()
			k.log.Warn("files of attempt not kept", "attempt", a.String(), "user", t.User, "error", err)
		}
	}
	if err := writeJSON(k.cfg.about(a), say); err != nil {
		k.log.Warn("description of kept files not written", "attempt", a.String(), "error", err)
	}
}

// room returns an error if the user keeps too much here. The files of a task that was ended for a full disk must not fill
// it further: a user may keep at most as much as remains free for others. Usually the numbers of the disk already show
// that, and the kept files need not be measured.
func (k *keeper) room(user string, a job.Attempt) error {
	size := scratch.SizeOf(k.cfg.scratch(a))
	free, used, err := k.disk()
	if err != nil || size <= smallKept || used <= free {
		return err // what is kept for the user, with this, is a part of what is used
	}
	defer k.turn(user)()
	if free, _, err = k.disk(); err != nil || size+scratch.KeptOf(protocol.Dir(k.cfg.Dir).Tasks(), user) <= free {
		return err
	}
	return fmt.Errorf("the disk of its node has %s free: its files of %s, and what else user %s keeps there, would not leave as much for others", free, size, user)
}

// disk returns how much of the disk is free for users, and how much is used.
func (k *keeper) disk() (free, used job.Size, err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(protocol.Dir(k.cfg.Dir).Tasks(), &disk); err != nil {
		return 0, 0, fmt.Errorf("files: free space: %w", err)
	}
	block := job.Size(disk.Bsize)
	return job.Size(disk.Bavail) * block, job.Size(disk.Blocks-disk.Bfree) * block, nil //nolint:gosec // no disk has 2^63 bytes
}

// smallKept is how much a task may always keep.
const smallKept = 1 << 20

// move moves what globs match. It returns the number of matches, the globs without a match, and the errors of those
// that failed; an error does not stop the rest. No process of the task is left, but its user may have others.
func (k *keeper) move(a job.Attempt, globs []string) (kept int, missing []string, err error) {
	owner, err := makeKept(k.cfg.kept(a), k.cfg.scratch(a))
	if err != nil {
		return 0, nil, err
	}
	err = userfile.As(owner, func(t userfile.Thread) error {
		from, err := t.OpenRoot(k.cfg.scratch(a))
		if err != nil {
			return fmt.Errorf("files: %w", err)
		}
		defer from.Close() //nolint:errcheck // a directory
		to, err := t.OpenRoot(k.cfg.kept(a))
		if err != nil {
			return fmt.Errorf("files: %w", err)
		}
		defer to.Close() //nolint:errcheck // a directory
		kept, missing, err = moveMatches(from, to, globs)
		return err
	})
	return kept, missing, err
}

// moveMatches moves what globs match from one directory to another.
func moveMatches(from, to *os.Root, globs []string) (kept int, missing []string, err error) {
	var errs []error
	for _, glob := range globs {
		names, err := match(from, glob)
		if err != nil {
			errs = append(errs, err)
		}
		if len(names) == 0 {
			// An earlier glob or an earlier daemon may have moved the match.
			if before, err := match(to, glob); err != nil || len(before) == 0 {
				missing = append(missing, glob)
			}
		}
		for _, name := range names {
			if err := moveOne(from, to, name); err != nil {
				errs = append(errs, err)
				continue
			}
			kept++
		}
	}
	return kept, missing, errors.Join(errs...)
}

// makeKept makes the directory for the files that are kept. The owner of the scratch directory owns it, and nobody else
// may enter it. makeKept returns the owner's rights.
func makeKept(dir, scratch string) (userfile.Rights, error) {
	var is unix.Stat_t
	if err := unix.Lstat(scratch, &is); err != nil {
		return nil, fmt.Errorf("files: %w", &fs.PathError{Op: "stat", Path: scratch, Err: err})
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("files: %w", err)
	}
	if err := os.Lchown(dir, int(is.Uid), int(is.Gid)); err != nil {
		return nil, fmt.Errorf("files: %w", err)
	}
	if int(is.Uid) == os.Geteuid() {
		return nil, nil
	}
	return &syscall.Credential{Uid: is.Uid, Gid: is.Gid}, nil
}

// moveOne moves a file, link or directory to the same path in another directory.
func moveOne(from, to *os.Root, name string) error {
	if name == "." {
		return moveAll(from, to)
	}
	if _, err := from.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil // moved with the directory that it is in
	}
	parent := path.Dir(name)
	if err := to.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("files: keep %s: %w", name, err)
	}
	source, err := openDirectory(from, parent)
	if err != nil {
		return fmt.Errorf("files: keep %s: %w", name, err)
	}
	defer source.Close()
	target, err := openDirectory(to, parent)
	if err != nil {
		return fmt.Errorf("files: keep %s: %w", name, err)
	}
	defer target.Close()
	// Relative to open directories, so that a link put in the path meanwhile cannot redirect the move.
	if err := unix.Renameat(int(source.Fd()), path.Base(name), int(target.Fd()), path.Base(name)); err != nil {
		return fmt.Errorf("files: keep %s: %w", name, err)
	}
	return nil
}

func moveAll(from, to *os.Root) error {
	entries, err := fs.ReadDir(directories{from}, ".")
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, moveOne(from, to, e.Name()))
	}
	return errors.Join(errs...)
}

// writeJSON writes a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = renameio.WriteFile(path, b, 0o600)
	}
	return err
}

func (c Config) readAbout(a job.Attempt) (about, error) {
	var say about
	b, err := os.ReadFile(c.about(a))
	if errors.Is(err, fs.ErrNotExist) {
		return say, ErrNone
	}
	if err == nil {
		err = json.Unmarshal(b, &say)
	}
	if err != nil {
		return say, fmt.Errorf("files: %w", err)
	}
	return say, nil
}
