package api

// Listings of all jobs, page by page.

import (
	"context"
	"net/http"
	"slices"
)

// AllJobs lists all jobs that the filter selects, newest first; the limit counts for a page. While one page is decoded
// the daemon makes the next.
func (c *Client) AllJobs(ctx context.Context, f JobFilter) (Listing[Job], error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.Limit == 0 {
		f.Limit = maxLimit
	}
	all := Listing[Job]{Schema: SchemaJobs, Items: []Job{}, Partial: []string{}}
	for {
		pages, end := make(chan []byte, 1), make(chan error, 1)
		go func() { end <- c.jobPages(ctx, f, pages); close(pages) }()
		next := ""
		for text := range pages {
			var l Listing[Job]
			if err := c.decode(http.MethodGet, "/v1/jobs", text, &l); err != nil {
				return all, err
			}
			all.Items, all.Partial, next = append(all.Items, l.Items...), append(all.Partial, l.Partial...), l.Next
		}
		if err := <-end; err != nil || next == "" {
			slices.Sort(all.Partial)
			all.Partial = slices.Compact(all.Partial)
			return all, err
		}
		f.Cursor = next // a daemon of an earlier version does not send the header
	}
}

// jobPages gives out the texts of the pages, as long as their header has the cursor of the next.
func (c *Client) jobPages(ctx context.Context, f JobFilter, pages chan<- []byte) error {
	for {
		header, text, err := c.answer(ctx, http.MethodGet, "/v1/jobs", f.query(), nil, nil)
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
