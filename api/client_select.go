package api

// Finding the jobs that a selector names, also by their name instead of their id.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
)

// Resolve returns the jobs that a selector names, newest first, and the parsed selector. The tasks in that selector are
// numbers of tasks, even if the text names ranks.
//
// "all" means the caller's jobs that have not ended; there may be none. If members do not answer, Resolve returns the jobs
// of the others with an IncompleteError. Any other selector that matches nothing is ErrNotFound. A prefix or a name is
// looked up among the caller's own jobs first, and only then among the jobs of others. So no user can make the names of
// another user ambiguous.
func (c *Client) Resolve(ctx context.Context, selector string) ([]Job, job.Selector, error) {
	sel, err := job.ParseSelector(selector)
	if err == nil {
		if sel.All {
			jobs, err := c.unended(ctx)
			return jobs, sel, err
		}
		if id, err := job.ParseID(sel.Prefix); err == nil {
			j, err := c.Job(ctx, id)
			switch {
			case errors.Is(err, ErrNotFound):
				return nil, sel, noSuch(selector)
			case err != nil:
				return nil, sel, err
			}
			return named(j, sel, selector)
		}
	}
	jobs, found, lack := c.resolveAmong(ctx, selector, JobFilter{Mine: true, Limit: maxNamed, Fresh: true})
	if errors.Is(lack, ErrNotFound) && !sel.Last {
		jobs, found, lack = c.resolveAmong(ctx, selector, JobFilter{Limit: maxNamed, Fresh: true})
	}
	return jobs, found, lack
}

// resolveAmong returns the one job of a filter that a selector names.
func (c *Client) resolveAmong(ctx context.Context, selector string, among JobFilter) ([]Job, job.Selector, error) {
	sel, err := job.ParseSelector(selector)
	if err != nil {
		return c.resolveName(ctx, selector, err, among)
	}
	filter := among
	filter.Prefix = sel.Prefix
	if sel.Last {
		filter = JobFilter{Last: true, Fresh: true}
	}
	l, err := c.Jobs(ctx, filter)
	switch {
	case err != nil:
		return nil, sel, err
	case len(l.Items) == 0 && len(l.Partial) > 0:
		return nil, sel, fmt.Errorf("job %q: %w here, but %s did not answer; try again", selector, ErrNotFound, strings.Join(l.Partial, ", "))
	case len(l.Items) == 0 && sel.Last:
		return nil, sel, fmt.Errorf("job last: %w; you have not submitted any", ErrNotFound)
	case len(l.Items) == 0:
		return c.resolveName(ctx, selector, nil, among)
	}
	if !sel.Last {
		if err := c.alsoName(ctx, sel.Prefix, l.Items, among); err != nil {
			return nil, sel, err
		}
	}
	if len(l.Items) > 1 {
		return nil, sel, bad("job %q: could be %s; give more characters", selector, names(l.Items))
	}
	return named(l.Items[0], sel, selector)
}

// alsoName returns an error if a prefix of ids is also the name of other jobs of the filter, because it is then ambiguous.
func (c *Client) alsoName(ctx context.Context, prefix string, begin []Job, among JobFilter) error {
	among.Name = prefix
	l, err := c.Jobs(ctx, among)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(l.Items, func(j Job) bool { return len(begin) == 1 && j.ID == begin[0].ID })
	if len(others) == 0 {
		return nil
	}
	return bad("job %q: is the name of %s, and the id of %s begins so; give more characters of an id", prefix, names(others), names(begin))
}

func noSuch(selector string) error {
	return fmt.Errorf("job %q: %w; `muster jobs --all` lists them", selector, ErrNotFound)
}

const maxNamed = 4 // number of jobs that an error names if a prefix is not unique

func names(jobs []Job) string {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, string(j.ID))
	}
	if len(ids) == maxNamed {
		ids = append(ids, "…")
	}
	return strings.Join(ids, " ")
}

// named returns the only job of a selector, and the selector with the numbers of the tasks that it names.
func named(j Job, sel job.Selector, text string) ([]Job, job.Selector, error) {
	if len(sel.Tasks) == 0 {
		return []Job{j}, sel, nil
	}
	l, err := j.Layout()
	if err != nil {
		return nil, sel, fmt.Errorf("job %q: %w", text, err)
	}
	_, what, _ := strings.Cut(text, ".")
	numbers, err := l.Named(sel)
	switch {
	case err != nil:
		return nil, sel, bad("job %q: %w", text, err)
	case len(l.Select(numbers)) == 0:
		return nil, sel, fmt.Errorf("job %q: %w", text, noTask(j.ID, what, l))
	}
	sel.Tasks, sel.Ranks = numbers, nil
	return []Job{j}, sel, nil
}

func (c *Client) unended(ctx context.Context) ([]Job, error) {
	filter := JobFilter{Mine: true, Fresh: true}
	for _, s := range job.States() {
		if !s.Ended() {
			filter.States = append(filter.States, s)
		}
	}
	l, err := c.AllJobs(ctx, filter)
	switch {
	case err != nil:
		return nil, err
	case len(l.Partial) > 0:
		return l.Items, &IncompleteError{l.Partial}
	}
	return l.Items, nil
}

// IncompleteError says that members did not answer, so that their jobs are missing. It is an ErrUnavailable.
type IncompleteError struct{ Silent []string }

const maxSilent = 5 // number of members that the error names, so that it stays one readable line

func (e *IncompleteError) Error() string {
	named := e.Silent[:min(len(e.Silent), maxSilent)]
	who, gone, it := strings.Join(named, ", "), named[0], "it"
	if len(e.Silent) > 1 {
		gone, it = "NAME", "one"
	}
	if more := len(e.Silent) - len(named); more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("all jobs: %s did not answer, so jobs accepted there are left out: try again later, or `muster peers --revoke %s` if %s is gone for good", who, gone, it)
}

// Unwrap returns ErrUnavailable.
func (e *IncompleteError) Unwrap() error { return ErrUnavailable }

// resolveName resolves a selector that begins with the name of a job: NAME, NAME.3, NAME.0-9,12 or NAME.3.1. A name may
// contain dots. wrong says why the selector is not an id; nil means that it could be an id, but no job of the filter has it.
func (c *Client) resolveName(ctx context.Context, selector string, wrong error, among JobFilter) ([]Job, job.Selector, error) {
	id, numbers, _ := strings.Cut(selector, ".")
	if _, err := job.ParseSelector(id); wrong != nil && (id == "" || err == nil && onlyNumbers(numbers)) {
		return nil, job.Selector{}, bad("%w", wrong) // there is nothing to look for, or the numbers of the tasks are wrong
	}
	jobs, err := c.called(ctx, selector, among)
	for rest := selector; errors.Is(err, ErrNotFound); {
		dot := strings.LastIndexByte(rest, '.')
		if dot < 0 || !onlyNumbers(selector[dot+1:]) {
			break
		}
		rest = selector[:dot]
		sel, wrong := job.ParseSelector("last" + selector[dot:])
		if wrong != nil {
			return nil, job.Selector{}, bad("%w", wrong)
		}
		found, unknown := c.called(ctx, rest, among)
		switch {
		case unknown == nil:
			sel.Last, sel.Prefix = false, string(found[0].ID)
			return named(found[0], sel, sel.Prefix+selector[dot:])
		case !errors.Is(unknown, ErrNotFound):
			return nil, job.Selector{}, unknown
		}
	}
	return jobs, job.Selector{}, err
}

// onlyNumbers reports whether a text can be the numbers of tasks.
func onlyNumbers(text string) bool {
	return text != "" && strings.Trim(text, "0123456789.,-") == ""
}

// called returns the one job of a filter with that name.
func (c *Client) called(ctx context.Context, name string, among JobFilter) ([]Job, error) {
	if name == "" || strings.ContainsAny(name, `*?[\`) {
		return nil, noSuch(name)
	}
	among.Name = name
	l, err := c.Jobs(ctx, among)
	switch {
	case err != nil:
		return nil, err
	case len(l.Items) == 0 && len(l.Partial) > 0:
		return nil, fmt.Errorf("job %q: %w here, but %s did not answer; try again", name, ErrNotFound, strings.Join(l.Partial, ", "))
	case len(l.Items) == 0:
		return nil, noSuch(name)
	case len(l.Items) > 1:
		return nil, bad("job %q: this is the name of %s; give an id", name, names(l.Items))
	}
	return l.Items, nil
}
