package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A browser that asks for a missing page gets one. Programs, and requests for files and routes of a daemon, do not.
func TestOnlyBrowsersGetAMissingPage(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		want                 bool
	}{
		{"GET", "/nosuch", browser, true},
		{"HEAD", "/nosuch", browser, true},
		{"GET", "/nosuch/a/b", "application/xml, TEXT/HTML;q=0.9", true},
		{"GET", "/v1x", browser, true},
		{"POST", "/nosuch", browser, false},
		{"GET", "/nosuch", "*/*", false},
		{"GET", "/nosuch", "", false},
		{"GET", "/nosuch", "application/json", false},
		{"GET", "/nosuch", "text/html5", false},
		{"GET", "/favicon.ico", "image/avif,image/webp,*/*;q=0.8", false},
		{"GET", "/", browser, false},
		{"GET", "/jobs", browser, false},
		{"GET", "//", browser, false},
		{"GET", "/v1/nosuch", browser, false},
		{"GET", "/metrics", browser, false},
		{"GET", "/ui/0123456789abcdef/x.js", browser, false},
		{"GET", "/door/trade", browser, false},
		{"GET", "/docs/nosuch", browser, false},
		{"GET", "/openapi.json", browser, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		if got := IsMissing(r); got != c.want {
			t.Errorf("%s %s, Accept %q: got %t, want %t", c.method, c.path, c.accept, got, c.want)
		}
	}
}

// The answer for a missing page is the dashboard itself, with its policy; it is not cached as the dashboard.
func TestMissingPageIsTheDashboard(t *testing.T) {
	page := get(t, "/")
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, "/nosuch", nil)
		r.Header.Set("If-None-Match", page.Header.Get("Etag"))
		ServeMissing(w, r)
		h := w.Header()
		if w.Code != http.StatusNotFound || h.Get("Content-Security-Policy") != page.Header.Get("Content-Security-Policy") || !strings.HasPrefix(h.Get("Content-Type"), "text/html") || h.Get("Etag") != "" {
			t.Errorf("%s: got %d %v, want 404 with the policy and no ETag", method, w.Code, h)
		}
		if got := w.Body.String(); (got == text(t, get(t, "/").Body)) != (method == http.MethodGet) {
			t.Errorf("%s: got a body of %d bytes, want the page for GET only", method, len(got))
		}
	}
}
