package api

// Who asks, by which door, and what each door lets through.

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// authenticator says who makes a request.
type authenticator struct {
	httpUser  string
	operators []string
	tokenFile string
	token     atomic.Pointer[[]byte] // digest of the bearer token; nil: none
}

func newAuthenticator(cfg Config) (*authenticator, error) {
	a := &authenticator{httpUser: cfg.HTTPUser, operators: cfg.Operators, tokenFile: cfg.TokenFile}
	return a, a.readToken()
}

// identify says who makes a request that came in by this door.
func (a *authenticator) identify(from origin, r *http.Request) (asker, error) {
	switch from {
	case fromSocket:
		c, ok := r.Context().Value(callerKey{}).(caller)
		if !ok || c.err != nil {
			return asker{}, fmt.Errorf("%w: who is at the other end of the socket is not known", ErrUnauthorized)
		}
		return asker{from: from, user: c.name, operator: c.uid == 0 || c.uid == os.Getuid() || a.isOperator(c.name)}, nil
	case fromTCP:
		if err := a.checkTCP(r); err != nil {
			return asker{}, err
		}
		return asker{from: from, user: a.httpUser, operator: a.isOperator(a.httpUser)}, nil
	case fromPeer:
		name, err := url.QueryUnescape(r.Header.Get(headerUser))
		if err != nil || (name != "" && !validUser(name)) {
			return asker{}, bad("header %s: no user's name", headerUser)
		}
		return asker{from: from, user: name, operator: a.isOperator(name) || r.Header.Get(headerOperator) == "1"}, nil
	}
	return asker{}, ErrUnauthorized
}

func (a *authenticator) isOperator(user string) bool { return slices.Contains(a.operators, user) }

const maxUser = 64

func validUser(name string) bool {
	return name != "" && len(name) <= maxUser && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == ':' || r == '/' })
}

// checkTCP wants the token where there is one. Where there is none only this
// host can connect, but so can any web page that its user looks at: hence no
// other origin, and no other name for this host.
func (a *authenticator) checkTCP(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fmt.Errorf("%w: a web page of another origin may not use this daemon", ErrDenied)
	}
	want := a.token.Load()
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
		return fmt.Errorf("%w: the bearer token of this daemon (--api-token FILE) is missing or wrong", ErrUnauthorized)
	}
	return nil
}

// readToken reads the token file again, if there is one; on an error the token stays what it was.
func (a *authenticator) readToken() error {
	if a.tokenFile == "" {
		return nil
	}
	digest, err := tokenDigest(a.tokenFile)
	if err == nil {
		a.token.Store(&digest)
	}
	return err
}

// open says whether requests over TCP need no token.
func (a *authenticator) open() bool { return a.token.Load() == nil }

// tokenDigest reads the bearer token and keeps only its digest.
func tokenDigest(file string) ([]byte, error) {
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
