package api

// Who makes a request, and which rights that user or daemon has.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/dashboard/origin"
	accounts "github.com/musterhq/muster/internal/osuser"
	"github.com/musterhq/muster/job"
)

// requestOrigin is the kind of listener on which a request arrived.
type requestOrigin int

const (
	fromSocket requestOrigin = iota
	fromTCP
	fromPeer
)

// requester is the user or daemon that makes a request.
type requester struct {
	from     requestOrigin
	user     string
	operator bool // may change the jobs of all users
	ownOnly  bool // this daemon shows users only their own jobs
	reads    bool // submits no jobs; see Config.HTTPReads
	scraper  bool // has the token for metrics: reads only metrics, those of all users
	daemon   job.Peer
	roles    []string // the present roles of the daemon, by its credential
	uid, pid int      // of the process at the other end of the socket
	ticket   bool     // a web page that has shown a ticket for a WebSocket
	note     *note    // for the audit log
}

// The roles of a daemon, as the cluster names them.
const (
	roleWorker    = "worker"
	roleScheduler = "scheduler"
)

// daemonMay returns an error if another daemon makes the request and is not one of the callers.
func (a requester) daemonMay(c callers) error {
	need := ""
	switch {
	case a.from != fromPeer, c == anyMember, c == workers && slices.Contains(a.roles, roleWorker), slices.Contains(a.roles, roleScheduler):
		return nil
	case c == workers:
		need = roleWorker + " or "
	}
	return fmt.Errorf("%w: this needs a daemon with the role %s, and daemon %s has %s; ask at a daemon that has it",
		ErrDenied, need+roleScheduler, a.daemon.Short(), cmp.Or(strings.Join(a.roles, ","), "none"))
}

// maySubmit returns an error if the requester cannot submit jobs, because the user has no account; see Config.HTTPReads.
func (a requester) maySubmit() error {
	if !a.reads {
		return nil
	}
	return fmt.Errorf("%w: submit over TCP: this daemon of root does not know as which account to run the job; name it with the setting http-user of the daemon, or submit on its socket", ErrDenied)
}

type requesterKey struct{}

// requesterOf returns who makes the request. The zero requester has no rights.
func requesterOf(ctx context.Context) requester {
	a, _ := ctx.Value(requesterKey{}).(requester)
	return a
}

// caller is the user at the other end of a connection. On the unix socket the kernel reports it.
type caller struct {
	account // its user is a uid, because a name would need a lookup; over TCP its user is an address

	uid int
	pid int
	err error // why the user is not known

	mu   sync.Mutex
	name string // guarded by mu; empty: not looked up yet
}

// callerOf asks the kernel for the user at the other end of a unix socket.
func callerOf(conn net.Conn) *caller {
	unknown := func(err error) *caller { return &caller{err: fmt.Errorf("api: peer credentials: %w", err)} }
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return unknown(fmt.Errorf("%T is not a unix socket", conn))
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return unknown(err)
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return unknown(err)
	}
	if inner != nil {
		return unknown(inner)
	}
	uid := int(cred.Uid)
	return &caller{uid: uid, pid: int(cred.Pid), account: account{party: party{user: strconv.Itoa(uid)}, operator: runsIt(uid)}}
}

// runsIt reports whether a user is root, or runs this daemon.
func runsIt(uid int) bool { return uid == 0 || uid == os.Getuid() }

// userName returns the name of the user of the unix socket. It calls nameOf until that succeeds once.
func (c *caller) userName(nameOf func(uid int) (string, error)) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.name != "" {
		return c.name, nil
	}
	name, err := nameOf(c.uid)
	if err != nil {
		return "", fmt.Errorf("%w: the name of the user with uid %d is not known now: %w; try again", ErrUnavailable, c.uid, err)
	}
	c.name = name
	return name, nil
}

// NameOf returns the name by which a user of this host is known in the cluster. For a user without a name, as in a
// minimal container, it is the uid. NameOf returns an error if a directory service does not answer.
func NameOf(uid int) (string, error) {
	name, err := accounts.Name(uint32(uid)) //nolint:gosec // the kernel has 32 bits
	if _, nameless := errors.AsType[user.UnknownUserIdError](err); nameless {
		return strconv.Itoa(uid), nil
	}
	return name, err
}

// authenticator determines who makes a request.
type authenticator struct {
	httpUser     string
	httpReads    bool // see Config.HTTPReads
	operators    []string
	ownOnly      bool
	tokenFile    string
	metricsToken metricsToken
	peers        Peers        // says which roles other daemons have
	guard        origin.Guard // of HTTP over TCP
	tickets      *origin.Tickets[requester]
	nameOf       func(uid int) (string, error)
	token        atomic.Pointer[[]byte] // digest of the bearer token; nil: none
}

func newAuthenticator(cfg Config, peers Peers) (*authenticator, error) {
	a := &authenticator{peers: peers, httpUser: cfg.HTTPUser, httpReads: cfg.HTTPReads, operators: cfg.Operators, ownOnly: cfg.OwnOnly, tokenFile: cfg.TokenFile, metricsToken: metricsToken{file: cfg.MetricsTokenFile}, guard: guardOf(cfg), tickets: &origin.Tickets[requester]{}, nameOf: NameOf}
	return a, a.readToken()
}

// identify returns the requester of a request that arrived on this kind of listener. It also sets ownOnly.
func (a *authenticator) identify(from requestOrigin, r *http.Request) (requester, error) {
	who, err := a.identity(from, r)
	who.ownOnly = a.ownOnly
	return who, err
}

func (a *authenticator) identity(from requestOrigin, r *http.Request) (requester, error) {
	switch from {
	case fromSocket:
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok || c.err != nil {
			return requester{}, fmt.Errorf("%w: the user at the other end of the socket is unknown", ErrUnauthorized)
		}
		name, err := c.userName(a.nameOf)
		if err != nil {
			return requester{}, err
		}
		return requester{from: from, user: name, uid: c.uid, pid: c.pid, operator: runsIt(c.uid) || a.isOperator(name)}, nil
	case fromTCP:
		if err := checkPage(a.guard, r, false); err != nil {
			return requester{}, err
		}
		if origin.IsSocket(r) && r.Header.Get("Origin") != "" {
			return a.byTicket(r)
		}
		return a.byToken(r)
	case fromPeer:
		daemon := job.Peer(r.RemoteAddr) // the remote address of a stream is the peer
		by := requester{from: from, daemon: daemon, roles: a.peers.RolesOf(daemon)}
		if !slices.Contains(by.roles, roleScheduler) {
			return by, nil // a daemon without the role scheduler has no jobs, and so no users
		}
		name, err := url.QueryUnescape(r.Header.Get(headerUser))
		if err != nil || (name != "" && !validUser(name)) {
			return requester{}, bad("header %s: not a user name", headerUser)
		}
		by.user, by.operator = name, a.isOperator(name) || r.Header.Get(headerOperator) == "1"
		return by, nil
	}
	return requester{}, ErrUnauthorized
}

func (a *authenticator) isOperator(user string) bool { return slices.Contains(a.operators, user) }

const maxUser = 64

func validUser(name string) bool {
	return name != "" && len(name) <= maxUser && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == ':' || r == '/' })
}

// byToken returns the requester of a request over TCP, by its token.
func (a *authenticator) byToken(r *http.Request) (requester, error) {
	err := a.checkToken(r)
	switch {
	case err == nil:
		return requester{from: fromTCP, user: a.httpUser, operator: a.isOperator(a.httpUser), reads: a.httpReads}, nil
	case a.metricsToken.opens(r):
		return requester{from: fromTCP, user: scraperUser, reads: true, scraper: true}, nil
	}
	return requester{}, err
}

// checkToken checks the bearer token if the daemon has one. Without a token all programs of this host may connect, but not
// web pages in a browser on it; see guardOf.
func (a *authenticator) checkToken(r *http.Request) error {
	want := a.token.Load()
	if want == nil {
		return nil
	}
	if !bears(r, *want) {
		return fmt.Errorf("%w: the bearer token of this daemon (--api-token FILE) is missing or wrong", ErrUnauthorized)
	}
	return nil
}

// bears reports whether a request has the token with this digest.
func bears(r *http.Request, want []byte) bool {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	digest := sha256.Sum256([]byte(text))
	return ok && subtle.ConstantTimeCompare(digest[:], want) == 1
}

// readToken reads the token files again, if there are any. On an error the old token stays.
func (a *authenticator) readToken() error {
	if a.tokenFile == "" {
		return nil
	}
	digest, err := tokenDigest(a.tokenFile)
	if err == nil {
		a.token.Store(&digest)
	}
	return errors.Join(err, a.metricsToken.read(a.token.Load()))
}

// open reports whether requests over TCP need no token.
func (a *authenticator) open() bool { return a.token.Load() == nil }

// tokenDigest reads the bearer token and returns only its digest.
func tokenDigest(file string) ([]byte, error) {
	text, err := ReadPrivate(file, maxTokenFile)
	if err != nil {
		return nil, fmt.Errorf("api: token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return nil, fmt.Errorf("api: token file %s: want one word of at least %d characters", file, minToken)
	}
	digest := sha256.Sum256([]byte(token))
	return digest[:], nil
}
