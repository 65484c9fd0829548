package api

// Listings of all jobs, page by page.

import (
	"context"
	"iter"
	"net/http"
	"slices"
)

// AllJobs lists all jobs that the filter selects, newest first; the limit counts for a page.
func (c *Client) AllJobs(ctx context.Context, f JobFilter) (Listing[Job], error) {
	all := Listing[Job]{Schema: SchemaJobs, Items: []Job{}, Partial: []string{}}
	for l, err := range c.JobPages(ctx, f) {
		if err != nil {
			return all, err
		}
		all.Items, all.Partial = append(all.Items, l.Items...), append(all.Partial, l.Partial...)
	}
	slices.Sort(all.Partial)
	all.Partial = slices.Compact(all.Partial)
	return all, nil
}

// JobPages yields the jobs that the filter selects, newest first, page by page. While the receiver has one page the daemon
// makes the next. An error is the last that it yields.
func (c *Client) JobPages(ctx context.Context, f JobFilter) iter.Seq2[Listing[Job], error] {
	if f.Limit == 0 {
		f.Limit = maxLimit
	}
	return func(yield func(Listing[Job], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for {
			pages, end := make(chan []byte, 1), make(chan error, 1)
			go func() { end <- c.jobPages(ctx, f, pages); close(pages) }()
			next := ""
			for text := range pages {
				var l Listing[Job]
				err := c.decode(http.MethodGet, "/v1/jobs", text, &l)
				if next = l.Next; !yield(l, err) || err != nil {
					return
				}
			}
			if err := <-end; err != nil || next == "" {
				if err != nil {
					yield(Listing[Job]{}, err)
				}
				return
			}
			f.Cursor = next // a daemon of an earlier version does not send the header
		}
	}
}

// jobPages gives out the texts of the pages, as long as their header has the cursor of the next.
func (c *Client) jobPages(ctx context.Context, f JobFilter, pages chan<- []byte) error {
	for {
		header, text, err := c.answer(ctx, http.MethodGet, "/v1/jobs", f.query(), nil, f.header())
		if err != nil {
			return err
		}
		select {
		case pages <- text:
		case <-ctx.Done():
			return ctx.Err()
		}
		if f.Cursor = header.Get(headerCursor); f.Cursor == "" {
			return nil
		}
	}
}
