package api

// The client's uploads, and how daemons hand trees to each other.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
)

var (
	_ blob.Target = (*Client)(nil)
	_ blob.Holder = Holder{}
)

// uploadTries is how often a part of an upload is sent again while the daemon
// does not answer: it may be restarting.
const uploadTries = 12

// MissingChunks lists those of refs that the daemon does not have.
func (c *Client) MissingChunks(ctx context.Context, refs []blob.Ref) ([]blob.Ref, error) {
	text, err := c.upload(ctx, http.MethodPost, pathMissing, blob.EncodeRefs(refs))
	if err != nil {
		return nil, err
	}
	return blob.ParseRefs(text)
}

// PutChunks sends chunks.
func (c *Client) PutChunks(ctx context.Context, body []byte) error {
	_, err := c.upload(ctx, http.MethodPost, pathChunks, body)
	return err
}

// PutTree sends the list of a tree's files; blob.ErrMissing if chunks of it are
// not there any more.
func (c *Client) PutTree(ctx context.Context, h blob.Hash, text []byte) error {
	_, err := c.upload(ctx, http.MethodPut, pathTrees+h.String(), text)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("upload: %w: %w", blob.ErrMissing, err)
	}
	return err
}

// upload sends one part, again while the daemon does not answer: each is
// harmless to repeat.
func (c *Client) upload(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	for try := 1; ; try++ {
		text, err := c.uploadOnce(ctx, method, path, body)
		_, answered := errors.AsType[*Problem](err)
		if err == nil || answered || try == uploadTries || !mayReturn(err) || ctx.Err() != nil {
			return text, err
		}
		pause(ctx, try)
	}
}

func (c *Client) uploadOnce(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	resp, err := c.open(ctx, method, path, nil, body, http.Header{"Content-Type": {contentBytes}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &unreachable{text: fmt.Sprintf("the upload to %s broke off: %s", c.where, cause(err)), cause: err}
	}
	return text, nil
}

// Holder asks one daemon of the cluster for trees.
type Holder struct {
	HTTP *http.Client // whose transport takes http://PEER/…
	Peer job.Peer
	Name string // of its host
}

// String is the name of its host; see blob.Holder.
func (h Holder) String() string { return cmp.Or(h.Name, h.Peer.Short()) }

// Tree is the encoding of a tree; see blob.Holder.
func (h Holder) Tree(ctx context.Context, tree blob.Hash) ([]byte, error) {
	resp, err := h.ask(ctx, http.MethodGet, pathPeerTrees+tree.String(), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, blob.MaxTreeBytes+1))
	if err != nil {
		return nil, h.broke(err)
	}
	return text, nil
}

// Chunks fetches some chunks; see blob.Holder.
func (h Holder) Chunks(ctx context.Context, refs []blob.Ref, take func([]byte) error) error {
	resp, err := h.ask(ctx, http.MethodPost, pathPeerChunks, blob.EncodeRefs(refs))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buf := make([]byte, blob.MaxChunk)
	for _, r := range refs {
		data, err := blob.ReadChunk(resp.Body, buf)
		switch {
		case err != nil:
			return h.broke(err)
		case len(data) == 0:
			return fmt.Errorf("api: chunk %s of %s: %w", r.Hash, h, blob.ErrMissing)
		}
		if err := take(data); err != nil {
			return fmt.Errorf("api: chunks of %s: %w", h, err)
		}
	}
	return nil
}

func (h Holder) broke(err error) error {
	return fmt.Errorf("api: files from %s: %w: %s", h, ErrUnavailable, cause(err))
}

func (h Holder) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: string(h.Peer), Path: path}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("api: ask %s: %w", h, err)
	}
	setAsker(req.Header, asker{})
	resp, err := h.HTTP.Do(req)
	if err != nil {
		return nil, h.broke(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	err = readProblem(resp)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("api: ask %s: %w: %w", h, blob.ErrMissing, err)
	}
	return nil, err
}
