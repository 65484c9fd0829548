package scheduler

// The methods about jobs that depend on others: telling how far jobs of this scheduler are, and hearing how
// far others are. Any goroutine may call them.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Dependencies tells how far the jobs of a scheduler are, and hears how far others are.
type Dependencies struct {
	calls     *calls
	reader    *reader
	followers *followers // only the loop touches them
}

const (
	followBatch = 256 // jobs that a follower asks the core for at a time
	// followGap is the pause after each batch, in which further changes gather. A batch that tells of tasks is followed
	// by followGap for each rangesAtOnce ranges.
	followGap    = 100 * time.Millisecond
	rangesAtOnce = 10_000
)

// Follow calls each with the progress of some jobs, and again with each change, until ctx ends or each returns an error.
// Changes that follow each other within a tenth of a second are told of together. A job that there is not has no state.
// ErrNotOwner says that this daemon does not own the jobs, or not yet or no longer: nothing is known of them.
func (l *Dependencies) Follow(ctx context.Context, all []job.Follow, each func(job.Progress) error) error {
	if len(all) > MaxFollowed {
		return fmt.Errorf("%w: %d jobs to follow; at most %d", ErrInvalid, len(all), MaxFollowed)
	}
	f := newFollower(all)
	_, err := query(ctx, l.calls, func(c *Core) (struct{}, error) {
		if !c.lead {
			return struct{}{}, ErrNotOwner
		}
		return struct{}{}, l.followers.add(f)
	})
	if err != nil {
		return err
	}
	defer l.calls.box.putAlways(mail{look: func(*Core) { l.followers.remove(f) }})
	told := map[job.ID]job.Progress{}
	for {
		ids, over := f.take(followBatch)
		switch {
		case over:
			return ErrNotOwner
		case len(ids) == 0:
			select {
			case <-f.bell:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		ranges, err := l.tellAll(ctx, f, ids, told, each)
		if err != nil {
			return err
		}
		if err := sleep(ctx, followGap*time.Duration(1+ranges/rangesAtOnce)); err != nil {
			return err
		}
	}
}

// tellAll tells the progress of jobs that have changed, and returns how many ranges of tasks that took.
func (l *Dependencies) tellAll(ctx context.Context, f *follower, ids []job.ID, told map[job.ID]job.Progress, each func(job.Progress) error) (ranges int, err error) {
	found, err := query(ctx, l.calls, func(c *Core) ([]progress, error) {
		if !c.lead {
			return nil, ErrNotOwner
		}
		out := make([]progress, 0, len(ids))
		for _, id := range ids {
			out = append(out, c.views.progress(id, f.tasks[id]))
		}
		return out, nil
	})
	if err != nil {
		return 0, err
	}
	for _, x := range found {
		if x.archived && f.tasks[x.Job] {
			if x.Tasks, err = l.reader.taskStates(x.Job); err != nil {
				return 0, err
			}
		}
		if last, before := told[x.Job]; before && sameProgress(last, x.Progress) {
			continue
		}
		told[x.Job] = x.Progress
		ranges += x.Tasks.Len()
		for _, page := range x.Tasks.Pages() {
			p := x.Progress
			p.Tasks = page
			if err := each(p); err != nil {
				return 0, err
			}
		}
	}
	return ranges, nil
}

// sameProgress reports whether b says the same as a.
func sameProgress(a, b job.Progress) bool {
	return a.State == b.State && a.Started == b.Started && slices.Equal(a.Tasks.Succeeded, b.Tasks.Succeeded) &&
		slices.Equal(a.Tasks.Failed, b.Tasks.Failed) && slices.Equal(a.Tasks.Open, b.Tasks.Open)
}

// sleep waits, or returns an error if ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ParentSeen takes the progress of a job that Parents.Follow asked for. ErrBusy says that too much waits: try again.
func (l *Dependencies) ParentSeen(p job.Progress) error {
	if !l.calls.box.put(mail{event: ParentSeen{p}}) {
		return ErrBusy
	}
	return nil
}

// ParentsSilent takes note that the owner of jobs that Parents.Follow asked for cannot be asked.
func (l *Dependencies) ParentsSilent(ids []job.ID, detail string) {
	l.calls.box.put(mail{event: ParentsSilent{ids, detail}})
}
