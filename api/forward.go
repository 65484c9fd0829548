package api

// Passing requests on to other daemons, and refusing them.

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/job"
)

// The waits for another daemon's answer.
const (
	forwardRead   = 10 * time.Second // a question: a dial across a relay takes some
	forwardChange = 40 * time.Second // a change: the owner gives up on committing it after 30 s
)

var problemSchema = reflect.TypeFor[Problem]()

// refuse answers with the problem that err is.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", contentProb)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // a client that is gone needs no answer
}

// toProblem turns huma's own refusals into our documents. It leaves out the
// values that were refused: they can be large, or secret.
func toProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problemOfStatus(m.Status, m.Detail)
	for _, e := range m.Errors {
		if e != nil {
			p.Errors = append(p.Errors, Flaw{Location: e.Location, Message: e.Message})
		}
	}
	return p, nil
}

func quote(s string) string {
	const most = 60 // letters of a wrong name that are worth showing
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// passing says where a request is passed on to, and what to call that.
type passing struct {
	peer  job.Peer
	path  string
	who   string
	begun func() // the answer has begun
}

type passingKey struct{}

var errNoAnswer = errors.New("no answer in time")

// patience is how long another daemon may take: to answer in full, or where
// whole is false to begin. 0 is for ever: until the session with it breaks.
type patience struct {
	limit time.Duration
	whole bool
}

// forward lets another daemon answer a request.
func (d *daemons) forward(w http.ResponseWriter, r *http.Request, to passing, p patience) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	to.begun = func() {}
	if p.limit > 0 {
		late := time.AfterFunc(p.limit, func() { cancel(errNoAnswer) })
		defer late.Stop()
		if !p.whole {
			to.begun = func() { late.Stop() }
		}
	}
	d.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passingKey{}, to)))
}

func newProxy(transport http.RoundTripper, log *slog.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := r.In.Context().Value(passingKey{}).(passing)
			r.Out.URL = &url.URL{Scheme: "http", Host: string(to.peer), Path: to.path, RawQuery: r.In.URL.RawQuery}
			r.Out.Host = string(to.peer)
			header := http.Header{}
			for _, k := range []string{"Accept", "Content-Type", headerKey} {
				if v := r.In.Header.Values(k); len(v) > 0 {
					header[k] = v
				}
			}
			if upgrade := r.Out.Header.Get("Upgrade"); upgrade != "" { // a WebSocket
				for k, v := range r.In.Header {
					if strings.HasPrefix(k, "Sec-Websocket-") {
						header[k] = v
					}
				}
				header.Set("Connection", "Upgrade")
				header.Set("Upgrade", upgrade)
			}
			setAsker(header, askerOf(r.In.Context()))
			r.Out.Header = header
		},
		Transport:     transport,
		FlushInterval: -1, // what a task writes is wanted now
		BufferPool:    newChunks(),
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			if to, ok := resp.Request.Context().Value(passingKey{}).(passing); ok {
				to.begun()
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			to, _ := r.Context().Value(passingKey{}).(passing)
			if late := context.Cause(r.Context()); errors.Is(late, errNoAnswer) {
				err = late
			} else if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client is gone, or the server stops
			}
			refuse(w, problemOfStatus(http.StatusServiceUnavailable, to.who+" does not answer: "+cause(err)))
		},
	}
}

// setAsker tells the daemon that is asked on whose behalf.
func setAsker(header http.Header, a asker) {
	header.Set(headerUser, url.QueryEscape(a.user))
	if a.operator {
		header.Set(headerOperator, "1")
	}
	header.Set(headerHop, "1")
}

// chunks lends the buffers that passing on takes, each of logChunk bytes.
type chunks struct{ pool sync.Pool }

func newChunks() *chunks {
	return &chunks{sync.Pool{New: func() any { b := make([]byte, logChunk); return &b }}}
}

// Get is of httputil.BufferPool.
func (c *chunks) Get() []byte { return *c.pool.Get().(*[]byte) }

// Put is of httputil.BufferPool.
func (c *chunks) Put(b []byte) { c.pool.Put(&b) }
