package supervisor

// Clearing away the output of tasks that ended long ago.

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/scratch"
)

const (
	// sweepEvery is how often old output is looked for, and sweepShort how often
	// while less than a shortShare of the file system is free: a daemon whose disk
	// is full takes no work.
	sweepEvery = time.Hour
	sweepShort = time.Minute
	shortShare = 20
	// keepFor is how long output stays after its task was forgotten.
	keepFor = 7 * 24 * time.Hour
	// keepShare is the part of the file system that output may take: a tenth.
	keepShare = 10
	// keepMost bounds the directories, which a restart has to go through.
	keepMost = 100_000
)

func (s *state) sweeps(ctx context.Context) {
	t := time.NewTicker(sweepShort)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			var disk unix.Statfs_t
			if err := unix.Statfs(s.d.dir.Tasks(), &disk); err == nil && !sweepDue(now.Sub(last), disk) {
				continue
			}
			last = now
			if err := s.d.sweep(now, s.unforgotten(ctx)); err != nil {
				s.d.log.WarnContext(ctx, "old output not cleared", "error", err)
			}
		}
	}
}

// sweepDue says whether to look for old output that long after the last time.
func sweepDue(since time.Duration, disk unix.Statfs_t) bool {
	return since >= sweepEvery || disk.Bavail < disk.Blocks/shortShare
}

// unforgotten names the attempts whose end somebody may still ask for; it is
// called outside of Run's goroutine.
func (s *state) unforgotten(ctx context.Context) map[job.Attempt]bool {
	answer := make(chan map[job.Attempt]bool, 1)
	select {
	case s.d.do <- func() { answer <- s.ends.names() }:
		return <-answer
	case <-ctx.Done():
		return nil
	}
}

// kept is the directory of an attempt that ended.
type kept struct {
	path  string
	since time.Time
	size  int64
}

// sweep removes the directories of forgotten attempts, oldest first, as far as
// the bounds want it.
func (d *Driver) sweep(now time.Time, unforgotten map[job.Attempt]bool) error {
	all, total, err := d.kept(unforgotten)
	if err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(d.dir.Tasks(), &disk); err != nil {
		return &fs.PathError{Op: "statfs", Path: d.dir.Tasks(), Err: err}
	}
	most := int64(disk.Blocks) * disk.Bsize / keepShare //nolint:gosec // no disk has 2^63 blocks
	left := len(all)
	for _, k := range all {
		if now.Sub(k.since) < keepFor && total <= most && left <= keepMost {
			return nil
		}
		if err := scratch.Remove(k.path); err != nil {
			d.log.Warn("output not removed", "path", k.path, "error", err)
			continue
		}
		total -= k.size
		left--
	}
	return nil
}

// kept lists what may go, oldest first, and how much it takes.
func (d *Driver) kept(unforgotten map[job.Attempt]bool) ([]kept, int64, error) {
	attempts, err := d.dir.Attempts()
	if err != nil {
		return nil, 0, err
	}
	var all []kept
	var total int64
	for _, a := range attempts {
		if unforgotten[a] || d.lives.of(a) != nil {
			continue
		}
		info, err := os.Lstat(d.dir.Task(a)) // last changed when it ended, or began at the latest
		if err != nil {
			continue
		}
		k := kept{path: d.dir.Task(a), since: info.ModTime(), size: size(d.dir.Task(a))}
		total += k.size
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.since.Compare(b.since) })
	return all, total, nil
}

// size is what a directory takes, without following links.
func size(path string) int64 {
	var n int64
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what has gone takes nothing
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
