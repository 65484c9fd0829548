package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

type daemon func(r *http.Request) (*http.Response, error)

func (d daemon) RoundTrip(r *http.Request) (*http.Response, error) { return d(r) }

func rulesTo(d daemon) Rules {
	return Rules{
		Transport: d,
		To: func(r *http.Request) *url.URL {
			return &url.URL{Scheme: "http", Host: "there", Path: "/new" + r.URL.Path}
		},
		Headers:  []string{"Accept"},
		Complete: func(h http.Header, _ *http.Request) { h.Set("Muster-User", "ada") },
		Check: func(answer *http.Response) error {
			if answer.StatusCode == http.StatusFound {
				return errors.New("it answered 302")
			}
			return nil
		},
		Failed: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, err)
		},
		Chunk: 1 << 10, Log: slog.New(slog.DiscardHandler),
	}
}

func answer(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Set-Cookie": {"a=b"}, "Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("text"))}
}

// Only the listed headers go there, and an answer that a browser would run is made a file.
func TestOnlyListedHeadersAreForwarded(t *testing.T) {
	for name, socket := range map[string]bool{"request": false, "WebSocket": true} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			proxy := New(rulesTo(func(r *http.Request) (*http.Response, error) {
				got = r
				return answer(http.StatusOK), nil
			}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://here/v1/jobs", nil)
			for _, k := range []string{"Accept", "Cookie", "Authorization", "Muster-User", "X-Forwarded-For", "Sec-Websocket-Key", "Sec-Websocket-Protocol"} {
				r.Header.Set(k, "from a browser")
			}
			if socket {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, r)
			if got.URL.String() != "http://there/new/v1/jobs" || got.Host != "there" {
				t.Errorf("sent to %s of %s, want http://there/new/v1/jobs", got.URL, got.Host)
			}
			want := map[string]string{"Accept": "from a browser", "Muster-User": "ada"}
			if socket {
				want["Connection"], want["Upgrade"], want["Sec-Websocket-Key"] = "Upgrade", "websocket", "from a browser"
			}
			for k := range got.Header {
				if k != "User-Agent" && got.Header.Get(k) != want[k] {
					t.Errorf("%s: got %q, want %q", k, got.Header.Get(k), want[k])
				}
			}
			for k := range want {
				if got.Header.Get(k) == "" {
					t.Errorf("want the header %s", k)
				}
			}
			if w.Header().Get("Set-Cookie") != "" || w.Header().Get("Content-Type") != "application/octet-stream" || w.Body.String() != "text" {
				t.Errorf("answer: got %v %q, want a file without cookies", w.Header(), w.Body)
			}
		})
	}
}

func TestFailureIsReportedUnlessTheClientLeft(t *testing.T) {
	late := errors.New("no answer in time")
	waits := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
	for name, c := range map[string]struct {
		daemon daemon
		cause  error
		text   string // empty: the connection is aborted
	}{
		"refused":       {func(*http.Request) (*http.Response, error) { return answer(http.StatusFound), nil }, nil, "it answered 302"},
		"no connection": {func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }, nil, "no route"},
		"late":          {waits, late, late.Error()},
		"client gone":   {waits, context.Canceled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cause != nil {
				cancel(c.cause)
			}
			w := httptest.NewRecorder()
			defer func() {
				if p := recover(); (p != nil) != (c.text == "") || w.Body.String() != c.text {
					t.Errorf("panic %v, got answer %q, want %q", p, w.Body, c.text)
				}
			}()
			New(rulesTo(c.daemon)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://here/", nil))
		})
	}
}
