package api

// The documentation as web pages: the guides, and the routes. Each route has a curl command, and the verb of muster that
// does the same.

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/docsite"
)

// docsPaths are the paths of the documentation.
var docsPaths = []string{"/docs", "/docs/", "/openapi.json", "/openapi.yaml", "/openapi-3.0.json", "/openapi-3.0.yaml"}

// Docs serves the documentation of a version. It needs no daemon. Each part is made at the first request for it.
func Docs(version string) http.Handler {
	doc := sync.OnceValue(func() *huma.OpenAPI { return documentOf(version) })
	pages := sync.OnceValues(func() (http.Handler, error) {
		text, sections := docsPage(doc())
		return docsite.New(version, text, sections)
	})
	formats := map[string]http.Handler{
		"/openapi.json":     format("json", func() ([]byte, error) { return json.Marshal(doc()) }),
		"/openapi.yaml":     format("yaml", func() ([]byte, error) { return doc().YAML() }),
		"/openapi-3.0.json": format("json", func() ([]byte, error) { return doc().Downgrade() }),
		"/openapi-3.0.yaml": format("yaml", func() ([]byte, error) { return doc().DowngradeYAML() }),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := formats[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		g, err := pages()
		if err != nil { // never happens: the guides are part of the program, and a test renders them
			refuse(w, err)
			return
		}
		g.ServeHTTP(w, r)
	})
}

// format serves a format of the OpenAPI document.
func format(name string, write func() ([]byte, error)) http.Handler {
	text := sync.OnceValues(write)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b, err := text()
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/openapi+"+name)
		_, _ = w.Write(b)
	})
}

// docsPage returns the page of the routes, and its sections for the search.
func docsPage(doc *huma.OpenAPI) (template.HTML, []docsite.Section) {
	var b strings.Builder
	var sections []docsite.Section
	fmt.Fprintf(&b, "<h1>HTTP API</h1><p>%s</p><p>The same in a format for programs: <a href=\"/openapi.json\">/openapi.json</a> (version %s). "+
		"The examples use the socket of the daemon; over TCP, give the address and the header <code>Authorization: Bearer TOKEN</code> instead of <code>--unix-socket</code>.</p>\n",
		html.EscapeString(doc.Info.Description), html.EscapeString(doc.Info.Version))
	b.WriteString("<table>")
	for op := range operations(doc) {
		fmt.Fprintf(&b, "<tr><td><a href=\"#%s\"><code>%s %s</code></a></td><td>%s</td></tr>\n", html.EscapeString(op.OperationID), op.Method, html.EscapeString(op.Path), html.EscapeString(op.Summary))
	}
	b.WriteString("</table>\n")
	for op := range operations(doc) {
		docsOperation(&b, op)
		sections = append(sections, sectionOf(op))
	}
	b.WriteString("<h2 id=\"documents\">Documents</h2>\n")
	schemas := shown(doc)
	for _, name := range sortedKeys(schemas) {
		text := indented(schemas[name])
		fmt.Fprintf(&b, "<details id=\"%s\"><summary><code>%s</code></summary><pre>%s</pre></details>\n", html.EscapeString(name), html.EscapeString(name), html.EscapeString(text))
		sections = append(sections, docsite.Section{Title: name, Anchor: name, Text: text})
	}
	return template.HTML(b.String()), sections //nolint:gosec // all texts in it are escaped above
}

// sectionOf returns the section of a route for the search.
func sectionOf(op *huma.Operation) docsite.Section {
	texts := []string{op.Summary + ".", op.Description}
	for _, p := range op.Parameters {
		texts = append(texts, p.Name+":", p.Description)
	}
	return docsite.Section{Title: op.Method + " " + op.Path, Anchor: op.OperationID, Text: strings.Join(append(texts, verbs[op.OperationID]), " ")}
}

func docsOperation(b *strings.Builder, op *huma.Operation) {
	fmt.Fprintf(b, "<h3 id=\"%s\"><code>%s %s</code></h3><p>%s. %s</p>\n", html.EscapeString(op.OperationID), op.Method, html.EscapeString(op.Path), html.EscapeString(op.Summary), html.EscapeString(op.Description))
	fmt.Fprintf(b, "<pre>%s</pre>\n", html.EscapeString(linesOf(op)))
	if len(op.Parameters) > 0 {
		b.WriteString("<table>")
		for _, p := range op.Parameters {
			fmt.Fprintf(b, "<tr><td><code>%s</code></td><td>%s</td><td>%s</td></tr>", html.EscapeString(p.Name), html.EscapeString(p.In), html.EscapeString(p.Description))
		}
		b.WriteString("</table>\n")
	}
	if op.RequestBody != nil {
		docsContent(b, "body", "", op.RequestBody.Content)
	}
	for _, status := range sortedKeys(op.Responses) {
		if status != "default" && op.Responses[status].Ref == "" {
			docsContent(b, status, op.Responses[status].Description, op.Responses[status].Content)
		}
	}
}

func docsContent(b *strings.Builder, what, text string, content map[string]*huma.MediaType) {
	for _, kind := range sortedKeys(content) {
		fmt.Fprintf(b, "<p>%s: <code>%s</code>", what, html.EscapeString(kind))
		if schema := content[kind].Schema; schema != nil && schema.Ref != "" {
			name := html.EscapeString(schema.Ref[strings.LastIndexByte(schema.Ref, '/')+1:])
			fmt.Fprintf(b, " <a href=\"#%s\">%s</a>", name, name)
		}
		if text != "" && text != http.StatusText(http.StatusOK) {
			fmt.Fprintf(b, " %s", html.EscapeString(text))
		}
		b.WriteString("</p>\n")
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func indented(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
