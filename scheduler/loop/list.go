package loop

// Listing and watching jobs: jobs in memory come from the core, archived jobs from the rows on disk.

import (
	"context"
	"errors"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/step"
)

// Jobs returns the jobs that the filter chooses, newest first.
func (l *Loop) Jobs(ctx context.Context, f job.Query) ([]job.Job, error) {
	limit := scheduler.PageLimit(f)
	var out []job.Job
	for {
		f.Limit = max(limit-len(out), scheduler.LeastPage)
		page, err := query(ctx, l.calls, func(c *scheduler.Core) ([]step.Listed, error) { return c.View().Page(f), nil })
		if err != nil {
			return nil, err
		}
		out = slices.Grow(out, len(page))
		for _, x := range page {
			j, err := l.reader.latest(ctx, x)
			if errors.Is(err, step.ErrNotFound) {
				continue // purged meanwhile
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

// Counts returns how many jobs are in each state.
func (l *Loop) Counts(ctx context.Context) (map[job.State]int, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (map[job.State]int, error) { return c.View().Counts(), nil })
}

// QueueOf returns what runs and waits, and for how long.
func QueueOf(ctx context.Context, l *Loop) (scheduler.Queue, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (scheduler.Queue, error) { return c.View().Queue(), nil })
}

// TotalsOf returns what has happened since the daemon began.
func TotalsOf(ctx context.Context, l *Loop) (step.Totals, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) (step.Totals, error) { return c.View().Totals(), nil })
}

// SetShares replaces the weights of users and projects.
func (l *Loop) SetShares(w fairshare.Weights) {
	l.calls.box.putAlways(mail{look: func(c *scheduler.Core) { c.SetShares(w) }})
}

// SetBacklog replaces the bounds of what waits. Jobs that are accepted stay.
func SetBacklog(l *Loop, b backlog.Limits) {
	l.calls.box.putAlways(mail{look: func(c *scheduler.Core) { c.SetBacklog(b) }})
}

// SetPriorities replaces the highest priorities that users may give their jobs. Jobs that are accepted keep theirs.
func SetPriorities(l *Loop, p *contract.Priorities) {
	l.calls.box.putAlways(mail{look: func(c *scheduler.Core) { c.SetPriorities(p) }})
}

// SetLimits replaces the limits of users: the longest time limits of jobs that are submitted, and what tasks may hold
// in the whole cluster.
func SetLimits(l *Loop, to *contract.UserLimits) {
	l.calls.box.putAlways(mail{look: func(c *scheduler.Core) { c.SetLimits(to) }})
}

// AllotmentOf returns what this owner tells others of a user, and whether the user has limits over the cluster.
func AllotmentOf(ctx context.Context, l *Loop, user string) (s contract.Allotment, limited bool, err error) {
	s, err = query(ctx, l.calls, func(c *scheduler.Core) (contract.Allotment, error) {
		s, limited = c.View().Allotment(user)
		return s, nil
	})
	return s, limited && err == nil, err
}

// TellAllotted brings answers of other daemons: those to a question of Allotter.Allot, or others, which have no round.
func TellAllotted(l *Loop, e step.AllotmentsHeard) { l.calls.box.putAlways(mail{event: e}) }

// SwapAllotments takes in what another owner, of this or another daemon, says of users, and returns what this owner
// says of them.
func SwapAllotments(ctx context.Context, l *Loop, from job.Peer, states []contract.Allotment) ([]contract.Allotment, error) {
	return query(ctx, l.calls, func(c *scheduler.Core) ([]contract.Allotment, error) { return c.SwapAllotments(from, states), nil })
}

// Watch sends the jobs that the filter chooses: first as they are, then every change. If several changes of a job were
// not read yet, only the newest is sent. The channel is closed when ctx ends, when the scheduler ends, or when the
// reader is too far behind: then list and watch again.
func (l *Loop) Watch(ctx context.Context, f job.Query) (<-chan job.Job, error) {
	watchers := &l.execute.watchers // only the loop touches them
	w := &watcher{filter: f, out: make(chan job.Job), latest: map[job.ID]*job.Job{}, bell: make(chan struct{}, 1)}
	unwatch := func() { l.calls.box.putAlways(mail{look: func(*scheduler.Core) { watchers.remove(w) }}) }
	archived, err := query(ctx, l.calls, func(c *scheduler.Core) (archived []step.Listed, err error) {
		if len(watchers.all) >= maxWatchers {
			return nil, step.ErrBusy
		}
		watchers.add(w)
		for _, x := range slices.Backward(c.View().Page(f)) {
			if x.Job != nil {
				w.put(x.Job)
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
