package scratch

// Measuring the scratch directories of tasks, and removing them.

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// restFactor bounds the CPU time that measuring takes: a directory that took one second to measure is not
	// measured again for 50 seconds.
	restFactor = 50
	// latest is when a directory is measured again even if the disk did not fill up: other processes may have freed
	// as much as the task has written.
	latest = time.Minute
)

// Clear removes the scratch directory of an attempt that has ended. Files to keep have to be copied before.
func Clear(d protocol.Dir, a job.Attempt) error {
	path := d.Scratch(a)
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return nil // most tasks leave nothing
	}
	if err := Remove(path); err != nil {
		return fmt.Errorf("scratch: remove directory of %s: %w", a, err)
	}
	return nil
}

// Bounded is a scratch directory that may hold at most Bound bytes.
type Bounded struct {
	Attempt job.Attempt
	Path    string
	Bound   job.Size
}

// Meter finds scratch directories that exceed their limits. It remembers earlier measurements. It is not safe for
// concurrent use.
type Meter struct {
	last map[job.Attempt]*measurement
}

// measurement is the last measurement of one directory.
type measurement struct {
	used job.Size
	deep bool          // it has more than maxDepth levels
	at   time.Time     // when it was measured
	disk int64         // bytes in use on the whole disk at that time
	rest time.Duration // the next measurement is not before at + rest
}

// due reports whether a directory may exceed its limit now. It can have grown at most by as much as the whole disk
// has filled up, unless files elsewhere were deleted.
func (m *measurement) due(now time.Time, disk int64, bound job.Size) bool {
	if now.Sub(m.at) < m.rest {
		return false
	}
	return disk-m.disk >= int64(bound-m.used)/2 || now.Sub(m.at) >= latest
}

func (m *measurement) take(path string, now time.Time, disk int64) {
	m.used, m.deep = sizeOf(path)
	m.at, m.disk = now, disk
	m.rest = time.Since(now) * restFactor
}

// Measure measures the directories that may have outgrown their limits, and calls over for each that has, with the
// reason for people. All of them lie on the disk of the directory parent. It forgets directories that are not in all.
func (m *Meter) Measure(parent string, all []Bounded, now time.Time, over func(a job.Attempt, why string)) {
	var fs unix.Statfs_t
	if err := unix.Statfs(parent, &fs); err != nil {
		return // the next call tries again
	}
	disk := int64(fs.Blocks-fs.Bfree) * fs.Bsize //nolint:gosec // no disk has 2^63 bytes
	before := m.last
	m.last = make(map[job.Attempt]*measurement, len(all))
	for _, b := range all {
		d := before[b.Attempt]
		if d == nil {
			d = &measurement{at: now.Add(-latest)}
		}
		m.last[b.Attempt] = d
		if !d.due(now, disk, b.Bound) {
			continue
		}
		d.take(b.Path, now, disk)
		switch {
		case d.used > b.Bound:
			over(b.Attempt, fmt.Sprintf("scratch quota of %s exceeded: %s used", b.Bound, d.used))
		case d.deep:
			over(b.Attempt, fmt.Sprintf("its scratch directory is over %d directories deep", maxDepth))
		}
	}
}
