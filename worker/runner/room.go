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

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/inplace"
)

// segmentBytes is the size at which a new segment begins: some 800 exits, which are read quickly after a restart.
const segmentBytes = 256 << 10

// endBytes is the room for the end of one task: a record with the longest reason, but without the end of its standard
// error.
const endBytes = 2 << 10

// room is the file whose space is allocated. Its methods are safe for concurrent use.
type room struct {
	path string

	mu    sync.Mutex
	bytes int64 // guarded by mu; allocated in the file; 0: there is no file, or nothing is allocated in it
	want  int64 // guarded by mu; what hold was last asked for
}

// openRoom returns the room at a path, where a runner of the same generation may have left a file.
func openRoom(path string) *room { return &room{path: path, want: segmentBytes} }

// hold allocates room for the ends of that many tasks. It makes a system call only if the room has to grow.
func (r *room) hold(tasks int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = max(segmentBytes, (int64(tasks)*endBytes+segmentBytes-1)/segmentBytes*segmentBytes)
	return r.fillLocked()
}

// refill allocates again what was last asked for.
func (r *room) refill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fillLocked()
}

func (r *room) fillLocked() error {
	if r.bytes >= r.want {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		inplace.Set(f.Fd())
		err = allocate(f, r.want)
		_ = f.Close() // nothing was written
	}
	if err != nil {
		return fmt.Errorf("runner: allocate room for the ends of tasks: %w", err)
	}
	r.bytes = r.want
	return nil
}

// take makes the file a segment, empty and with its room. Without a room it makes a new file.
func (r *room) take(segment string) (f *os.File, bytes int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes = r.bytes
	if bytes > 0 && unix.Renameat2(unix.AT_FDCWD, r.path, unix.AT_FDCWD, segment, unix.RENAME_NOREPLACE) == nil {
		r.bytes = 0
		f, err = os.OpenFile(segment, os.O_WRONLY, 0)
		return f, bytes, err
	}
	f, err = os.OpenFile(segment, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return f, 0, err
}

// has reports whether there is room in the file.
func (r *room) has() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes > 0
}

// allocate gives a file that many bytes of the disk without changing its size. A file system that cannot is no error.
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
