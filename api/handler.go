package api

// What stands between a listener and the routes: who asks, deadlines, bounds, and panics.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"
)

// handler is everything between a listener and the routes.
func (s *Server) handler(from origin) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		out := &response{ResponseWriter: w, control: http.NewResponseController(w)}
		defer s.served(r, out, began)
		a, err := s.auth.identify(from, r)
		if err == nil && r.Header.Get("Upgrade") != "" && r.Header.Get("Origin") != "" {
			// Browsers let any page open a WebSocket, and say whose it is. It is
			// looked at here, as the header is not passed on to other daemons.
			err = fmt.Errorf("%w: a web page may not run commands", ErrDenied)
		}
		if err != nil {
			refuse(out, err)
			return
		}
		r.Body = &body{ReadCloser: http.MaxBytesReader(out, r.Body, bodyBound(r.URL.Path)), control: out.control}
		*r = *r.WithContext(context.WithValue(r.Context(), askerKey{}, a))
		s.routes.ServeHTTP(out, r)
	})
}

// served ends every request.
func (s *Server) served(r *http.Request, out *response, began time.Time) {
	s.metrics.served(r.Pattern, out.status, time.Since(began))
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared, as net/http does
		s.log.ErrorContext(r.Context(), "request handler panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// body has a deadline that ends with it: one that outlived the body would end
// the request while it is being answered. A large one has it anew for each
// part.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	begun   bool
	read    int // bytes since the deadline was set
}

// Read is of the request's body.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun || b.read >= bodyTimed {
		b.begun, b.read = true, 0
		_ = b.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // as in response.Write
	}
	n, err := b.ReadCloser.Read(p)
	b.read += n
	if errors.Is(err, io.EOF) { // after any other error net/http reads on, and not for ever
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// response notes the status and gives up on a reader who takes nothing.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *response) WriteHeader(status int) {
	if w.status == 0 || w.status/100 == 1 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write is under a deadline of its own.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	// A listener that knows no deadlines has others: a member is cut off when it
	// is silent.
	_ = w.control.SetWriteDeadline(time.Now().Add(writeWait))
	return w.ResponseWriter.Write(b)
}
