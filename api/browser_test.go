package api

// What web pages can send to the TCP listener, and what they can read from it.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
)

// ask sends a request and returns the answer.
func (d *daemon) ask(t *testing.T, method, path string, pairs ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:1"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// No route answers a browser with anything but data, whether it succeeds or not.
func TestEveryAnswerIsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := amy.put(running(amy.newJob(1), ben))
		var doc struct {
			Paths map[string]map[string]json.RawMessage `json:"paths"`
		}
		if err := json.NewDecoder(amy.ask(t, "GET", "/openapi.json").Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		// This comes first, because one of the routes below may forget the job.
		files := amy.ask(t, "GET", "/v1/jobs/"+string(j.ID)+"/tasks/0/files?path=a")
		if got := files.Header.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment; filename=") {
			t.Errorf("files come with %q, want an attachment", got)
		}
		fill := strings.NewReplacer("{t}", "0", "{id}", string(j.ID), "{group}", "x", "{hash}", "x")
		n := 0
		for path, methods := range doc.Paths {
			if path == "/v1/events" {
				continue // it does not end, and is tested below
			}
			for method := range methods {
				n++
				checkData(t, amy.ask(t, strings.ToUpper(method), fill.Replace(path), "Content-Type", "application/json"))
			}
		}
		for _, path := range []string{"/v1/jobs/" + string(j.ID) + "/tasks/0/files?path=a", "/v1/events", "/docs", "/metrics", "/openapi.json", "/nothing", "/v1/jobs/<script>"} {
			checkData(t, amy.ask(t, "GET", path))
		}
		if n < 30 {
			t.Errorf("got %d routes, want at least 30", n)
		}
	})
}

func checkData(t *testing.T, resp *http.Response) {
	t.Helper()
	h, where := resp.Header, resp.Request.Method+" "+resp.Request.URL.Path
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch {
	case kind == "text/html" && resp.Request.URL.Path != "/docs", strings.Contains(kind, "script"), strings.Contains(kind, "svg"), kind == "" && resp.StatusCode != http.StatusNoContent:
		t.Errorf("%s answers %d with %q, want data", where, resp.StatusCode, kind)
	}
	for k, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"} {
		if got := h.Get(k); got != want {
			t.Errorf("%s, header %s: got %q, want %q", where, k, got, want)
		}
	}
	if policy := h.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s has the policy %q, want default-src 'none' and nothing unsafe", where, policy)
	}
	if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "" {
		t.Errorf("%s: got %v, want no origin that may read it, and no cookie", where, h)
	}
}

// A hostile daemon that owns a job, or has its output, answers with a page. A browser gets a file that it saves.
func TestPageOfAHostileDaemonIsServedAsAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := amy.put(running(amy.newJob(1), ben))
		page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</evil.js>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			for k, v := range map[string]string{
				"Content-Type": "text/html", "Set-Cookie": "a=b", "Content-Security-Policy": "script-src *", "Access-Control-Allow-Origin": "*", "Refresh": "0;url=/x",
				"Content-Disposition": "inline", "Clear-Site-Data": `"*"`, "Service-Worker-Allowed": "/",
			} {
				w.Header().Set(k, v)
			}
			fmt.Fprint(w, "<script>alert(1)</script>")
		})
		moved := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusFound)
		})
		log := "/v1/jobs/" + string(j.ID) + "/tasks/0/logs"
		attempt := "/peer/v1/attempts/" + string(j.ID) + ".0.1/logs"
		ben.lies = map[string]any{attempt: page}
		resp := amy.ask(t, "GET", log)
		checkData(t, resp)
		h := resp.Header
		if h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("Link")+h.Get("Refresh")+h.Get("Clear-Site-Data")+h.Get("Service-Worker-Allowed") != "" {
			t.Errorf("the page of a host comes as %v, want a file to save", h)
		}
		for _, lie := range []any{moved, http.StatusUnauthorized, http.StatusBadGateway, http.StatusGatewayTimeout} { // a page would ask for the token, or say that this daemon does not answer
			ben.mu.Lock()
			ben.lies = map[string]any{attempt: lie}
			ben.mu.Unlock()
			if resp := amy.ask(t, "GET", log); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Location") != "" {
				t.Errorf("%v comes as %d %v, want 503 and no Location", lie, resp.StatusCode, resp.Header)
			}
		}
	})
}

// The document of a hostile daemon is cut off at the maximum size of documents, before it fills the memory of a
// browser.
func TestHostileDocumentIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.lies = map[string]any{"/v1/nodes/" + string(ben.peer) + "/usage": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			space := bytes.Repeat([]byte(" "), 1<<20)
			for range 2 * maxAnswer / len(space) {
				if _, err := w.Write(space); err != nil {
					return
				}
			}
		})}
		resp := amy.ask(t, "GET", "/v1/nodes/ben/usage")
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > maxAnswer {
			t.Errorf("got %d bytes, then %v, want an error after at most the largest answer", n, err)
		}
	})
}

// A page opens a WebSocket with a ticket, also to a task at another daemon. The ticket is valid for that task and for
// one use.
func TestTicketOpensOneWebSocketOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j, in := amy.fed(1, ben)
		close(in.gate)
		amy.put(running(j, ben))
		target := "/v1/jobs/" + string(j.ID) + "/tasks/0/attach"
		const origin = "http://127.0.0.1:1"
		ticket := func() string {
			t.Helper()
			out := &ticketOutput{}
			if err := amy.client.call(t.Context(), http.MethodPost, "/v1/tickets", nil, map[string]string{"target": target}, &out.Body); err != nil {
				t.Fatal(err)
			}
			return out.Body.Ticket
		}
		dial := func(target, origin, ticket string) (*websocket.Conn, int) {
			t.Helper()
			conn, resp, err := websocket.Dial(t.Context(), "http://127.0.0.1:1"+target, &websocket.DialOptions{
				HTTPClient: amy.client.http, HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{"muster", "muster.ticket." + ticket},
			})
			if resp == nil {
				t.Fatal(err)
			}
			return conn, resp.StatusCode
		}
		first := ticket()
		conn, status := dial(target, origin, first)
		if status != http.StatusSwitchingProtocols || conn.Subprotocol() != "muster" {
			t.Fatalf("with a ticket: got status %d, want 101", status)
		}
		if _, m, err := conn.Read(t.Context()); err != nil || m[0] != attachTaken {
			t.Errorf("Read = %q, %v, want that the task is attached", m, err)
		}
		conn.CloseNow()
		for name, x := range map[string]struct {
			target, origin, ticket string
			want                   int
		}{
			"used twice":     {target, origin, first, http.StatusUnauthorized},
			"another task":   {strings.Replace(target, "/0/", "/1/", 1), origin, ticket(), http.StatusUnauthorized},
			"none":           {target, origin, "", http.StatusUnauthorized},
			"another origin": {target, "http://evil.example", ticket(), http.StatusForbidden},
		} {
			if _, status := dial(x.target, x.origin, x.ticket); status != x.want {
				t.Errorf("%s: got %d, want %d", name, status, x.want)
			}
		}
		for _, wrong := range []string{"", "/peer/v1/x", "http://evil.example/v1/"} {
			if err := amy.client.call(t.Context(), http.MethodPost, "/v1/tickets", nil, map[string]string{"target": wrong}, nil); !errors.Is(err, ErrBad) {
				t.Errorf("a ticket for %q: got %v, want ErrBad", wrong, err)
			}
		}
		for range 300 {
			if err := amy.client.call(t.Context(), http.MethodPost, "/v1/tickets", nil, map[string]string{"target": target}, nil); err != nil {
				if !errors.Is(err, ErrTooMany) {
					t.Errorf("one ticket more than allowed: got %v, want ErrTooMany", err)
				}
				return
			}
		}
		t.Error("the number of tickets has no bound")
	})
}
