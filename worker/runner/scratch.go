package runner

// The scratch directory of a task: its bound, and its end.

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	// scratchEvery is how often the room on the disk is asked for while a task
	// with a bound runs: one system call for all of them.
	scratchEvery = time.Second
	// scratchRest bounds the share of a processor that measuring takes: a
	// directory whose files took a second to count is left alone for fifty.
	scratchRest = 50
	// scratchLatest is after how long a directory is measured though the disk
	// has not filled: others may have freed what it took.
	scratchLatest = time.Minute
)

// Scratch is the directory that a task has for itself while it runs.
func (d Dir) Scratch(a job.Attempt) string { return filepath.Join(d.Task(a), "scratch") }

// ClearScratch removes the scratch directory of an attempt that has ended. This
// is the one place where it goes: whoever wants something of it takes it before.
func (d Dir) ClearScratch(a job.Attempt) error {
	path := d.Scratch(a)
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return nil // most tasks leave nothing
	}
	if err := Remove(path); err != nil {
		return fmt.Errorf("runner: clear scratch of %s: %w", a, err)
	}
	return nil
}

// bounded is one scratch directory with a bound, as the measurer knows it.
type bounded struct {
	t     *task
	path  string
	most  job.Size
	used  job.Size
	deep  bool // deeper than it may be
	at    time.Time
	taken int64 // of the disk, when it was measured
	rest  time.Duration
}

// due says whether a directory may be over its bound. It cannot be while the
// disk has filled by less than it may still take, unless others freed space.
func (b *bounded) due(now time.Time, taken int64) bool {
	if now.Sub(b.at) < b.rest {
		return false
	}
	return taken-b.taken >= int64(b.most-b.used)/2 || now.Sub(b.at) >= scratchLatest
}

func (b *bounded) measure(now time.Time, taken int64) {
	b.used, b.deep = sizeOf(b.path)
	b.at, b.taken = now, taken
	b.rest = time.Since(now) * scratchRest
}

// measure is the goroutine that holds scratch directories to their bounds. It
// sleeps while no task has one.
func (l *loop) measure(wake <-chan struct{}) {
	known := map[*task]*bounded{}
	for range wake {
		tick := time.NewTicker(scratchEvery)
		for now := range tick.C {
			answer := make(chan []*task, 1)
			l.do <- func() { answer <- l.withScratch() }
			tasks := <-answer
			if len(tasks) == 0 {
				break
			}
			known = l.measureAll(tasks, known, now)
		}
		tick.Stop()
	}
}

// withScratch lists the tasks whose scratch directory has a bound.
func (l *loop) withScratch() []*task {
	var all []*task
	for _, t := range l.tasks {
		if t.scratch > 0 && t.pid != 0 && t.watch.alive {
			all = append(all, t)
		}
	}
	l.measuring = len(all) > 0
	return all
}

// measureAll measures what is due and ends the tasks that are over their bound.
func (l *loop) measureAll(tasks []*task, before map[*task]*bounded, now time.Time) map[*task]*bounded {
	var disk unix.Statfs_t
	if err := unix.Statfs(l.dir.Tasks(), &disk); err != nil {
		return before // it is tried again
	}
	taken := int64(disk.Blocks-disk.Bfree) * disk.Bsize //nolint:gosec // no disk has 2^63 bytes
	known := make(map[*task]*bounded, len(tasks))
	for _, t := range tasks {
		b := before[t]
		if b == nil {
			b = &bounded{t: t, path: l.dir.Scratch(t.attempt), most: t.scratch, at: now.Add(-scratchLatest)}
		}
		known[t] = b
		if !b.due(now, taken) {
			continue
		}
		b.measure(now, taken)
		switch used := b.used; {
		case used > b.most:
			l.do <- func() { l.overScratch(t, fmt.Sprintf("scratch quota of %s exceeded: %s used", t.scratch, used)) }
		case b.deep:
			l.do <- func() { l.overScratch(t, fmt.Sprintf("its scratch directory is over %d directories deep", deepest)) }
		}
	}
	return known
}

func (l *loop) overScratch(t *task, why string) {
	t.watch.end(bootTime(), t.watch.grace, causeScratch, why)
	l.look(t)
}
