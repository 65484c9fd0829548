package supervisor

// Deleting the output of tasks that ended long ago.

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

const (
	// sweepEvery is how often old output is looked for. It is sweepShort while less than 1/shortShare of the file
	// system is free, because a daemon whose disk is full accepts no work.
	sweepEvery = time.Hour
	sweepShort = time.Minute
	shortShare = 20
	// KeepFor is how long output is kept after its task was forgotten.
	KeepFor = 7 * 24 * time.Hour
	// keepShare bounds the disk space of output to 1/keepShare of the file system.
	keepShare = 10
	// keepMost bounds the number of directories, because a restart reads all of them.
	keepMost = 100_000
)

// sweeper deletes the directories of attempts.
type sweeper struct {
	dir      protocol.Dir
	activity *activity
	log      *slog.Logger
	// unforgotten returns the attempts whose exits are still needed, or whose directories later attempts may take.
	unforgotten func(ctx context.Context) map[job.Attempt]bool
}

// run sweeps from time to time. It waits for ready first, because before that a running task may be unknown.
func (s *sweeper) run(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	t := time.NewTicker(sweepShort)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			var disk unix.Statfs_t
			if err := unix.Statfs(s.dir.Tasks(), &disk); err == nil && !sweepDue(now.Sub(last), disk) {
				continue
			}
			last = now
			if err := s.look(ctx, now); err != nil {
				s.log.WarnContext(ctx, "old output not cleared", "error", err)
			}
		}
	}
}

// look sweeps with the attempts that are unforgotten now. If ctx has ended, these cannot be known, so nothing is removed.
func (s *sweeper) look(ctx context.Context, now time.Time) error {
	unforgotten := s.unforgotten(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the daemon stops; the next one sweeps
	}
	return s.sweep(now, unforgotten)
}

// sweepDue reports whether to look for old output, this long after the last time.
func sweepDue(since time.Duration, disk unix.Statfs_t) bool {
	return since >= sweepEvery || disk.Bavail < disk.Blocks/shortShare
}

// kept is the directory of an attempt that has ended.
type kept struct {
	path  string
	since time.Time // when it last changed
	size  int64     // on disk: a sparse file may be of any length
	user  string    // whose files are kept there; empty: there is only output, of any user
}

// sweep removes directories of forgotten attempts until the rest is within the bounds: those that are too old, and then
// the oldest of the user who keeps most.
func (s *sweeper) sweep(now time.Time, unforgotten map[job.Attempt]bool) error {
	all, total, err := s.kept(unforgotten)
	if err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.dir.Tasks(), &disk); err != nil {
		return &fs.PathError{Op: "statfs", Path: s.dir.Tasks(), Err: err}
	}
	most := int64(disk.Blocks) * disk.Bsize / keepShare //nolint:gosec // no disk has 2^63 blocks
	q := newSweepOrder(all)
	for left := len(all); left > 0; left-- {
		i := q.oldest()
		if now.Sub(all[i].since) < KeepFor {
			if total <= most && left <= keepMost {
				return nil
			}
			if total > most {
				i = q.oldestOfGreediest()
			}
		}
		q.take(i)
		if err := scratch.Remove(all[i].path); err != nil {
			s.log.Warn("output not removed", "path", all[i].path, "error", err)
			continue
		}
		total -= all[i].size
	}
	return nil
}

// sweepOrder says which directory is removed next. If space is short, that is a directory of the user who keeps most.
type sweepOrder struct {
	all    []kept // oldest first
	taken  []bool
	first  int              // all before it are taken
	byUser map[string][]int // indexes of each user's, oldest first; some may be taken
	held   map[string]int64
}

func newSweepOrder(all []kept) *sweepOrder {
	q := &sweepOrder{all: all, taken: make([]bool, len(all)), byUser: map[string][]int{}, held: map[string]int64{}}
	for i, k := range all {
		q.byUser[k.user] = append(q.byUser[k.user], i)
		q.held[k.user] += k.size
	}
	return q
}

// oldest returns the oldest that is left.
func (q *sweepOrder) oldest() int {
	for q.taken[q.first] {
		q.first++
	}
	return q.first
}

// oldestOfGreediest returns the oldest that is left of the user who keeps most.
func (q *sweepOrder) oldestOfGreediest() int {
	user := q.all[q.oldest()].user
	for other, bytes := range q.held {
		if bytes > q.held[user] || bytes == q.held[user] && other < user {
			user = other
		}
	}
	mine := q.byUser[user]
	for len(mine) > 0 && q.taken[mine[0]] {
		mine = mine[1:]
	}
	q.byUser[user] = mine
	if len(mine) == 0 {
		return q.oldest()
	}
	return mine[0]
}

func (q *sweepOrder) take(i int) {
	q.taken[i] = true
	q.held[q.all[i].user] -= q.all[i].size
}

// kept lists the directories that may be removed, oldest first, and the sum of their sizes in bytes.
func (s *sweeper) kept(unforgotten map[job.Attempt]bool) ([]kept, int64, error) {
	attempts, err := s.dir.Attempts()
	if err != nil {
		return nil, 0, err
	}
	var all []kept
	var total int64
	for _, a := range attempts {
		if unforgotten[a] || s.activity.of(a) != nil {
			continue
		}
		info, err := os.Lstat(s.dir.Task(a)) // its last change is not later than the end of the attempt
		if err != nil {
			continue
		}
		k := kept{path: s.dir.Task(a), since: info.ModTime(), size: int64(scratch.SizeOf(s.dir.Task(a))), user: scratch.KeptFor(s.dir.Task(a))}
		total += k.size
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.since.Compare(b.since) })
	return all, total, nil
}
