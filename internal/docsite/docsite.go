// Package docsite is the documentation as web pages: the routes of the API, and the manual and the guides of this version.
// The pages hold no data of a cluster and no secrets, so anybody may load them. They have no scripts and load nothing from
// other servers. The server does the search; in a browser it would need a script and an index of 400 KB. The decisions in
// docs/adr are not among the pages: they are half of the text, for those who change the program. Pages are rendered when
// the first is read, so the build has no step for them. goldmark renders: it follows CommonMark and leaves raw HTML out.
//
// The routes are at /docs, a guide at /docs/NAME, and the results of a search at /docs/search?q=WORDS.
package docsite

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/docs"
)

const (
	root       = "/docs"
	pathSearch = root + "/search"
)

// titles are the names of the first guides in the menu, in their order. The others follow by name.
var titles = []string{"manual", "operations", "constraints", "policies", "dashboard", "trust", "architecture", "protocol"}

// Guide is the whole documentation. It does not change.
type Guide struct {
	pages    map[string]page // by path
	menu     []entry
	sections []section // of all pages, in their order
	version  string
}

// page is one page, as it is served.
type page struct {
	html []byte
	tag  string
}

// entry is a line of the menu.
type entry struct{ Path, Title string }

// New makes the documentation of this version. routes is the content of the API's page as HTML; sections are the parts of
// that page for the search.
func New(version string, routes template.HTML, sections []Section) (*Guide, error) {
	g := &Guide{pages: map[string]page{}, version: version, menu: []entry{{root, "HTTP API"}}}
	for _, s := range sections {
		g.sections = append(g.sections, sectionOf(root, "HTTP API", s))
	}
	names, err := fs.Glob(docs.Files, "*.md")
	if err != nil {
		return nil, fmt.Errorf("guide: %w", err)
	}
	slices.SortFunc(names, func(a, b string) int {
		if x, y := place(a), place(b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	bodies := map[string]template.HTML{root: routes}
	for _, name := range names {
		text, err := docs.Files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("guide: %w", err)
		}
		path := root + "/" + strings.TrimSuffix(name, ".md")
		x, err := render(text, func(file string) bool { return slices.Contains(names, file) })
		if err != nil {
			return nil, fmt.Errorf("guide: %s: %w", name, err)
		}
		title := x.title
		if title == "" {
			title = name
		}
		bodies[path] = x.html
		g.menu = append(g.menu, entry{path, title})
		for _, s := range x.sections {
			g.sections = append(g.sections, sectionOf(path, title, s))
		}
	}
	for _, m := range g.menu {
		text, err := g.page(m.Path, m.Title, "", bodies[m.Path])
		if err != nil {
			return nil, fmt.Errorf("guide: %s: %w", m.Path, err)
		}
		sum := sha256.Sum256(text)
		g.pages[m.Path] = page{text, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return g, nil
}

// place returns the position of a file in the menu.
func place(name string) int {
	if i := slices.Index(titles, strings.TrimSuffix(name, ".md")); i >= 0 {
		return i
	}
	return len(titles)
}

// Serves reports whether a path belongs to the documentation.
func Serves(path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// ServeHTTP implements http.Handler.
func (g *Guide) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-cache")
	status, text := http.StatusOK, []byte(nil)
	if p, there := g.pages[r.URL.Path]; there {
		w.Header().Set("ETag", p.tag)
		if r.Header.Get("If-None-Match") == p.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		text = p.html
	} else {
		status, text = g.answer(r)
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // if the reader is gone the error does not matter
	}
}

// answer makes a page for a path that g.pages does not have: the results of a search, or an error page.
func (g *Guide) answer(r *http.Request) (int, []byte) {
	words, status := "", http.StatusNotFound
	body := template.HTML("<h1>No such page</h1><p>The menu has all pages; or search.</p>")
	if r.URL.Path == pathSearch {
		status, words = http.StatusOK, r.URL.Query().Get("q")
		if len(words) > maxQuery {
			words = strings.ToValidUTF8(words[:maxQuery], "")
		}
		body = g.results(words)
	}
	text, err := g.page(r.URL.Path, "Search", words, body)
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	return status, text
}

// style is the style of all pages. The policy allows only this style, by its hash.
const style = `:root{color-scheme:light dark;--line:#8884;--soft:#8881;--link:light-dark(#1d5fd1,#7fb0ff)}
body{background:light-dark(#fbfbfa,#14161a);color:light-dark(#1b1e23,#e4e6ea);font:15px/1.55 system-ui,sans-serif;margin:0;display:grid;grid-template-columns:15rem minmax(0,56rem);gap:2rem;padding:0 1.2rem}
nav{position:sticky;top:0;align-self:start;max-height:100vh;overflow:auto;padding:1.2rem 0;font-size:14px}nav ul{list-style:none;padding:0;margin:.8rem 0}nav li{margin:.25rem 0}
nav a[aria-current]{font-weight:600;color:inherit;text-decoration:none}main{padding:1.2rem 0 4rem;min-width:0}a{color:var(--link)}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:var(--soft);border:1px solid var(--line);border-radius:4px;padding:.6rem .8rem;overflow:auto}
h1,h2,h3,h4{line-height:1.25;scroll-margin-top:1rem}h1{font-size:1.6rem;margin-top:0}h2{border-bottom:1px solid var(--line);padding-bottom:.2rem;margin-top:2.2rem}h3{margin-top:1.8rem}
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line)}
input{font:inherit;width:100%;box-sizing:border-box;padding:.35rem .5rem;border:1px solid var(--line);border-radius:4px;background:transparent;color:inherit}summary{cursor:pointer}.dim{opacity:.7}
@media(max-width:52rem){body{display:block}nav{position:static;max-height:none}}`

// policy lets a page have its style and send its form to this server. It lets the page run nothing and load nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}()

var frame = template.Must(template.New("page").Parse(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{{.Title}} - muster</title>
<style>{{.Style}}</style></head><body><nav aria-label="Documentation"><form action="` + pathSearch + `" role="search"><input type="search" name="q" value="{{.Words}}" maxlength="200" placeholder="Search" aria-label="Search the documentation"></form>
<ul>{{range .Menu}}<li><a href="{{.Path}}"{{if eq .Path $.Path}} aria-current="page"{{end}}>{{.Title}}</a></li>{{end}}</ul><p class="dim"><a href="/">Dashboard</a><br>version {{.Version}}</p></nav>
<main>{{.Body}}</main></body></html>
`))

func (g *Guide) page(path, title, words string, body template.HTML) ([]byte, error) {
	var b bytes.Buffer
	err := frame.Execute(&b, map[string]any{
		"Path": path, "Title": title, "Words": words, "Body": body, "Menu": g.menu, "Version": g.version,
		"Style": template.CSS(style), //nolint:gosec // a constant
	})
	return b.Bytes(), err
}
