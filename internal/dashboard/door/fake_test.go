package door

// A door in memory, between a daemon and a browser.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

const here = "http://127.0.0.1:4000"

// wire is a listener in memory.
type wire struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), done: make(chan struct{})} }

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error { w.once.Do(func() { close(w.done) }); return nil }

func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case w.conns <- theirs:
		return ours, nil
	case <-w.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) transport() *http.Transport {
	return &http.Transport{DialContext: w.dial, DisableCompression: true, MaxIdleConnsPerHost: 400}
}

// setting is a door with a daemon behind it.
type setting struct {
	*Door
	t       *testing.T
	wire    *wire
	browser *http.Client
	mu      sync.Mutex
	asked   []*http.Request // guarded by mu: what the daemon got
	notices []string        // guarded by mu
}

// open runs a door for a daemon with this handler, until the test ends.
func open(t *testing.T, daemon http.HandlerFunc) *setting {
	t.Helper()
	s := &setting{t: t, wire: newWire()}
	back := newWire()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		daemon(w, r)
	})}
	go server.Serve(back)
	to := back.transport()
	s.Door = behind(Config{To: to, Notice: func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notices = append(s.notices, text)
	}}, []net.Listener{s.wire})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	before := s.wire.transport()
	s.browser = &http.Client{Transport: before}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		before.CloseIdleConnections()
		to.CloseIdleConnections()
		server.Close()
	})
	return s
}

// answered is an answer that was read to its end.
type answered struct {
	*http.Response
	body string
}

// ask sends a request as a page of the door does, changed by pairs of header and value; "" removes a header.
func (s *setting) ask(method, path, body string, pairs ...string) answered {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, here+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = http.Header{"Origin": {here}, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/json"}, "Authorization": {"Bearer " + s.secret}}
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			r.Header.Del(pairs[i])
		}
		if pairs[i] == "Host" {
			r.Host = pairs[i+1]
			r.Header.Del("Host")
		}
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answered{resp, string(text)}
}

// reached returns the requests that the daemon got since the last call.
func (s *setting) reached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.asked {
		all = append(all, r.Method+" "+r.URL.RequestURI())
	}
	s.asked = nil
	return all
}

func (s *setting) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notices)
}

// newCode returns the code of a new address.
func (s *setting) newCode() string {
	s.t.Helper()
	address, err := s.Address("")
	if err != nil {
		s.t.Fatal(err)
	}
	_, code, ok := strings.Cut(address, here+"/#code=")
	if !ok {
		s.t.Fatalf("the address is %s, want one with a code", address)
	}
	return code
}

func (s *setting) tradeFor(code string) answered {
	s.t.Helper()
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(map[string]string{"code": code})
	return s.ask("POST", pathTrade, b.String(), "Authorization", "")
}
