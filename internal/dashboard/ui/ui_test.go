package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, address string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Serve(w, r)
	return w.Result()
}

func text(t *testing.T, from io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var address = regexp.MustCompile(`/ui/[^"]+`)

// The page and all files that it names are served, with the headers for security and caching.
func TestPageHasItsFilesAndHeaders(t *testing.T) {
	page := get(t, "/")
	body := text(t, page.Body)
	named := address.FindAllString(body, -1)
	if page.StatusCode != http.StatusOK || page.Header.Get("Cache-Control") != "no-cache" || len(named) < 3 || strings.Contains(body, "/ui/-/") {
		t.Fatalf("got %d %v, want 200 with the files of this version\n%s", page.StatusCode, page.Header, body)
	}
	policy := page.Header.Get("Content-Security-Policy")
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") {
		t.Errorf("the policy is %s, want nothing unsafe", policy)
	}
	if regexp.MustCompile(`(?i)<script(>| [^>]*>[^<])|<style| style=| on[a-z]+=`).MatchString(body) {
		t.Errorf("the page has inline code or style, which its policy forbids:\n%s", body)
	}
	for _, a := range named {
		f := get(t, a)
		if f.StatusCode != http.StatusOK || !strings.Contains(f.Header.Get("Cache-Control"), "immutable") || f.Header.Get("Content-Type") == "" {
			t.Errorf("%s: got %d %v, want 200, immutable", a, f.StatusCode, f.Header)
		}
		packed := get(t, a, "Accept-Encoding", "br, gzip")
		if packed.Header.Get("Content-Encoding") != "gzip" {
			continue // small files are not compressed
		}
		z, err := gzip.NewReader(packed.Body)
		if err != nil || text(t, z) != text(t, f.Body) {
			t.Errorf("%s differs when it is compressed: %v", a, err)
		}
	}
	if again := get(t, "/", "If-None-Match", page.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("the same page again: got status %d, want 304", again.StatusCode)
	}
	if old := get(t, "/ui/0123456789abcdef/app.js"); old.StatusCode != http.StatusNotFound {
		t.Errorf("a file of another version: got status %d, want 404", old.StatusCode)
	}
}

func TestAddressesOfPagesAreKnown(t *testing.T) {
	for address, want := range map[string]bool{
		"/": true, "/jobs": true, "/jobs/a/b": true, "/nodes": true, "": false, "//": false, "/v1/jobs": false, "/jobsx": false, "jobs": false, "/health": false,
	} {
		if got := IsPage(address); got != want {
			t.Errorf("IsPage(%q) = %t, want %t", address, got, want)
		}
	}
	if !Serves("/ui/x") || Serves("/uix") || Serves("/v1/nodes") {
		t.Error("Serves must be true for files of the dashboard only")
	}
}

// Files that would be served wrongly are refused when they are loaded.
func TestFilesThatWouldBeServedWronglyAreRefused(t *testing.T) {
	one := func(name string) fstest.MapFS { return fstest.MapFS{"files/" + name: {Data: []byte("x")}} }
	for _, name := range []string{"app.js", "index.html.bak"} {
		if _, err := load(one(name)); err == nil {
			t.Errorf("a site of %s was accepted, want an error", name)
		}
	}
	a, err := load(fstest.MapFS{"files/index.html": {Data: []byte("/ui/-/a.js")}, "files/a.js": {Data: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := load(fstest.MapFS{"files/index.html": {Data: []byte("/ui/-/a.js")}, "files/a.js": {Data: []byte("2")}})
	if err != nil || bytes.Equal(a["/"].plain, b["/"].plain) || a["/"].tag == b["/"].tag {
		t.Errorf("two versions have the same addresses: %v", err)
	}
}
