package scheduler

// Jobs as the loop gives them: whole ones from the core, archived ones from the rows on disk.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

// whole is a listed job with all that its rows tell: ErrNotFound if it was forgotten
// since it was listed.
func (l *Loop) whole(x Listed) (job.Job, error) {
	if x.Job != nil {
		return l.withTails(*x.Job)
	}
	rows, err := l.needs.Journal.Rows(x.ID, "", "")
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	if len(rows) == 0 {
		return job.Job{}, fmt.Errorf("%w: %s", ErrNotFound, x.ID)
	}
	decoded, err := jobs.Decode(rows)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	j := decoded.View(0, viewTasks)
	j.Owner = l.self
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return j, nil
}

// withTails adds the ends of standard errors that are on disk alone.
func (l *Loop) withTails(j job.Job) (job.Job, error) {
	if j.Counts.Total() <= 1 || len(j.Tasks) == 0 {
		return j, nil
	}
	from, to := jobs.TailParts(j.Tasks[0].Index, j.Tasks[len(j.Tasks)-1].Index+1)
	rows, err := l.needs.Journal.Rows(j.ID, from, to)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", j.ID, err)
	}
	jobs.AddTails(&j, rows)
	return j, nil
}

// Jobs are the jobs that the filter chooses, newest first.
func (l *Loop) Jobs(ctx context.Context, f job.Query) ([]job.Job, error) {
	limit := pageLimit(f)
	var out []job.Job
	for {
		f.Limit = max(limit-len(out), leastPage)
		page, err := query(ctx, l, func(c *Core) ([]Listed, error) { return c.Page(f), nil })
		if err != nil {
			return nil, err
		}
		for _, x := range page {
			j, err := l.whole(x)
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
	return query(ctx, l, func(c *Core) (map[job.State]int, error) { return c.Counts(), nil })
}

// Watch streams the jobs that the filter chooses: as they are, then as they
// change; what was overtaken before it was read is left out. The channel is
// closed when ctx ends, when the scheduler does, or when the reader is too far
// behind: list and watch again.
func (l *Loop) Watch(ctx context.Context, f job.Query) (<-chan job.Job, error) {
	w := &watcher{filter: f, out: make(chan job.Job), latest: map[job.ID]job.Job{}, bell: make(chan struct{}, 1)}
	archived, err := query(ctx, l, func(c *Core) (archived []Listed, err error) {
		if len(l.watchers.all) >= maxWatchers {
			return nil, ErrBusy
		}
		l.watchers.all[w] = true
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
		err = l.putArchived(w, archived)
	}
	if err != nil {
		l.unwatch(w)
		return nil, err
	}
	go func() {
		defer close(w.out)
		w.pump(ctx)
		l.unwatch(w)
	}()
	return w.out, nil
}

// putArchived hands archived jobs to a watcher; nothing newer can come of them.
func (l *Loop) putArchived(w *watcher, archived []Listed) error {
	for _, x := range archived {
		j, err := l.whole(x)
		if errors.Is(err, ErrNotFound) {
			continue // forgotten since
		}
		if err != nil {
			return err
		}
		if w.filter.Match(&j) {
			w.put(j)
		}
	}
	return nil
}

// unwatch has the loop forget the watcher.
func (l *Loop) unwatch(w *watcher) {
	l.box.putAlways(mail{look: func(*Core) { delete(l.watchers.all, w) }})
}
