package api

// Who asks, by which door, and what each door lets through.

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// origin is the kind of listener that a request came in by.
type origin int

const (
	fromSocket origin = iota
	fromTCP
	fromPeer
)

// asker is who makes a request.
type asker struct {
	from     origin
	user     string
	operator bool // may change the jobs of all
}

// mayChange says whether the asker may change, or see the secrets of, a job of
// that user.
func (a asker) mayChange(user string) bool { return a.operator || (a.user != "" && a.user == user) }

type askerKey struct{}

// askerOf is who makes the request; the zero asker has no rights.
func askerOf(ctx context.Context) asker {
	a, _ := ctx.Value(askerKey{}).(asker)
	return a
}

// caller is what the kernel says about the process at the other end of a unix
// socket.
type caller struct {
	uid  int
	name string
	err  error
}

type callerKey struct{}

// connContext asks the kernel once for each connection.
func connContext(from origin) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, conn net.Conn) context.Context {
		if from != fromSocket {
			return ctx
		}
		return context.WithValue(ctx, callerKey{}, callerOf(conn))
	}
}

func callerOf(conn net.Conn) caller {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return caller{err: fmt.Errorf("api: %T is no unix socket", conn)}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return caller{err: fmt.Errorf("api: peer credentials: %w", err)}
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return caller{err: fmt.Errorf("api: peer credentials: %w", err)}
	}
	if inner != nil {
		return caller{err: fmt.Errorf("api: peer credentials: %w", inner)}
	}
	uid := int(cred.Uid)
	name := strconv.Itoa(uid) // a user without a name, as in a bare container
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return caller{uid: uid, name: name}
}

// identify says who makes a request that came in by this door.
func (s *Server) identify(from origin, r *http.Request) (asker, error) {
	switch from {
	case fromSocket:
		c, ok := r.Context().Value(callerKey{}).(caller)
		if !ok || c.err != nil {
			return asker{}, fmt.Errorf("%w: who is at the other end of the socket is not known", ErrUnauthorized)
		}
		return asker{from: from, user: c.name, operator: c.uid == 0 || c.uid == os.Getuid() || s.isOperator(c.name)}, nil
	case fromTCP:
		if err := s.checkTCP(r); err != nil {
			return asker{}, err
		}
		return asker{from: from, user: s.cfg.HTTPUser, operator: s.isOperator(s.cfg.HTTPUser)}, nil
	case fromPeer:
		name, err := url.QueryUnescape(r.Header.Get(headerUser))
		if err != nil || (name != "" && !validUser(name)) {
			return asker{}, bad("header %s: no user's name", headerUser)
		}
		return asker{from: from, user: name, operator: s.isOperator(name) || r.Header.Get(headerOperator) == "1"}, nil
	}
	return asker{}, ErrUnauthorized
}

func (s *Server) isOperator(user string) bool { return slices.Contains(s.cfg.Operators, user) }

const maxUser = 64

func validUser(name string) bool {
	return name != "" && len(name) <= maxUser && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == ':' || r == '/' })
}

// checkTCP wants the token where there is one. Where there is none only this
// host can connect, but so can any web page that its user looks at: hence no
// other origin, and no other name for this host.
func (s *Server) checkTCP(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fmt.Errorf("%w: a web page of another origin may not use this daemon", ErrDenied)
	}
	want := s.token.Load()
	if want == nil {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !loopback(host) {
			return fmt.Errorf("%w: host %.100q is not this daemon's; use 127.0.0.1 or localhost", ErrDenied, r.Host)
		}
		return nil
	}
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	digest := sha256.Sum256([]byte(text))
	if !ok || subtle.ConstantTimeCompare(digest[:], *want) != 1 {
		return fmt.Errorf("%w: this daemon wants its bearer token (--api-token FILE), and was given none or another", ErrUnauthorized)
	}
	return nil
}

// ReadToken reads the token file again, if there is one; on an error the token
// stays what it was.
func (s *Server) ReadToken() error {
	if s.cfg.TokenFile == "" {
		return nil
	}
	digest, err := readToken(s.cfg.TokenFile)
	if err == nil {
		s.token.Store(&digest)
	}
	return err
}

// readToken reads the bearer token and keeps only its digest.
func readToken(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("api: token file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return nil, fmt.Errorf("api: token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return nil, fmt.Errorf("api: token file %s: want one word of at least %d letters", file, minToken)
	}
	digest := sha256.Sum256([]byte(token))
	return digest[:], nil
}

// gate bounds what is under way at one door.
type gate struct{ requests, streams chan struct{} }

func newGate() *gate {
	return &gate{make(chan struct{}, maxRequests), make(chan struct{}, maxStreams)}
}

// handler is everything between a listener and the routes.
func (s *Server) handler(from origin) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		out := &response{ResponseWriter: w, control: http.NewResponseController(w)}
		defer s.served(r, out, began)
		a, err := s.identify(from, r)
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
		s.mux.ServeHTTP(out, r)
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
