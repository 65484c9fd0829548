package api

// Additions to the OpenAPI document that the Go types do not give, and a page that shows the document without loading
// anything from other servers.

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/job"
)

// tarOf returns an operation that answers with an archive.
func tarOf(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "A tar archive. The trailer " + headerEnd + " confirms that the archive is complete.",
		Content:     map[string]*huma.MediaType{contentTar: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}}
	return op
}

func bytesOf(op huma.Operation) huma.Operation {
	header := func(doc string) *huma.Param {
		return &huma.Param{Description: doc, Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64"}}
	}
	op.Responses = map[string]*huma.Response{"200": {
		Description: "The output as the task wrote it. The trailer " + headerEnd + " confirms that the body is complete, and holds the offset after the last byte. With marks=false the trailer " + headerNext + " holds the offset at which the log goes on after a gap.",
		Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
		Headers: map[string]*huma.Param{
			headerAttempt: header("Number of the attempt whose output this is."),
			headerOffset:  header("Offset in the output of the first byte of the body."),
		},
	}}
	return op
}

func eventsOf(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events. The name of each is its kind, its data a document. First comes open, then the present state of each job that the request names, then each change.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {}},
	}}
	return op
}

// requests are the documents in which an unknown field is an error.
var requests = []string{"Spec", "Resources", "ChangeRequest", "DeclareDeadRequest", "InviteRequest", "JoinRequest"}

// finishOpenAPI adds what the Go types do not say about the routes.
func finishOpenAPI(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas
	delete(schemas.Map(), "ErrorModel") // every error is a Problem
	delete(schemas.Map(), "ErrorDetail")
	spec := schemas.Schema(reflect.TypeFor[job.Spec](), true, "Spec")
	for _, path := range []string{"/v1/jobs", "/v1/offers"} {
		doc.Paths[path].Post.RequestBody.Content["application/json"].Schema = spec
	}
	// Only a command or a script is required: everything else has a default.
	schemas.Map()["Spec"].Required = nil
	for name, schema := range schemas.Map() {
		if schema.Type == huma.TypeObject && !slices.Contains(requests, name) && schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil // fields may be added to our answers
		}
	}
	doc.Paths["/v1/events"].Get.Responses["200"].Content["text/event-stream"].Schema = schemas.Schema(reflect.TypeFor[Event](), true, "Event")
}

const docsPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docs serves the page.
func docs(doc *huma.OpenAPI) http.HandlerFunc {
	page := docsPage(doc)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", docsPolicy)
		_, _ = w.Write(page) // if the reader is gone the error does not matter
	}
}

func docsPage(doc *huma.OpenAPI) []byte {
	var b strings.Builder
	b.WriteString(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>muster HTTP API</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}code,pre{font:14px/1.4 ui-monospace,monospace}
pre{background:#8882;padding:.6rem;overflow:auto}summary{cursor:pointer}td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}:root{color-scheme:light dark}</style></head><body>
`)
	fmt.Fprintf(&b, "<h1>muster HTTP API</h1><p>%s</p><p>The same in a format for programs: <a href=\"/openapi.json\">/openapi.json</a> (version %s).</p>\n", html.EscapeString(doc.Info.Description), html.EscapeString(doc.Info.Version))
	for _, path := range sortedKeys(doc.Paths) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post} {
			if op != nil {
				docsOperation(&b, op)
			}
		}
	}
	b.WriteString("<h2>Documents</h2>\n")
	schemas := doc.Components.Schemas.Map()
	for _, name := range sortedKeys(schemas) {
		fmt.Fprintf(&b, "<details id=\"%s\"><summary><code>%s</code></summary><pre>%s</pre></details>\n", html.EscapeString(name), html.EscapeString(name), html.EscapeString(indented(schemas[name])))
	}
	b.WriteString("</body></html>\n")
	return []byte(b.String())
}

func docsOperation(b *strings.Builder, op *huma.Operation) {
	fmt.Fprintf(b, "<h3 id=\"%s\"><code>%s %s</code></h3><p>%s</p>\n", html.EscapeString(op.OperationID), op.Method, html.EscapeString(op.Path), html.EscapeString(op.Summary))
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
		if status != "default" {
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
