package store

// Free space on disk: whether it is enough for new work.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// defaultReserve is enough for the results of some ten thousand tasks, and for the database to rewrite its files
	// meanwhile.
	defaultReserve = 64 << 20
	// leastReserve is enough for one memtable, its log and its table.
	leastReserve = 8 << 20
	// reserveShare makes the reserve of a small file system 1/50 of it, 2 %.
	reserveShare = 50
	// lookEvery is how long an answer of the file system stays valid. Asking costs about as much as a write; an older
	// answer could admit work that the disk cannot hold.
	lookEvery = time.Millisecond
)

// space is the free space of the data directory's file system.
type space struct {
	fs   vfs.FS
	dir  string
	most int64
	last atomic.Pointer[look] // newest answer
}

// look is one answer of the file system.
type look struct {
	at    time.Time
	free  int64 // bytes
	least int64 // bytes, below which new work is refused
	err   error
}

// CheckSpace returns nil if there is space for new work, otherwise ErrNoRoom with figures. The answer may be 1 ms
// old.
func (s *Store) CheckSpace() error {
	l := s.space.last.Load()
	if l == nil || time.Since(l.at) >= lookEvery {
		l = s.space.look()
		s.space.last.Store(l)
	}
	switch {
	case l.err != nil:
		return fmt.Errorf("store: free space of %s: %w", s.space.dir, l.err)
	case l.free >= l.least:
		s.reserve.refill()
	default:
		return fmt.Errorf("store: %s: %w", s.space.dir, noRoomError{l.free, l.least})
	}
	return nil
}

// noRoomError is an ErrNoRoom with figures.
type noRoomError struct{ free, least int64 } // bytes

func (e noRoomError) Error() string {
	return fmt.Sprintf("%v: %s MiB free, %s MiB are kept for running work", ErrNoRoom, mib(e.free), mib(e.least))
}

func (noRoomError) Is(target error) bool { return target == ErrNoRoom }

// WhyNoRoom returns, for people, why there is no space for new work; empty if there is space.
func WhyNoRoom(s *Store) string {
	err := s.CheckSpace()
	if err == nil {
		return ""
	}
	if full, ok := errors.AsType[noRoomError](err); ok {
		return full.Error()
	}
	return "the free space of its data directory cannot be read: " + err.Error()
}

// short reports whether the free space is known, and is less than the space kept for running work, multiplied by times.
func (s *space) short(times int64) bool {
	l := s.look()
	return l.err == nil && l.free < times*l.least
}

func (s *space) look() *look {
	u, err := s.fs.GetDiskUsage(s.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return &look{at: time.Now()} // free space is not known, so nothing is refused
	}
	if err != nil {
		return &look{at: time.Now(), err: err}
	}
	return &look{at: time.Now(), free: clamp(u.AvailBytes), least: leastFree(s.most, clamp(u.TotalBytes))}
}

// leastFree returns how many bytes are kept free on a file system of total bytes.
func leastFree(most, total int64) int64 {
	return min(most, max(leastReserve, total/reserveShare))
}

func clamp(n uint64) int64 { return int64(min(n, 1<<62)) }

func mib(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
