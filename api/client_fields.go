package api

// Listings of nodes and GPUs of which a client wants some fields only, or only what has changed.

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhq/muster/job"
)

// ListFilter selects GPUs by node, and which fields of nodes and GPUs are sent; the zero value selects everything.
type ListFilter struct {
	Fields []string   // as JSON names them; none: all
	Nodes  []job.Peer // GPUs: only those of these nodes, at most 256; none: of all nodes
	Tag    string     // that of an earlier answer
}

// Listed is a listing with its tag.
type Listed[T any] struct {
	Listing[T]

	Tag   string // with it the daemon can tell whether anything has changed
	Same  bool   // nothing but ages has changed since the answer with the tag of the filter: there are no items
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
