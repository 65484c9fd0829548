package api

// The client that every verb uses: one method for each endpoint.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of the client.
const (
	dialTimeout    = 5 * time.Second      // enough for a daemon on the other side of the world
	dialAgain      = 5 * time.Millisecond // between two tries to connect to a busy socket
	requestTimeout = 45 * time.Second     // longer than a daemon takes to give up on committing a job
	maxAnswer      = 64 << 20             // bytes of an answer: a page of the largest jobs
	maxProblem     = 1 << 20              // a problem document with its explanation
	maxSocketPath  = 107                  // the limit of the kernel
)

// ClientConfig says which daemon to use: Addr if it is set, else Socket.
type ClientConfig struct {
	Socket string
	Addr   string // host:port or a URL
	Token  string // bearer token for Addr
}

// Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	http     *http.Client
	base     string
	where    string // the daemon's socket or address, for errors
	token    string
	local    bool
	answered atomic.Bool // the daemon has answered a request
}

// NewClient returns a client. It does not connect before the first request.
func NewClient(cfg ClientConfig) (*Client, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	c := &Client{http: &http.Client{Transport: transport}, token: cfg.Token}
	switch {
	case cfg.Addr != "":
		base := cfg.Addr
		if !strings.Contains(base, "://") {
			base = "http://" + base
		}
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, bad("address %.100q: want HOST:PORT or a URL", cfg.Addr)
		}
		c.base = strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/")
		c.where = c.base
	case len(cfg.Socket) > maxSocketPath:
		return nil, bad("socket %.100q: want a path of at most %d bytes", cfg.Socket, maxSocketPath)
	case cfg.Socket != "":
		c.base, c.where, c.local = "http://muster", cfg.Socket, true
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, dialer, cfg.Socket)
		}
	default:
		return nil, bad("give the socket or the address of a daemon")
	}
	return c, nil
}

// dialSocket connects to a socket. It tries again while the socket's backlog is full.
func dialSocket(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		c, err := dialer.DialContext(ctx, "unix", path)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		again := time.NewTimer(dialAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// unreachable is an ErrUnavailable because no daemon answered at all.
type unreachable struct {
	text  string
	cause error
}

func (e *unreachable) Error() string        { return e.text }
func (e *unreachable) Unwrap() error        { return e.cause }
func (e *unreachable) Is(target error) bool { return target == ErrUnavailable }

// noAnswer turns an error of the transport into one line that says what to do.
func (c *Client) noAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	var timeout net.Error
	text := fmt.Sprintf("the connection to the daemon on %s broke: %s", c.where, cause(err))
	switch {
	case errors.Is(err, fs.ErrPermission):
		text = fmt.Sprintf("cannot use %s: permission denied; it belongs to another user's daemon", c.where)
	case c.local && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		text = fmt.Sprintf("no daemon answers on %s: start one with `muster daemon`", c.where)
	case isDial(err):
		text = fmt.Sprintf("no daemon answers at %s (%s): start one there with `muster daemon --http ADDR`", c.where, cause(err))
	case errors.As(err, &timeout) && timeout.Timeout():
		text = fmt.Sprintf("the daemon on %s did not answer in time: see its log", c.where)
	}
	return &unreachable{text: text, cause: err}
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cause returns the innermost error. The outer ones, from net/http, name the request, which the caller knows.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// open sends a request and returns a response whose status is 2xx, or 304 for a request that has a tag. Any other status
// becomes an error.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, bad("%s %s: %w", method, path, err)
	}
	maps.Copy(req.Header, header)
	if len(body) > 0 && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotModified && header.Get("If-None-Match") != "" {
		c.answered.Store(true)
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readProblem(resp)
}

// encode encodes the document of a request. A job file in it has the length that job.EncodeSpec defines.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// readProblem returns the error for a response whose status is not 2xx.
func readProblem(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := &Problem{}
	if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), contentProb) && json.Unmarshal(text, p) == nil && p.Code != "" {
		return p
	}
	detail := strings.TrimSpace(string(text[:min(len(text), 200)]))
	return problemOfStatus(resp.StatusCode, fmt.Sprintf("the daemon answered %s: %s", resp.Status, detail))
}

// call sends a request and decodes the document of the answer into out.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return c.callWith(ctx, method, path, query, nil, in, out)
}

func (c *Client) callWith(ctx context.Context, method, path string, query url.Values, header http.Header, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = encode(in); err != nil {
			return bad("%s %s: %w", method, path, err)
		}
	}
	_, text, err := c.answer(ctx, method, path, query, body, header)
	if err != nil || out == nil {
		return err
	}
	return c.decode(method, path, text, out)
}

// answer sends a request and returns the header and the text of the answer.
func (c *Client) answer(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.open(ctx, method, path, query, body, header)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, c.noAnswer(ctx, err)
	}
	if len(text) > maxAnswer {
		return nil, nil, fmt.Errorf("%s %s: the answer is larger than %d bytes: %w; request less with a limit", method, path, maxAnswer, ErrTooLarge)
	}
	return resp.Header, text, nil
}

func (c *Client) decode(method, path string, text []byte, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %s is not a muster daemon of this version: %w", method, path, c.where, err)
	}
	return nil
}

// RoundTrip sends a request to the client's daemon, with the client's token. It keeps only path and query of the request's
// URL. It makes the client an http.RoundTripper. An error is one line that says what to do.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = base.Scheme, base.Host, base.Host
	if out.URL.RawPath != "" {
		out.URL.RawPath = base.EscapedPath() + out.URL.RawPath
	}
	out.URL.Path = base.Path + out.URL.Path
	out.Header.Del("Authorization")
	if c.token != "" {
		out.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Transport.RoundTrip(out)
	if err != nil {
		return nil, c.noAnswer(r.Context(), err)
	}
	return resp, nil
}
