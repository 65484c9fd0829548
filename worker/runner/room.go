package runner

// Room for the ends of tasks: disk space that is allocated before a task starts, so that its end can be saved on a full
// disk. It is one file, which becomes the next segment of the exit journal.
//
// See docs/adr, ADR 156.

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/inplace"
)

// segmentBytes is the size at which a new segment begins: some 800 exits, which are read quickly after a restart.
const segmentBytes = 256 << 10

// endBytes is the room for the end of one task: a record with the longest reason, but without the end of its standard
// error.
const endBytes = 2 << 10

// holdTime is how long a start waits for room. All that the runner does waits with it.
const holdTime = time.Second

// errHangs says that the room could not be allocated in time.
var errHangs = errors.New("runner: allocate room for the ends of tasks: the disk of the data directory does not answer")

// room is the file whose space is allocated. Its methods but hold are safe for concurrent use.
type room struct {
	path    string
	holding chan error // of a hold that has not returned in time; nil: none

	mu    sync.Mutex   // of the file
	bytes atomic.Int64 // allocated in the file; 0: there is no file, or nothing is allocated in it
	want  atomic.Int64 // what hold was last asked for
}

// openRoom returns the room at a path, where a runner of the same generation may have left a file.
func openRoom(path string) *room {
	r := &room{path: path}
	r.want.Store(segmentBytes)
	return r
}

// hold allocates room for the ends of this many tasks. It makes a system call only if the room has to grow, and waits at
// most holdTime for it.
func (r *room) hold(tasks int) error {
	want := max(segmentBytes, (int64(tasks)*endBytes+segmentBytes-1)/segmentBytes*segmentBytes)
	r.want.Store(want)
	if r.bytes.Load() >= want {
		return nil
	}
	if r.holding != nil {
		select {
		case <-r.holding: //nolint:errcheck // the file is looked at again below
			r.holding = nil
		default:
			return errHangs
		}
	}
	done := make(chan error, 1)
	go func() { done <- r.refill() }()
	late := time.NewTimer(holdTime)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		r.holding = done
		return errHangs
	}
}

// refill allocates again what was last asked for.
func (r *room) refill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fillLocked()
}

func (r *room) fillLocked() error {
	want := r.want.Load()
	if r.bytes.Load() >= want {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		inplace.Set(f.Fd())
		err = allocate(f, want)
		_ = f.Close() // nothing was written
	}
	if err != nil {
		return fmt.Errorf("runner: allocate room for the ends of tasks: %w", err)
	}
	r.bytes.Store(want)
	return nil
}

// take makes the file a segment, empty and with its room. If no room is allocated, it makes a new file.
func (r *room) take(segment string) (f *os.File, bytes int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes = r.bytes.Load()
	if bytes > 0 {
		err = unix.Renameat2(unix.AT_FDCWD, r.path, unix.AT_FDCWD, segment, unix.RENAME_NOREPLACE)
		if err == nil || errors.Is(err, unix.ENOENT) { // or somebody has removed it
			r.bytes.Store(0)
		}
		if err == nil {
			f, err = os.OpenFile(segment, os.O_WRONLY, 0)
			return f, bytes, err
		}
	}
	f, err = os.OpenFile(segment, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return f, 0, err
}

// has reports whether there is room in the file.
func (r *room) has() bool { return r.bytes.Load() > 0 }

// allocate gives a file that many bytes of the disk without changing its size. It is no error if the file system cannot
// do that.
func allocate(f *os.File, bytes int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil
		}
		return err
	}
}

// diskFull reports whether an error says that a disk or a quota is used up.
func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
