package api

// Listings of all jobs, page by page; and of nodes and GPUs, with only some fields, or only if something has changed.

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
)

// AllJobs lists all jobs that the filter selects, newest first. The filter's limit is the size of a page.
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

// JobPages yields the jobs that the filter selects, newest first, page by page. While the caller handles a page, the next
// one is requested. After an error it yields nothing more.
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

// jobPages sends the texts of the pages to the channel, for as long as the header of a page has the cursor of the next.
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

// ListFilter selects GPUs by node, and which fields of nodes and GPUs are sent; the zero value selects everything.
type ListFilter struct {
	Fields []string   // as JSON names them; none: all
	Nodes  []job.Peer // GPUs: only those of these nodes, at most 256; none: of all nodes
	Tag    string     // the Tag of an earlier answer
}

// Listed is a listing with its tag.
type Listed[T any] struct {
	Listing[T]

	Tag   string // for ListFilter.Tag of the next request
	Same  bool   // nothing but ages has changed since the answer with the filter's Tag; there are no items
	Bytes int    // size of the answer
}

// ListNodes lists nodes by name.
func (c *Client) ListNodes(ctx context.Context, f ListFilter) (Listed[Node], error) {
	return listed[Node](ctx, c, "/v1/nodes", f)
}

// ListGPUs lists GPUs by the name of their node and their number.
func (c *Client) ListGPUs(ctx context.Context, f ListFilter) (Listed[GPU], error) {
	return listed[GPU](ctx, c, "/v1/gpus", f)
}

func listed[T any](ctx context.Context, c *Client, path string, f ListFilter) (l Listed[T], err error) {
	q, header := url.Values{}, http.Header{}
	if len(f.Fields) > 0 {
		q.Set("fields", strings.Join(f.Fields, ","))
	}
	if len(f.Nodes) > 0 {
		q.Set("node", strings.Join(texts(f.Nodes), ","))
	}
	if f.Tag != "" {
		header.Set("If-None-Match", f.Tag)
	}
	got, text, err := c.answer(ctx, http.MethodGet, path, q, nil, header)
	if err != nil {
		return l, err
	}
	if l.Tag, l.Bytes = got.Get("ETag"), len(text); len(text) == 0 && f.Tag != "" {
		l.Same = true
		return l, nil
	}
	return l, c.decode(http.MethodGet, path, text, &l.Listing)
}
