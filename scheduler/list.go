package scheduler

// Listings: pages of jobs, newest first, whole and archived ones alike.

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

const (
	// MaxList bounds the jobs of one answer.
	MaxList = 1000
	// leastPage is what is looked at together, where few of many are chosen.
	leastPage = 256
)

// pageLimit is how many jobs an answer to f may hold.
func pageLimit(f job.Query) int {
	if f.Limit <= 0 || f.Limit > MaxList {
		return MaxList
	}
	return f.Limit
}

// Page are the jobs that the filter chooses, newest first. Of an archived job
// the name is not known here: such a one may not match after all.
func (c *Core) Page(f job.Query) []Listed {
	limit := pageLimit(f)
	if len(f.IDs) > 0 {
		return c.named(f, limit)
	}
	lowest, highest, ok := job.DrawnWith(f.Prefix)
	if !ok {
		return nil
	}
	var out []Listed
	each := func(x jobs.Entry) bool {
		if x.Number() < lowest || x.Number() > highest {
			return true
		}
		if l, ok := c.chosen(x, &f); ok {
			out = append(out, l)
		}
		return len(out) < limit
	}
	from := jobs.Entry{}
	if f.After.ID != "" {
		from = jobs.At(f.After.Submitted, f.After.ID.Drawn())
	}
	c.table.Scan(from, each)
	return out
}

// chosen is a job if the filter chooses it, as far as can be told here.
func (c *Core) chosen(x jobs.Entry, f *job.Query) (Listed, bool) {
	j := c.table.Of(x)
	switch {
	case j == nil:
		if f.User != "" && f.User != x.User() || len(f.States) > 0 && !slices.Contains(f.States, x.State()) {
			return Listed{}, false
		}
	case f.User != "" && f.User != j.User,
		len(f.States) > 0 && !j.Active() && !slices.Contains(f.States, j.State()):
		return Listed{}, false // the costly part of a view would be for nothing
	}
	l := c.listed(x)
	switch {
	case f.After.ID != "" && f.After.Compare(job.Position{Submitted: l.Submitted, ID: l.ID}) >= 0,
		!strings.HasPrefix(string(l.ID), f.Prefix),
		l.Job != nil && !f.Match(l.Job):
		return Listed{}, false
	}
	return l, true
}

// named are the jobs that a filter names, newest first: what a client waits for
// costs no look at all others.
func (c *Core) named(f job.Query, limit int) []Listed {
	var found []jobs.Entry
	for _, id := range f.IDs {
		if x, there := c.table.Entry(id); there && !slices.Contains(found, x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, jobs.Entry.Compare)
	var out []Listed
	for _, x := range found {
		if l, ok := c.chosen(x, &f); ok && len(out) < limit {
			out = append(out, l)
		}
	}
	return out
}

// Counts is how many jobs are in each state.
func (c *Core) Counts() map[job.State]int {
	counts := c.table.ArchivedStates()
	for _, e := range c.jobs {
		counts[c.stateOf(e)]++
	}
	return counts
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
