package scheduler

// Jobs as the loop gives them: whole ones from the core, archived ones from the rows on disk.

import (
	"context"
	"errors"
	"slices"

	"github.com/musterhq/muster/job"
)

// Jobs are the jobs that the filter chooses, newest first.
func (l *Loop) Jobs(ctx context.Context, f job.Query) ([]job.Job, error) {
	limit := pageLimit(f)
	var out []job.Job
	for {
		f.Limit = max(limit-len(out), leastPage)
		page, err := query(ctx, l.calls, func(c *Core) ([]Listed, error) { return c.Page(f), nil })
		if err != nil {
			return nil, err
		}
		for _, x := range page {
			j, err := l.reader.whole(x)
			if errors.Is(err, ErrNotFound) {
				continue // forgotten since
			}
			if err != nil {
				return nil, err
			}
			if f.Match(&j) {
				out = append(out, j)
			}
		}
		if len(page) < f.Limit || len(out) >= limit || len(f.IDs) > 0 {
			return out[:min(len(out), limit)], nil
		}
		last := page[len(page)-1]
		f.After = job.Position{Submitted: last.Submitted, ID: last.ID}
	}
}

// Counts is how many jobs are in each state.
func (l *Loop) Counts(ctx context.Context) (map[job.State]int, error) {
	return query(ctx, l.calls, func(c *Core) (map[job.State]int, error) { return c.Counts(), nil })
}

// Watch streams the jobs that the filter chooses: as they are, then as they
// change; what was overtaken before it was read is left out. The channel is
// closed when ctx ends, when the scheduler does, or when the reader is too far
// behind: list and watch again.
func (l *Loop) Watch(ctx context.Context, f job.Query) (<-chan job.Job, error) {
	watchers := &l.execute.watchers // only the loop touches them
	w := &watcher{filter: f, out: make(chan job.Job), latest: map[job.ID]job.Job{}, bell: make(chan struct{}, 1)}
	unwatch := func() { l.calls.box.putAlways(mail{look: func(*Core) { delete(watchers.all, w) }}) }
	archived, err := query(ctx, l.calls, func(c *Core) (archived []Listed, err error) {
		if len(watchers.all) >= maxWatchers {
			return nil, ErrBusy
		}
		watchers.all[w] = true
		for _, x := range slices.Backward(c.Page(f)) {
			if x.Job != nil {
				w.put(*x.Job)
			} else {
				archived = append(archived, x)
			}
		}
		return archived, nil
	})
	if err == nil {
		err = l.reader.putArchived(w, archived)
	}
	if err != nil {
		unwatch()
		return nil, err
	}
	go func() {
		defer close(w.out)
		w.pump(ctx)
		unwatch()
	}()
	return w.out, nil
}
