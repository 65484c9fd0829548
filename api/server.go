package api

// The server: its configuration and its listeners.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/keptsocket"
	"github.com/musterhq/muster/job"
)

// Config configures a server.
type Config struct {
	Self    job.Peer
	Version string
	Socket  string // path of the unix socket; empty: none
	HTTP    string // host:port; empty: none
	// TokenFile holds the bearer token that every request over TCP must have. Without one, HTTP must be a loopback
	// address.
	TokenFile string
	// MetricsTokenFile holds a token that only gives access to metrics; empty: there is none. It needs TokenFile.
	MetricsTokenFile string
	// CertFile and KeyFile are the certificate and the key for TLS on HTTP. They are read again when they change.
	CertFile, KeyFile string
	Hosts             []string // further host names that requests over TCP may have
	OwnOnly           bool     // users see only their own jobs; operators see all
	HTTPUser          string   // the user of requests over TCP
	HTTPReads         bool     // requests over TCP submit no jobs, because HTTPUser is no account of this host
	Operators         []string // users who may change the jobs of all users
}

// DefaultConfig returns a configuration without listeners.
func DefaultConfig() Config {
	return Config{Version: "dev", HTTPUser: "http", Operators: []string{"root"}}
}

// Validate returns an error that names a wrong setting.
func (c Config) Validate() error {
	if c.Self == "" {
		return errors.New("api: config: self is empty")
	}
	if !validUser(c.HTTPUser) {
		return fmt.Errorf("api: config: http user %.40q is not a user name", c.HTTPUser)
	}
	if c.HTTP == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		return fmt.Errorf("api: config: http %.100q: want host:port: %w", c.HTTP, err)
	}
	if c.TokenFile == "" && !loopback(host) {
		return fmt.Errorf("api: config: http %.100q can be reached from other hosts: give a token file, or listen on 127.0.0.1", c.HTTP)
	}
	if c.MetricsTokenFile != "" && c.TokenFile == "" {
		return errors.New("api: config: a token for metrics needs a token for everything else, because without one HTTP is open")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("api: config: a certificate needs its key, and a key its certificate")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Bounds of the server.
const (
	maxHeader     = 64 << 10         // the IDs of an event stream are the longest part
	headerTimeout = 5 * time.Second  // our own clients are faster
	bodyTimeout   = 10 * time.Second // for a body, or for each part of a large one
	bodyTimed     = job.MaxSpecBytes
	defaultBody   = job.MaxSpecBytes + 1 // bytes of most bodies: a job file
	idleTimeout   = 2 * time.Minute
	writeWait     = 30 * time.Second // a client that reads nothing for this time is disconnected
	stopWait      = 2 * time.Second  // for open requests when the daemon stops
	minToken      = 16               // characters of a bearer token
	maxTokenFile  = 4 << 10
)

// Server serves the API of this daemon. It forwards requests, so that it answers about the whole cluster.
type Server struct {
	cfg          Config
	auth         *authenticator
	daemons      *daemons
	follows      *followRoutes
	viewer       *viewer
	feeds        *feedRoutes
	routes       *http.ServeMux
	docs         http.Handler // also part of routes; here for browsers, which need no token for it
	metrics      *metrics
	log          *slog.Logger
	secure       *tls.Config  // for TCP; nil: no TLS
	entries      Audit        // nil: nothing is audited
	peerListener net.Listener // accepts connections of other daemons; may be nil
	admission    *admission
	ready        chan struct{} // closed when all listeners are open
	tcp          net.Addr      // set before ready is closed
}

// New returns a server; it does not listen before Run.
func New(cfg Config, needs Needs, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	auth, err := newAuthenticator(cfg, needs.Peers)
	if err != nil {
		return nil, err
	}
	secure, err := secureBy(cfg.CertFile, cfg.KeyFile, log)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(needs.Registry)
	if err != nil {
		return nil, err
	}
	limits := newAdmission(m)
	d := newDaemons(cfg.Self, needs.Peers, needs.Transport, m, log)
	d.clocks = needs.Clocks
	follows := &followRoutes{daemons: d, progress: needs.Progress, directory: needs.Directory}
	rt := newRouter(cfg, needs, d, follows, limits, auth.tickets, log)
	rt.forgetDocument()
	docs := limits.plain(Docs(cfg.Version))
	for _, path := range docsPaths {
		rt.mux.Handle("GET "+path, docs)
	}
	return &Server{
		cfg: cfg, auth: auth, daemons: d, follows: follows, viewer: rt.viewer, feeds: rt.feeds, routes: rt.mux, docs: docs, metrics: m, log: log, secure: secure,
		entries: needs.Audit, peerListener: needs.PeerListener, admission: limits, ready: make(chan struct{}),
	}, nil
}

// ReadToken reads the token files again, if there are any. On an error the old token stays.
func (s *Server) ReadToken() error { return s.auth.readToken() }

// Ready returns a channel that is closed when all listeners are open.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// HTTPAddr returns the TCP address of the server, or nil if it has none. Call it after Ready is closed.
func (s *Server) HTTPAddr() net.Addr { return s.tcp }

// Run listens and serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	lists, err := s.listen(ctx)
	if err != nil {
		return err
	}
	close(s.ready)
	failed := make(chan error, len(lists))
	var running sync.WaitGroup
	for _, l := range lists {
		running.Go(func() {
			if err := l.serve(); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("api: serve on %s: %w", l.Addr(), err)
			}
		})
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.admission.endStreams()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	for _, l := range lists {
		running.Go(func() {
			if l.server.Shutdown(ctx) != nil {
				_ = l.server.Close() // cuts off requests that have not ended in time
			}
		})
	}
	running.Wait()
	s.daemons.http.CloseIdleConnections()
	return err
}

// waysIn are the listeners whose connections are bounded here. Package peerhttp bounds the streams of other daemons.
var waysIn = map[requestOrigin]struct {
	who  func(net.Conn) *caller
	safe time.Duration
}{fromSocket: {callerOf, idleBefore}, fromTCP: {addressOf, 0}}

type listener struct {
	net.Listener
	server *http.Server
}

func (l listener) serve() error {
	if l.server.TLSConfig != nil {
		return l.server.ServeTLS(l.Listener, "", "") // the configuration has the certificate
	}
	return l.server.Serve(l.Listener)
}

// listen opens all listeners, or none.
func (s *Server) listen(ctx context.Context) ([]listener, error) {
	var lists []listener
	add := func(l net.Listener, from requestOrigin) {
		server := s.newServer(context.WithoutCancel(ctx), from)
		if way := waysIn[from]; way.who != nil {
			counted := newConnections(l, way.who, way.safe, s.metrics)
			l, server.ConnState = counted, counted.changed
		}
		lists = append(lists, listener{l, server})
	}
	fail := func(err error) ([]listener, error) {
		for _, l := range lists {
			l.Close()
		}
		return nil, err
	}
	if s.cfg.Socket != "" {
		l, err := keptsocket.Listen(s.cfg.Socket, func() (net.Listener, error) { return listenSocket(ctx, s.cfg.Socket) }, s.log)
		if err != nil {
			return fail(err)
		}
		add(l, fromSocket)
	}
	if s.cfg.HTTP != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.HTTP)
		if err != nil {
			return fail(fmt.Errorf("api: listen on %s: %w", s.cfg.HTTP, err))
		}
		s.tcp = l.Addr()
		add(l, fromTCP)
		lists[len(lists)-1].server.TLSConfig = s.secure
		host, _, err := net.SplitHostPort(s.tcp.String())
		here := err == nil && loopback(host)
		if s.secure == nil && !here {
			s.log.WarnContext(ctx, "the api is served to other hosts without tls, so that the network can read its token: set http-cert and http-key", "address", s.tcp.String())
		}
		if s.auth.open() && !here {
			return fail(fmt.Errorf("api: listen on %s: it resolved to %s, which other hosts can reach: give a token file", s.cfg.HTTP, s.tcp))
		}
	}
	if s.peerListener != nil {
		add(s.peerListener, fromPeer)
	}
	return lists, nil
}

func (s *Server) newServer(base context.Context, from requestOrigin) *http.Server {
	return &http.Server{
		Handler:           s.handler(from),
		ConnContext:       connContext,
		BaseContext:       func(net.Listener) context.Context { return base },
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// listenSocket opens the unix socket. It replaces a socket that a killed daemon has left behind.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	dirMode, mode := os.FileMode(0o700), os.FileMode(0o600)
	if os.Getuid() == 0 {
		dirMode, mode = 0o755, 0o666 // every user may connect; the kernel tells which user it is
	}
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		if err := os.MkdirAll(path[:i], dirMode); err != nil {
			return nil, fmt.Errorf("api: socket: %w", err)
		}
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("api: socket %s: a daemon already answers there; stop it, or give this one another --socket and --data-dir", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("api: socket %s: the file there is not a socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("api: socket: %w", err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("api: socket: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, fmt.Errorf("api: socket: %w", err)
	}
	return l, nil
}
