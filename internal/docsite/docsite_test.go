package docsite

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func guide(t *testing.T) *Guide {
	t.Helper()
	g, err := New("v7<", "<p>routes</p>", []Section{{Title: "GET /v1/jobs", Anchor: "list-jobs", Text: "Lists jobs, newest first"}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func get(t *testing.T, g *Guide, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	resp := w.Result()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// Every page of this version is served, contains no script, and loads nothing. Each link between the pages leads to a
// heading.
func TestPagesAreServedWithValidLinks(t *testing.T) {
	g := guide(t)
	pages := map[string]string{}
	for _, m := range g.menu {
		resp, text := get(t, g, m.Path)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "v7&lt;") || !strings.Contains(text, `aria-current="page"`) {
			t.Errorf("%s: got %d %.200s, want 200 with the version", m.Path, resp.StatusCode, text)
		}
		if p := resp.Header.Get("Content-Security-Policy"); strings.Contains(p, "unsafe") || !strings.HasPrefix(p, "default-src 'none'; style-src 'sha256-") {
			t.Errorf("%s: got policy %s, want styles only", m.Path, p)
		}
		for _, bad := range []string{"<script", "<img", "<link", "src=", "<!-- raw HTML omitted", "javascript:", "onclick"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s, want no markup that loads or runs anything", m.Path, bad)
			}
		}
		pages[m.Path] = text
	}
	if len(pages) < 10 || pages["/docs/manual"] == "" || pages["/docs/operations"] == "" {
		t.Fatalf("got %d pages, want at least 10, with the manual and operations", len(pages))
	}
	links := 0
	for from, text := range pages {
		for _, m := range regexp.MustCompile(`<a href="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			switch {
			case to == "/", strings.HasPrefix(to, "https://"), strings.HasPrefix(to, "http://"):
				continue
			case to == "":
				to = from
			}
			links++
			if there, ok := pages[to]; !ok || anchor != "" && !strings.Contains(there, `id="`+anchor+`"`) {
				t.Errorf("%s: %s leads nowhere", from, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("got %d links, want at least 100", links)
	}
}

func TestUnknownPagesAreNotFound(t *testing.T) {
	g := guide(t)
	for _, path := range []string{"/docs/nothing", "/docs/", "/docs/../v1/jobs", "/docs/docs.go", "/docs/adr/084"} {
		if resp, text := get(t, g, path); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "No such page") {
			t.Errorf("%s: got status %d, want 404", path, resp.StatusCode)
		}
	}
	resp, _ := get(t, g, "/docs/manual")
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs/manual", nil)
	r.Header.Set("If-None-Match", resp.Header.Get("ETag"))
	if g.ServeHTTP(w, r); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("unchanged: got %d, %d bytes, want 304, 0", w.Code, w.Body.Len())
	}
}

// A search finds sections with all words, titles first, and shows the query only as text.
func TestSearchFindsSectionsAsText(t *testing.T) {
	g := guide(t)
	for query, want := range map[string]string{
		"newest+jobs":                  `<a href="/docs#list-jobs">GET /v1/jobs</a>`,
		"DEFAULT-TIME":                 `/docs/manual#`,
		"zzzqqq":                       "Nothing found",
		"":                             "<h1>Search</h1>",
		"%3Cscript%3Ealert%3C/script":  "&lt;script&gt;alert",
		"jobs+%22%3E%3Cimg+src%3Dx%3E": "&#34;&gt;&lt;img",
		"jobs%ff%fe":                   "Nothing found",
		strings.Repeat("jobs+", 4000):  "<h1>",
	} {
		resp, text := get(t, g, "/docs/search?q="+query)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, want) || strings.Contains(text, "<script") || strings.Contains(text, "<img") || len(text) > 64<<10 {
			t.Errorf("%.40s: got %d, %d bytes, want 200 with %s, as text", query, resp.StatusCode, len(text), want)
		}
	}
}

func TestMarkdownBecomesSafeHTML(t *testing.T) {
	x, err := render([]byte("# Top\n\nText <b onclick=x>raw</b> <script>1</script> [here](b.md#x) [gone](../README.md) [out](https://example.org) "+
		"![pic](p.png) [bad](javascript:alert(1))\n\n<div>block</div>\n\n## Sub `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n    $ line\n"), func(f string) bool { return f == "b.md" })
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<b", "<script", "<div", "README", "p.png", "<img", "javascript"} {
		if strings.Contains(string(x.html), bad) {
			t.Errorf("got %s in %s", bad, x.html)
		}
	}
	for _, want := range []string{`href="/docs/b#x"`, "gone", "pic", `href="https://example.org"`, "<td>2</td>", `id="sub-code"`} {
		if !strings.Contains(string(x.html), want) {
			t.Errorf("want %s in %s", want, x.html)
		}
	}
	if len(x.sections) != 2 || x.title != "Top" || x.sections[1].Title != "Sub code" || x.sections[1].Anchor != "sub-code" || !strings.Contains(x.sections[1].Text, "$ line") {
		t.Errorf("got sections %+v, want Top and Sub code", x.sections)
	}
}
