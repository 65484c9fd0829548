package store

// How much of the disk is left, and whether that is enough for new work.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// defaultReserve is room for the results of some ten thousand tasks and for
	// the database to rewrite its files meanwhile.
	defaultReserve = 64 << 20
	// leastReserve is room for one memtable, its log and its table.
	leastReserve = 8 << 20
	// reserveShare keeps small file systems of use: 1/50 is 2 %.
	reserveShare = 50
	// roomEvery bounds how often the file system is asked. To ask costs about as
	// much as a write; an old answer takes in work that the disk cannot hold.
	roomEvery = time.Millisecond
)

// room is the last look at the file system of the data directory.
type room struct {
	fs   vfs.FS
	dir  string
	most int64
	last atomic.Pointer[look]
}

type look struct {
	at    time.Time
	free  int64
	least int64
	err   error
}

// Room is nil while there is room for new work, else ErrNoRoom with figures.
func (s *Store) Room() error {
	l := s.room.last.Load()
	if l == nil || time.Since(l.at) >= roomEvery {
		l = s.room.look()
		s.room.last.Store(l)
	}
	switch {
	case l.err != nil:
		return fmt.Errorf("store: free space of %s: %w", s.room.dir, l.err)
	case l.free < l.least:
		return fmt.Errorf("store: %s: %w: %s MiB free, %s MiB are kept for what runs",
			s.room.dir, ErrNoRoom, mib(l.free), mib(l.least))
	}
	return nil
}

func (r *room) look() *look {
	u, err := r.fs.GetDiskUsage(r.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return &look{at: time.Now()} // nothing is known, so nothing is refused
	}
	if err != nil {
		return &look{at: time.Now(), err: err}
	}
	return &look{at: time.Now(), free: clamp(u.AvailBytes), least: reserve(r.most, clamp(u.TotalBytes))}
}

// reserve is what is kept of a file system of total bytes.
func reserve(most, total int64) int64 {
	return min(most, max(leastReserve, total/reserveShare))
}

func clamp(n uint64) int64 { return int64(min(n, 1<<62)) }

func mib(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
