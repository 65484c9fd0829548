package api

// Forwarding requests to other daemons, and refusing them.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/forward"
	"github.com/musterhq/muster/job"
)

// Timeouts for another daemon's answer.
const (
	forwardRead   = 10 * time.Second // for a read: a dial across a relay takes some seconds
	forwardChange = 40 * time.Second // for a change: the owner gives up on committing it after 30 s
)

var problemSchema = reflect.TypeFor[Problem]()

// refuse answers with the problem document of err.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if out, ok := w.(*response); ok {
		out.note.because(p)
	}
	w.Header().Set("Content-Type", contentProb)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	if p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // if the client is gone the error does not matter
}

// toProblem turns refusals by huma into our documents. It leaves out the refused values, which may be large or
// secret.
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
	const most = 60 // characters of a wrong name to show
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// destination says where to forward a request.
type destination struct {
	peer  job.Peer
	path  string
	who   string
	begun func() // called when the answer begins
	whole bool   // the answer is a document of at most maxAnswer bytes
}

type destinationKey struct{}

var errNoAnswer = errors.New("no answer in time")

// answerLimit bounds how long another daemon may take: to finish the answer if whole is true, else to begin it. If limit is
// 0, the request lasts until the session with that daemon breaks.
type answerLimit struct {
	limit time.Duration
	whole bool
}

// forward lets another daemon answer a request.
func (d *daemons) forward(w http.ResponseWriter, r *http.Request, to destination, p answerLimit) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	requesterOf(ctx).note.with("forwarded_to", string(to.peer))
	to.whole = p.whole
	changed := func() {}
	if r.Method != http.MethodGet {
		changed = func() { d.changes.sent(to.peer) }
	}
	to.begun = changed
	if p.limit > 0 {
		late := time.AfterFunc(p.limit, func() { cancel(errNoAnswer) })
		defer late.Stop()
		if !p.whole {
			to.begun = func() { late.Stop(); changed() }
		}
	}
	leave, err := d.out.wait(ctx, to.peer, !p.whole)
	switch {
	case err == nil:
		defer leave()
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone, or the server stops
	default:
		refuse(w, err)
		return
	}
	d.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, destinationKey{}, to)))
}

func newProxy(transport http.RoundTripper, log *slog.Logger) *httputil.ReverseProxy {
	return forward.New(forward.Rules{
		Transport: transport,
		To: func(r *http.Request) *url.URL {
			to, _ := r.Context().Value(destinationKey{}).(destination)
			return &url.URL{Scheme: "http", Host: string(to.peer), Path: to.path, RawQuery: r.URL.RawQuery}
		},
		Headers:  []string{"Accept", "Content-Type", headerKey, "Sec-Websocket-Protocol"},
		Complete: func(header http.Header, r *http.Request) { setRequester(header, requesterOf(r.Context())) },
		Check:    answered,
		Failed: func(w http.ResponseWriter, r *http.Request, err error) {
			to, _ := r.Context().Value(destinationKey{}).(destination)
			refuse(w, problemOfStatus(http.StatusServiceUnavailable, to.who+" does not answer: "+cause(err)+"; try again when its daemon runs"))
		},
		Chunk: logChunk,
		Log:   log,
	})
}

// answered checks the answer of another daemon, which may be hostile.
func answered(resp *http.Response) error {
	if to, ok := resp.Request.Context().Value(destinationKey{}).(destination); ok {
		to.begun()
		if to.whole {
			resp.Body = &boundedAnswer{resp.Body, maxAnswer}
		}
	}
	requesterOf(resp.Request.Context()).note.begin(resp.StatusCode)
	switch s := resp.StatusCode; { // another daemon must not redirect our client, ask it to log in, or act as a failing gateway
	case s/100 == 3 && s != http.StatusNotModified, s == http.StatusUnauthorized, s == http.StatusProxyAuthRequired, s == http.StatusBadGateway, s == http.StatusGatewayTimeout:
		return fmt.Errorf("it answered %d", resp.StatusCode)
	}
	return nil
}

// boundedAnswer is the body of another daemon's answer. Read fails when the body is longer than any document can be.
type boundedAnswer struct {
	io.ReadCloser

	left int
}

// Read implements io.Reader.
func (d *boundedAnswer) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	if d.left -= n; d.left < 0 {
		return 0, errAnswerTooLong
	}
	return n, err
}

var errAnswerTooLong = errors.New("its answer is too long")

// setRequester sets the headers that tell another daemon who makes the request.
func setRequester(header http.Header, a requester) {
	header.Set(headerUser, url.QueryEscape(a.user))
	if a.operator || a.scraper {
		header.Set(headerOperator, "1")
	}
}
