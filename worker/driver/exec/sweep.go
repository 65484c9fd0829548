package execdriver

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
)

const (
	// sweepEvery is how often old output is looked for.
	sweepEvery = time.Hour
	// keepFor is how long output stays after its task was forgotten.
	keepFor = 7 * 24 * time.Hour
	// keepShare is the part of the file system that output may take: a tenth.
	keepShare = 10
	// keepMost bounds the directories, which a restart has to go through.
	keepMost = 100_000
)

func (d *Driver) sweeps(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if err := d.sweep(now); err != nil {
				d.log.WarnContext(ctx, "old output not cleared", "error", err)
			}
		}
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
func (d *Driver) sweep(now time.Time) error {
	all, total, err := d.kept()
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
		if err := os.RemoveAll(k.path); err != nil {
			d.log.Warn("output not removed", "path", k.path, "error", err)
			continue
		}
		total -= k.size
		left--
	}
	return nil
}

// kept lists what may go, oldest first, and how much it takes.
func (d *Driver) kept() ([]kept, int64, error) {
	attempts, err := d.dir.Attempts()
	if err != nil {
		return nil, 0, err
	}
	var all []kept
	var total int64
	for _, a := range attempts {
		since, ok := d.over(a)
		if !ok {
			continue
		}
		k := kept{path: d.dir.Task(a), since: since, size: size(d.dir.Task(a))}
		total += k.size
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.since.Compare(b.since) })
	return all, total, nil
}

// over says since when nobody counts on an attempt's directory: its end was
// forgotten, or was never known and nothing has it.
func (d *Driver) over(a job.Attempt) (time.Time, bool) {
	if d.lives.of(a) != nil {
		return time.Time{}, false
	}
	if _, err := os.Lstat(d.dir.Exit(a)); err == nil {
		return time.Time{}, false
	}
	for _, path := range []string{d.dir.Ended(a), d.dir.Task(a)} {
		if info, err := os.Lstat(path); err == nil {
			return info.ModTime(), true
		}
	}
	return time.Time{}, false
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
