package api

// Tests on real sockets, for behaviour of the kernel.

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// serve runs a server on real sockets, with fakes in memory.
func serve(t *testing.T, change func(*Config)) (*daemon, Config, context.CancelFunc) {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // t.TempDir can be longer than a socket's name may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &daemon{name: "amy", peer: "p1", group: 1, jobs: map[job.ID]job.Job{}, keys: map[string]job.ID{}, watchers: map[chan job.Job][]job.ID{}, logs: map[string]*testLog{}}
	d.cluster = &cluster{daemons: []*daemon{d}}
	cfg := DefaultConfig()
	cfg.Self, cfg.Socket, cfg.HTTP = d.peer, filepath.Join(dir, "run", "muster.sock"), "127.0.0.1:0"
	change(&cfg)
	d.openAudit(t)
	d.server, err = New(cfg, Needs{Audit: d.audit, Jobs: d, Explain: d, Watch: d, Node: d, Logs: d, Peers: d, Directory: d, Self: d, Measured: Measured{Metrics: measured{d}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if _, err := os.Stat(cfg.Socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket still exists: got %v, want ErrNotExist", err)
		}
	})
	select {
	case <-d.server.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return d, cfg, stop
}

func client(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The kernel reports the user at the other end of the socket.
func TestSocketTellsTheUser(t *testing.T) {
	d, cfg, _ := serve(t, func(*Config) {})
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	spec := job.DefaultSpec()
	spec.Command = []string{"true"}
	c := client(t, ClientConfig{Socket: cfg.Socket})
	j, err := c.Submit(t.Context(), spec, "")
	if err != nil || j.User != me.Username {
		t.Errorf("over the socket: got user %q, %v; want %q", j.User, err, me.Username)
	}
	if _, err := c.Invite(t.Context(), InviteRequest{}); err != nil {
		t.Errorf("the daemon's own user invites: got %v, want no error", err)
	}
	tcp := client(t, ClientConfig{Addr: d.server.HTTPAddr().String()})
	j2, err := tcp.Submit(t.Context(), spec, "")
	if err != nil || j2.User != "http" {
		t.Errorf("over TCP: got user %q, %v, want http", j2.User, err)
	}
	if _, err := tcp.Cancel(t.Context(), j.ID, Change{}); !errors.Is(err, ErrDenied) {
		t.Errorf("over TCP the job of %s is cancelled: got %v, want ErrDenied", me.Username, err)
	}
	if _, err := tcp.Invite(t.Context(), InviteRequest{}); !errors.Is(err, ErrDenied) {
		t.Errorf("over TCP anybody invites: got %v, want ErrDenied", err)
	}
	info, err := os.Stat(cfg.Socket)
	want := os.FileMode(0o600)
	if os.Getuid() == 0 {
		want = 0o666
	}
	if err != nil || info.Mode().Perm() != want {
		t.Errorf("the socket's mode: got %v, %v; want %v", info.Mode().Perm(), err, want)
	}
}

func TestSocketInUseIsNotReplaced(t *testing.T) {
	_, cfg, _ := serve(t, func(*Config) {})
	if _, err := listenSocket(t.Context(), cfg.Socket); err == nil || !strings.Contains(err.Error(), "already answers") {
		t.Errorf("a second daemon on one socket: got %v, want that one already answers", err)
	}
	stale := filepath.Join(filepath.Dir(cfg.Socket), "stale.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = listenSocket(t.Context(), stale); err != nil {
		t.Fatalf("a socket left by a killed daemon: %v", err)
	}
	l.Close()
	file := filepath.Join(filepath.Dir(cfg.Socket), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(t.Context(), file); err == nil {
		t.Error("a file was replaced by a socket")
	}
}

func TestErrorWithoutADaemonSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := client(t, ClientConfig{Socket: path}).Stats(t.Context())
	if !errors.Is(err, ErrUnavailable) || err.Error() != "no daemon answers on "+path+": start one with `muster daemon`" {
		t.Errorf("Stats = %v, want ErrUnavailable with the path and the command", err)
	}
	_, err = client(t, ClientConfig{Addr: "127.0.0.1:1"}).Stats(t.Context())
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1 (connection refused)") {
		t.Errorf("Stats = %v, want ErrUnavailable with the refused address", err)
	}
	for _, cfg := range []ClientConfig{{}, {Addr: "ftp://x"}, {Addr: "http://"}} {
		if _, err := NewClient(cfg); !errors.Is(err, ErrBad) {
			t.Errorf("NewClient(%+v) = %v, want ErrBad", cfg, err)
		}
	}
}

func TestTokenIsRequired(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, _ := serve(t, func(c *Config) { c.TokenFile, c.HTTPUser = file, "web" })
	addr := d.server.HTTPAddr().String()
	for token, want := range map[string]error{"0123456789abcdef-secret": nil, "": ErrUnauthorized, "0123456789abcdef-secreT": ErrUnauthorized} {
		if _, err := client(t, ClientConfig{Addr: addr, Token: token}).Stats(t.Context()); !errors.Is(err, want) || (err != nil && !strings.Contains(err.Error(), "--api-token FILE")) {
			t.Errorf("token %q: got %v, want %v", token, err, want)
		}
	}
	for _, text := range []string{"", "short", "two words that are long enough"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := tokenDigest(file); err == nil {
			t.Errorf("accepted the token file %q, want an error", text)
		}
	}
}

// Requests over TCP submit no jobs if no account is set for them. The error names the setting. All other requests work.
func TestRequestsOverTCPWithoutAnAccountSubmitNoJobs(t *testing.T) {
	d, _, _ := serve(t, func(c *Config) { c.HTTPReads = true })
	c := client(t, ClientConfig{Addr: d.server.HTTPAddr().String()})
	spec := job.DefaultSpec()
	spec.Command = []string{"true"}
	_, submitted := c.Submit(t.Context(), spec, "")
	_, offered := c.Offers(t.Context(), spec)
	for what, err := range map[string]error{"Submit": submitted, "Offers": offered} {
		if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "http-user") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s = %v, want ErrDenied with http-user, in one line", what, err)
		}
	}
	if len(d.jobs) != 0 {
		t.Errorf("got %d jobs, want 0", len(d.jobs))
	}
	if _, err := c.Jobs(t.Context(), JobFilter{}); err != nil {
		t.Errorf("Jobs = %v, want no error", err)
	}
}

// A web page in the user's browser can send requests to loopback, but the server refuses them.
func TestRequestsOfWebPagesAreRefused(t *testing.T) {
	d, _, _ := serve(t, func(*Config) {})
	addr := d.server.HTTPAddr().String()
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"a program":        {"X-Nothing", "1", http.StatusCreated},
		"the same origin":  {"Origin", "http://" + addr, http.StatusCreated},
		"another origin":   {"Origin", "http://evil.example", http.StatusForbidden},
		"across sites":     {"Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		"a rebinding name": {"Host", "evil.example", http.StatusForbidden},
		"localhost":        {"Host", "localhost:80", http.StatusCreated},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/jobs", strings.NewReader(`{"command":["true"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.header, c.value)
		if c.header == "Host" {
			req.Host = c.value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: got status %d, want %d", name, resp.StatusCode, c.status)
		}
	}
}

// Nor can a web page read an answer, or have the browser use one, though GET changes nothing.
func TestWebPagesCannotReadAnswers(t *testing.T) {
	d, _, _ := serve(t, func(*Config) {})
	addr := d.server.HTTPAddr().String()
	ask := func(method, path string, pairs ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(pairs); i += 2 {
			req.Header.Set(pairs[i], pairs[i+1])
			if pairs[i] == "Host" {
				req.Host = pairs[i+1]
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	for _, path := range []string{"/v1/stats", "/metrics", "/docs", "/openapi.json", "/health", "/ui/x"} {
		for name, pairs := range map[string][]string{
			"across sites": {"Sec-Fetch-Site", "cross-site"}, "another port of this host": {"Sec-Fetch-Site", "same-site"}, "another origin": {"Origin", "http://evil.example"},
			"another port": {"Origin", "http://127.0.0.1:1"}, "a rebinding name": {"Host", "evil.example"}, "another address": {"Host", "10.0.0.1"},
		} {
			if resp := ask(http.MethodGet, path, pairs...); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%s: GET %s: got %d %v, want 403 and the policy same-origin", name, path, resp.StatusCode, resp.Header)
			}
		}
	}
	if resp := ask(http.MethodOptions, "/v1/jobs", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST"); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight request: got %d %v, want 405", resp.StatusCode, resp.Header)
	}
	if resp := ask(http.MethodGet, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"); resp.StatusCode != http.StatusOK {
		t.Errorf("a link to the page: got status %d, want 200", resp.StatusCode)
	}
}

// The page is for everybody. Its data needs the token, and a WebSocket needs a ticket, for which the token is needed.
func TestPageNeedsNoTokenAndDataDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	const secret = "0123456789abcdef-secret"
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, _ := serve(t, func(c *Config) { c.TokenFile, c.Hosts = file, []string{"gpu.example"} })
	addr := d.server.HTTPAddr().String()
	for name, c := range map[string]struct {
		method, path, host, token, kind string
		status                          int
	}{
		"the page":                      {"GET", "/", "", "", "text/html; charset=utf-8", 200},
		"a page":                        {"GET", "/jobs/x", "", "", "text/html; charset=utf-8", 200},
		"by a name of the settings":     {"GET", "/", "gpu.example", "", "text/html; charset=utf-8", 200},
		"by an address":                 {"GET", "/", "10.1.2.3:80", "", "text/html; charset=utf-8", 200},
		"by another name":               {"GET", "/", "evil.example", "", "application/problem+json", 403},
		"by another name with token":    {"GET", "/v1/stats", "evil.example", secret, "application/problem+json", 403},
		"what it shows":                 {"GET", "/v1/stats", "", "", "application/problem+json", 401},
		"what it shows, with the token": {"GET", "/v1/stats", "", secret, "application/json", 200},
		"a ticket":                      {"POST", "/v1/tickets", "", "", "application/problem+json", 401},
		"a ticket, with the token":      {"POST", "/v1/tickets", "", secret, "application/json", 201},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+addr+c.path, strings.NewReader(`{"target":"/v1/jobs/x/tasks/0/exec"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.host != "" {
			req.Host = c.host
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != c.status || kind != c.kind {
			t.Errorf("%s: got %d %s, want %d %s", name, resp.StatusCode, kind, c.status, c.kind)
		}
	}
	if entries, err := os.ReadFile(filepath.Join(d.auditDir, "audit.jsonl")); err == nil && strings.Contains(string(entries), secret) {
		t.Errorf("the audit log has the token, want none:\n%s", entries)
	}
}

// With a certificate the API is served over TLS only.
func TestAPIWithACertificateIsServedOverTLSOnly(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	pool := newCertificate(t, certFile, keyFile, 1)
	d, _, _ := serve(t, func(c *Config) { c.CertFile, c.KeyFile = certFile, keyFile })
	addr := d.server.HTTPAddr().String()
	if _, err := client(t, ClientConfig{Addr: addr}).Stats(t.Context()); err == nil {
		t.Error("the API is served without TLS too")
	}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer browser.CloseIdleConnections()
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/v1/stats": "application/json"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://"+addr)
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind || resp.ProtoMajor != 2 {
			t.Errorf("%s: got %d %v over %s, want 200 over HTTP/2", path, resp.StatusCode, resp.Header, resp.Proto)
		}
	}
}

// A page may open a WebSocket to any host, because that is a GET. The daemon to which it is forwarded does not see the
// page's origin.
func TestWebPagesCannotOpenWebSockets(t *testing.T) {
	d, _, _ := serve(t, func(*Config) {})
	addr := d.server.HTTPAddr().String()
	elsewhere := job.NewID(2, 1)
	for origin, want := range map[string]int{"http://evil.example": http.StatusForbidden, "": http.StatusNotFound} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/jobs/"+string(elsewhere)+"/tasks/0/exec", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": origin} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("origin %q: got status %d, want %d", origin, resp.StatusCode, want)
		}
	}
}

func TestHTTPBeyondLoopbackNeedsAToken(t *testing.T) {
	for http, ok := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "localhost:0": true, "": true, ":80": false, "0.0.0.0:80": false, "10.0.0.1:80": false, "x": false,
	} {
		cfg := DefaultConfig()
		cfg.Self, cfg.HTTP = "p", http
		if err := cfg.Validate(); (err == nil) != ok {
			t.Errorf("http %q: got %v, want valid %v", http, err, ok)
		}
	}
	cfg := DefaultConfig()
	cfg.Self, cfg.HTTP, cfg.TokenFile = "p", "0.0.0.0:80", "/some/file"
	if err := cfg.Validate(); err != nil {
		t.Errorf("with a token: got %v, want no error", err)
	}
	for _, cfg := range []Config{{HTTPUser: "http"}, {Self: "p"}, {Self: "p", HTTPUser: "a b"}} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("accepted %+v, want an error", cfg)
		}
	}
}

// A server that stops ends its streams at once.
func TestStopEndsStreamsAtOnce(t *testing.T) {
	_, cfg, stop := serve(t, func(*Config) {})
	c := client(t, ClientConfig{Socket: cfg.Socket})
	opened := make(chan struct{})
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(gone)
		for e := range c.Events(ctx, EventFilter{}) {
			switch e.Kind {
			case EventOpen:
				close(opened)
			case EventSilent:
				return
			case EventJob, EventGone, EventTask, EventNode, EventGPU, EventMember, EventGap:
			}
		}
	}()
	<-opened
	began := time.Now()
	stop()
	<-gone
	if took := time.Since(began); took > stopWait {
		t.Errorf("the stream ended after %s, want at most %v", took, stopWait)
	}
}
