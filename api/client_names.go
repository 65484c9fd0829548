package api

// Jobs that a user names by their name instead of their id.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhq/muster/job"
)

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
