package loop

// The methods for jobs that depend on others. They tell how far jobs of this scheduler are, and take in how far jobs of
// others are. Any goroutine may call them.

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// Dependencies tells how far the jobs of a scheduler are, and hears how far others are.
type Dependencies struct {
	calls     *calls
	reader    *reader
	followers *followers // only the loop touches them
}

const (
	followBatch = 256 // jobs that a follower asks the core for at a time
	// followGap is the pause after all changes were reported, in which further changes gather. The pause is longer by
	// followGap for each rangesAtOnce ranges of tasks that were reported, and for each tasksAtOnce tasks that were
	// looked at.
	followGap    = 100 * time.Millisecond
	rangesAtOnce = 10_000
	tasksAtOnce  = 100_000
)

// Follow calls each with the progress of some jobs, and again with each change, until ctx ends or each returns an error.
// Changes within a tenth of a second are reported together. A job that does not exist has no state. ErrNotOwner says
// that this daemon does not own the jobs (never, not yet or no longer). It tells nothing about them.
func (l *Dependencies) Follow(ctx context.Context, all []job.Follow, each func(job.Progress) error) error {
	if len(all) > MaxFollowed {
		return fmt.Errorf("%w: %d jobs to follow; at most %d", step.ErrInvalid, len(all), MaxFollowed)
	}
	f := newFollower(all)
	_, err := query(ctx, l.calls, func(c *scheduler.Core) (struct{}, error) {
		if !c.View().Leads() {
			return struct{}{}, step.ErrNotOwner
		}
		return struct{}{}, l.followers.add(f)
	})
	if err != nil {
		return err
	}
	defer l.calls.box.putAlways(mail{look: func(*scheduler.Core) { l.followers.remove(f) }})
	t := &telling{Dependencies: l, f: f, each: each, told: map[job.ID]uint64{}, seed: maphash.MakeSeed()}
	for {
		ids, over := f.take()
		switch {
		case over:
			return step.ErrNotOwner
		case len(ids) == 0:
			select {
			case <-f.bell:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		t.ranges, t.tasks = 0, 0
		for len(ids) > 0 {
			n := t.batch(ids)
			if err := t.tell(ctx, ids[:n]); err != nil {
				return err
			}
			ids = ids[n:]
		}
		if err := sleep(ctx, followGap*time.Duration(1+t.ranges/rangesAtOnce+t.tasks/tasksAtOnce)); err != nil {
			return err
		}
	}
}

// telling tells one follower what has changed.
type telling struct {
	*Dependencies
	f    *follower
	each func(job.Progress) error
	told map[job.ID]uint64 // a hash of the last report
	seed maphash.Seed

	// Since the last pause.
	ranges, tasks int
}

// batch returns how many of the jobs are asked for together. A job of which the state of each task is wanted is asked
// for alone, because that is the work of a whole step.
func (t *telling) batch(ids []job.ID) int {
	n := slices.IndexFunc(ids, func(id job.ID) bool { return t.f.tasks[id] })
	switch n {
	case -1:
		n = len(ids)
	case 0:
		n = 1
	}
	return min(n, followBatch)
}

// tell reports the progress of jobs that have changed.
func (t *telling) tell(ctx context.Context, ids []job.ID) error {
	found, err := query(ctx, t.calls, func(c *scheduler.Core) ([]scheduler.Progress, error) {
		if !c.View().Leads() {
			return nil, step.ErrNotOwner
		}
		out := make([]scheduler.Progress, 0, len(ids))
		for _, id := range ids {
			out = append(out, c.View().Progress(id, t.f.tasks[id]))
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	for _, x := range found {
		if x.Archived && t.f.tasks[x.Job] {
			if x.Tasks, err = t.reader.taskStates(x.Job); err != nil {
				return err
			}
		}
		t.tasks += x.Looked
		sum := t.hash(&x.Progress)
		if last, before := t.told[x.Job]; before && last == sum {
			continue
		}
		t.told[x.Job] = sum
		t.ranges += x.Tasks.Len()
		for _, page := range x.Tasks.Pages() {
			p := x.Progress
			p.Tasks = page
			if err := t.each(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash returns a hash of the progress without its times.
func (t *telling) hash(p *job.Progress) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	maphash.WriteComparable(&h, p.State)
	maphash.WriteComparable(&h, p.Started)
	for i, list := range [][]job.Range{p.Tasks.Succeeded, p.Tasks.Failed, p.Tasks.Open} {
		maphash.WriteComparable(&h, i)
		for _, r := range list {
			maphash.WriteComparable(&h, r)
		}
	}
	return h.Sum64()
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
	if !l.calls.box.putNews(mail{event: step.ParentSeen{Progress: p}}) {
		return step.ErrBusy
	}
	return nil
}

// ParentsSilent takes note that the owner of jobs that Parents.Follow asked for cannot be asked.
func (l *Dependencies) ParentsSilent(ids []job.ID, detail string) {
	l.calls.box.putNews(mail{event: step.ParentsSilent{Jobs: ids, Detail: detail}})
}
