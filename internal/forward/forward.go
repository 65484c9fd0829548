// Package forward lets an HTTP server answer a request with the answer of a daemon: a daemon forwards requests to another
// daemon, and the door forwards those of a browser to the daemon. Only the listed headers of a request are forwarded, and
// package origin cleans the answer, because the other daemon may be hostile.
package forward

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/musterhq/muster/internal/dashboard/origin"
)

// Rules say what is forwarded, and where to.
type Rules struct {
	Transport http.RoundTripper
	To        func(r *http.Request) *url.URL
	Headers   []string                                                // headers of a request that are forwarded
	Complete  func(header http.Header, r *http.Request)               // sets more headers; nil: none
	Check     func(answer *http.Response) error                       // may change or refuse an answer before it is cleaned
	Failed    func(w http.ResponseWriter, r *http.Request, err error) // answers in place of the daemon
	Chunk     int                                                     // bytes that are read, forwarded and flushed at a time
	Log       *slog.Logger
}

// socket are the headers of a request for a WebSocket that are always forwarded.
var socket = []string{"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Version"}

// New returns a proxy with these rules. If the context of a request ends with a cause of its own, Failed answers with that
// cause. If it just ends, the connection is aborted, because the client is gone or the server stops.
func New(rules Rules) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = rules.To(p.In)
			p.Out.Host = p.Out.URL.Host
			header := http.Header{}
			forward := func(keys []string) {
				for _, k := range keys {
					if v := p.In.Header.Values(k); len(v) > 0 {
						header[k] = v
					}
				}
			}
			forward(rules.Headers)
			if upgrade := p.Out.Header.Get("Upgrade"); upgrade != "" {
				forward(socket)
				header.Set("Connection", "Upgrade")
				header.Set("Upgrade", upgrade)
			}
			if rules.Complete != nil {
				rules.Complete(header, p.In)
			}
			p.Out.Header = header
		},
		Transport:     rules.Transport,
		FlushInterval: -1, // output of a task is forwarded at once
		BufferPool:    &buffers{sync.Pool{New: func() any { b := make([]byte, rules.Chunk); return &b }}},
		ErrorLog:      slog.NewLogLogger(rules.Log.Handler(), slog.LevelDebug),
		ModifyResponse: func(answer *http.Response) error {
			if err := rules.Check(answer); err != nil {
				return err
			}
			origin.Clean(answer)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if ended := r.Context().Err(); ended != nil {
				if err = context.Cause(r.Context()); err == ended { //nolint:errorlint // a cause of its own is another error
					panic(http.ErrAbortHandler)
				}
			}
			rules.Failed(w, r, err)
		},
	}
}

// buffers is a pool of buffers.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte { return *b.pool.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }
