package api

// The client's uploads, and the transfer of trees between daemons.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

var (
	_ upload.Target = (*Client)(nil)
	_ upload.Holder = Holder{}
)

// uploadTries bounds the retries of a part of an upload while the daemon does not answer, as when it is restarting.
const uploadTries = 12

// MissingChunks returns the refs whose chunks must be uploaded.
func (c *Client) MissingChunks(ctx context.Context, refs []upload.Ref) ([]upload.Ref, error) {
	text, err := c.upload(ctx, http.MethodPost, pathMissing, upload.EncodeRefs(refs))
	if err != nil {
		return nil, err
	}
	return upload.ParseRefs(text)
}

// PutChunks uploads chunks.
func (c *Client) PutChunks(ctx context.Context, body []byte) error {
	_, err := c.upload(ctx, http.MethodPost, pathChunks, body)
	return err
}

// PutTree uploads the list of a tree's files. The error is upload.ErrMissing if chunks of the tree are no longer there.
func (c *Client) PutTree(ctx context.Context, h upload.Hash, text []byte) error {
	_, err := c.upload(ctx, http.MethodPut, pathTrees+h.String(), text)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("upload: %w: %w", upload.ErrMissing, err)
	}
	return err
}

// upload sends one part. It retries while the daemon does not answer; each part is safe to repeat.
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
		return nil, &unreachable{text: fmt.Sprintf("the upload to %s broke: %s", c.where, cause(err)), cause: err}
	}
	return text, nil
}

// Holder requests trees from one daemon of the cluster.
type Holder struct {
	HTTP *http.Client // its transport accepts http://PEER/…
	Peer job.Peer
	Name string // name of its host
}

// String returns the name of its host; see upload.Holder.
func (h Holder) String() string { return cmp.Or(h.Name, h.Peer.Short()) }

// Tree returns the encoding of a tree; see upload.Holder.
func (h Holder) Tree(ctx context.Context, tree upload.Hash) ([]byte, error) {
	resp, err := h.ask(ctx, http.MethodGet, pathPeerTrees+tree.String(), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, upload.MaxTreeBytes+1))
	if err != nil {
		return nil, h.broke(err)
	}
	return text, nil
}

// Chunks fetches some chunks; see upload.Holder.
func (h Holder) Chunks(ctx context.Context, refs []upload.Ref, take func([]byte) error) error {
	resp, err := h.ask(ctx, http.MethodPost, pathPeerChunks, upload.EncodeRefs(refs))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buf := make([]byte, upload.MaxChunk)
	for _, r := range refs {
		data, err := upload.ReadChunk(resp.Body, buf)
		switch {
		case err != nil:
			return h.broke(err)
		case len(data) == 0:
			return fmt.Errorf("api: chunk %s of %s: %w", r.Hash, h, upload.ErrMissing)
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
	setRequester(req.Header, requester{})
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
		err = fmt.Errorf("api: ask %s: %w: %w", h, upload.ErrMissing, err)
	}
	return nil, err
}
