package door

// The load that the door bears: many tabs, and strangers who keep connections open.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// stream opens a stream and reads its first line.
func (s *setting) stream(ctx context.Context) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, here+"/v1/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.secret)
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "event: open\n" {
		s.t.Fatalf("the stream begins with %q, %v, want an open event", line, err)
	}
	return resp
}

// 300 tabs have a stream each, for an hour. Other requests are served meanwhile, and a tab that closes leaves nothing
// behind.
func TestManyTabsLeaveTheDoorResponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int64
		s := open(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/events" {
				return
			}
			streams.Add(1)
			defer streams.Add(-1)
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				fmt.Fprint(w, "event: open\n")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Minute):
				}
			}
		})
		const tabs = 300
		ctx, leave := context.WithCancel(t.Context())
		var open []*http.Response
		for range tabs {
			resp := s.stream(ctx)
			open = append(open, resp)
			go io.Copy(io.Discard, resp.Body)
		}
		time.Sleep(time.Hour)
		if n := streams.Load(); n != tabs {
			t.Errorf("got %d open streams after an hour, want %d", n, tabs)
		}
		if a := s.ask("GET", "/v1/jobs", ""); a.StatusCode != http.StatusOK {
			t.Errorf("another request: got status %d, want 200", a.StatusCode)
		}
		leave()
		for _, resp := range open {
			resp.Body.Close()
		}
		synctest.Wait()
		if n := streams.Load(); n != 0 {
			t.Errorf("got %d open streams for tabs that are gone, want 0", n)
		}
	})
}

// A tab that does not read is disconnected.
func TestTabThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, flood := make(chan time.Duration, 1), make(chan struct{})
		s := open(t, func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			fmt.Fprint(w, "event: open\n")
			_ = http.NewResponseController(w).Flush()
			<-flood
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
			gone <- time.Since(began)
		})
		defer s.stream(t.Context()).Body.Close()
		// The proxy flushes the first bytes in a goroutine of its own, which shares a lock with later writes. If one of
		// these held the lock, the bubble's time would stand still.
		synctest.Wait()
		close(flood)
		if took := <-gone; took < writeWait || took > 2*writeWait {
			t.Errorf("the tab was disconnected after %s, want %v to %v", took, writeWait, 2*writeWait)
		}
	})
}

// A client that sends nothing, or little, is disconnected in seconds.
func TestSlowStrangersAreDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nothing)
		for name, text := range map[string]string{
			"silent": "", "half a header": "GET / HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nX: ",
			"half a body": "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nContent-Length: 1000000\r\n\r\n{",
			"half a code": "POST /door/trade HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		} {
			c, err := s.wire.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			go io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
			if took := time.Since(began); took > bodyTimeout+time.Second {
				t.Errorf("%s: closed after %s, want at most %v", name, took, bodyTimeout+time.Second)
			}
			c.Close()
		}
	})
}

// Strangers with many connections displace each other. A browser that has shown the secret keeps its connection, and
// one that arrives gets one.
func TestManyStrangersKeepNoBrowserOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := open(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/events" {
				fmt.Fprint(w, "event: open\n")
				_ = http.NewResponseController(w).Flush()
				<-release
				fmt.Fprint(w, "end")
			}
		})
		mine := s.stream(t.Context())
		var all []net.Conn
		for range 2 * maxConnections {
			c, err := s.wire.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		if a := s.ask("GET", "/v1/jobs", ""); a.StatusCode != http.StatusOK {
			t.Errorf("a browser that arrives: got status %d, want 200", a.StatusCode)
		}
		close(release)
		if text, err := io.ReadAll(mine.Body); err != nil || string(text) != "end" {
			t.Errorf("the earlier stream: got %q, %v, want its end", text, err)
		}
		mine.Body.Close()
		for _, c := range all {
			c.Close()
		}
	})
}

// A page opens a WebSocket with a ticket of this door, for this target, once.
func TestWebSocketNeedsATicketOfTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, func(w http.ResponseWriter, r *http.Request) {
			if h := r.Header; h.Get("Origin") != "" || h.Get("Authorization") != "" || h.Get("Sec-Websocket-Protocol") != "" {
				t.Errorf("the daemon got %v, want no origin, secret or ticket", h)
			}
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer c.CloseNow()
			kind, m, err := c.Read(r.Context())
			if err == nil {
				_ = c.Write(r.Context(), kind, append([]byte("echo "), m...))
				_, _, _ = c.Read(r.Context())
			}
		})
		const target = "/v1/jobs/a/tasks/0/exec?x=1"
		ticket := func() string {
			t.Helper()
			a := s.ask("POST", pathTickets, `{"target":"`+target+`"}`)
			var text string
			if _, err := fmt.Sscanf(a.body, `{"ticket":"%26s`, &text); err != nil || a.StatusCode != http.StatusCreated {
				t.Fatalf("got %d %s %v, want a ticket", a.StatusCode, a.body, err)
			}
			return text
		}
		dial := func(target, origin, ticket string) (*websocket.Conn, error) {
			header := http.Header{}
			if origin != "" {
				header.Set("Origin", origin)
			}
			c, resp, err := websocket.Dial(t.Context(), here+target, &websocket.DialOptions{HTTPClient: s.browser, HTTPHeader: header, Subprotocols: []string{"muster", "muster.ticket." + ticket}})
			if err != nil && resp == nil {
				return nil, errors.New("no answer")
			}
			return c, err
		}
		mine := ticket()
		c, err := dial(target, here, mine)
		if err != nil || c.Subprotocol() != "muster" {
			t.Fatalf("with a ticket: got %v, want no error", err)
		}
		if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			t.Error(err)
		}
		if _, m, err := c.Read(t.Context()); err != nil || string(m) != "echo hello" {
			t.Errorf("Read = %q, %v, want %q", m, err, "echo hello")
		}
		c.CloseNow()
		s.reached()
		for name, x := range map[string][3]string{
			"used twice": {target, here, mine}, "none": {target, here, ""}, "guessed": {target, here, "AAAAAAAAAAAAAAAAAAAAAAAAAA"}, "another target": {"/v1/jobs/b/tasks/0/exec", here, ticket()},
			"another origin": {target, "http://127.0.0.1:4001", ticket()}, "no origin": {target, "", ticket()},
		} {
			if _, err := dial(x[0], x[1], x[2]); err == nil || err.Error() == "no answer" {
				t.Errorf("%s: got %v, want a refusal", name, err)
			}
		}
		if a := s.ask("GET", target, "", "Connection", "Upgrade", "Upgrade", "h2c", "Sec-Websocket-Protocol", "muster.ticket."+ticket()); a.StatusCode != http.StatusUnauthorized {
			t.Errorf("another protocol: status %d, want 401", a.StatusCode)
		}
		for _, body := range []string{"", "{}", `{"target":"http://evil.example/v1/"}`, `{"target":"/peer/v1/x"}`} {
			if a := s.ask("POST", pathTickets, body); a.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("a ticket for %q: status %d, want 422", body, a.StatusCode)
			}
		}
		if got := s.reached(); len(got) > 0 {
			t.Errorf("the daemon got requests %q, want none", got)
		}
	})
}
