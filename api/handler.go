package api

// What each request passes between a listener and the routes: identification, deadlines, bounds, and recovery from
// panics.

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/musterhq/muster/internal/dashboard/origin"
)

// handler returns the handler for one kind of listener.
func (s *Server) handler(from requestOrigin) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		n := &note{}
		out := &response{ResponseWriter: w, control: http.NewResponseController(w), note: n}
		defer s.served(r, out, began)
		if r.ContentLength != 0 { // net/http reads what is left of a body before it sends a refusal
			_ = out.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every listener supports it; see response.Write
		}
		if err := excessive(r.Context()); err != nil {
			out.Header().Set("Connection", "close")
			refuse(out, err)
			return
		}
		out.browsers = from == fromTCP
		if out.browsers && s.servePage(out, r) {
			return
		}
		a, err := s.auth.identify(from, r)
		a.from, a.note = from, n
		n.record = func(status int) { s.audit(r, a, n, status) }
		if err == nil && r.Header.Get("Upgrade") != "" && r.Header.Get("Origin") != "" {
			// Browsers let any page open a WebSocket, but send the page's origin. byTicket has removed it for a valid ticket.
			err = fmt.Errorf("%w: a web page may not run commands", ErrDenied)
		}
		if err == nil {
			err = a.maySee(s.routes, r)
		}
		if err != nil {
			refuse(out, err)
			return
		}
		if a.ticket {
			origin.Agree(out.Header())
		}
		r.Body = &body{ReadCloser: http.MaxBytesReader(out, r.Body, bodyBound(r.URL.Path)), control: out.control}
		*r = *withRequester(r, a)
		s.routes.ServeHTTP(out, r)
	})
}

// served is called at the end of every request.
func (s *Server) served(r *http.Request, out *response, began time.Time) {
	s.metrics.served(r.Pattern, out.status, time.Since(began))
	out.note.begin(out.status)
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared, as net/http does
		s.log.ErrorContext(r.Context(), "request handler panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// body is a request's body with a read deadline. The deadline is removed at the end of the body, because it would
// otherwise end the request while the answer is written. For a large body it is extended with each part.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	begun   bool
	read    int // bytes since the deadline was set
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun || b.read >= bodyTimed {
		b.begun, b.read = true, 0
		// not every listener supports deadlines; see response.Write
		_ = b.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	n, err := b.ReadCloser.Read(p)
	b.read += n
	if errors.Is(err, io.EOF) { // after any other error net/http reads on, up to a limit of its own
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// response records the status, and ends requests whose client does not read.
type response struct {
	http.ResponseWriter
	control  *http.ResponseController
	status   int
	note     *note
	browsers bool // the client may be a browser
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the status. It drops informational (1xx) answers. This daemon sends none, and those of another daemon
// could make a browser load something.
func (w *response) WriteHeader(status int) {
	if status/100 == 1 && status != http.StatusSwitchingProtocols {
		return
	}
	if w.status == 0 || w.status/100 == 1 {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) begin(status int) {
	w.status = status
	w.note.begin(status)
	if w.browsers {
		origin.Harden(w.Header())
	}
}

// Write sets a deadline for each write.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	// Not every listener supports deadlines. A silent member is disconnected by its session.
	_ = w.control.SetWriteDeadline(time.Now().Add(writeWait))
	return w.ResponseWriter.Write(b)
}
