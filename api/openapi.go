package api

// The OpenAPI document: what is added to the document that huma makes from the Go types.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// tarOf returns an operation that answers with an archive.
func tarOf(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "A tar archive. The trailer " + headerEnd + " confirms that the archive is complete.",
		Content:     map[string]*huma.MediaType{contentTar: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}}
	return op
}

// metricsOf returns an operation that answers with metrics.
func metricsOf(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Metrics in the text format of Prometheus.",
		Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
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

// addRequests adds the names of the schemas of the bodies of a document's requests.
func addRequests(doc *huma.OpenAPI, schemas map[string]*huma.Schema, names map[string]bool) {
	for op := range operations(doc) {
		if op.RequestBody != nil {
			for _, c := range op.RequestBody.Content {
				followRefs(c.Schema, schemas, names)
			}
		}
	}
}

// OpenAPI returns the document of this version as JSON.
func OpenAPI(version string) ([]byte, error) {
	text, err := json.Marshal(documentOf(version))
	if err != nil {
		return nil, fmt.Errorf("api: the OpenAPI document: %w", err)
	}
	return text, nil
}

// documentOf returns the document of this version.
func documentOf(version string) *huma.OpenAPI {
	return newRouter(Config{Version: version}, Needs{}, nil, nil, newAdmission(nil), nil, slog.New(slog.DiscardHandler)).api.OpenAPI()
}

// forgetDocument frees the parts that only readers of the document need, because they take a sixth of the heap of an idle
// daemon. It keeps the schemas by which requests are checked. Docs makes a document of its own for readers.
func (rt *router) forgetDocument() {
	doc, checked := rt.api.OpenAPI(), map[string]bool{}
	schemas := doc.Components.Schemas.Map()
	for _, all := range []*huma.OpenAPI{doc, &rt.inner} {
		addRequests(all, schemas, checked)
		for op := range operations(all) {
			for _, p := range op.Parameters {
				followRefs(p.Schema, schemas, checked)
			}
			op.Responses, op.Description = nil, ""
		}
		all.Paths = nil
	}
	maps.DeleteFunc(schemas, func(name string, _ *huma.Schema) bool { return !checked[name] })
	doc.Components.Responses, rt.all = nil, nil
}

// followRefs adds the names of all schemas that a schema refers to, directly or indirectly.
func followRefs(s *huma.Schema, schemas map[string]*huma.Schema, names map[string]bool) {
	if s == nil {
		return
	}
	if name, is := strings.CutPrefix(s.Ref, schemaRef); is && !names[name] {
		names[name] = true
		followRefs(schemas[name], schemas, names)
	}
	more, _ := s.AdditionalProperties.(*huma.Schema)
	parts := slices.Concat([]*huma.Schema{s.Items, s.Not, more}, s.OneOf, s.AnyOf, s.AllOf, slices.Collect(maps.Values(s.Properties)))
	for _, part := range parts {
		followRefs(part, schemas, names)
	}
}

// operations returns the operations of a document, by path and method.
func operations(doc *huma.OpenAPI) iter.Seq[*huma.Operation] {
	return func(yield func(*huma.Operation) bool) {
		for _, path := range sortedKeys(doc.Paths) {
			p := doc.Paths[path]
			for _, op := range []*huma.Operation{p.Get, p.Put, p.Post, p.Delete, p.Options, p.Head, p.Patch, p.Trace} {
				if op != nil && !yield(op) {
					return
				}
			}
		}
	}
}

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
	schemas.Map()["Spec"].Required, schemas.Map()["Resources"].Required = nil, nil
	strict := map[string]bool{} // schemas of public requests: unknown fields are errors. Requests between daemons may grow
	addRequests(doc, schemas.Map(), strict)
	for name, schema := range schemas.Map() {
		if schema.Type == huma.TypeObject && !strict[name] && schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil // fields may be added to our answers
		}
	}
	doc.Paths["/v1/events"].Get.Responses["200"].Content["text/event-stream"].Schema = schemas.Schema(reflect.TypeFor[Event](), true, "Event")
	describeJobFile(schemas.Map())
	for name, schema := range schemas.Map() {
		for field, s := range schema.Properties {
			schema.Properties[field] = describe(name, field, s)
		}
	}
	describeOperations(doc)
	refuseIn(doc)
	secure(doc)
	hideUnused(doc)
}

// describeOperations adds the descriptions of the operations, and of their parameters and headers.
func describeOperations(doc *huma.OpenAPI) {
	for op := range operations(doc) {
		op.Description = operationTexts[op.OperationID]
		for _, p := range op.Parameters {
			if p.Description == "" {
				p.Description = fieldText(op.OperationID, p.Name)
			}
		}
		for status, r := range op.Responses {
			for name, h := range r.Headers {
				if h.Description == "" {
					h.Description = cmp.Or(h.Schema.Description, fieldText(op.OperationID, name))
				}
			}
			if r.Description == "" {
				r.Description = "Done, with status " + status + "."
			}
		}
	}
}

// describeJobFile adds the texts and bounds of the job file's reference to the schema of a submitted job.
func describeJobFile(schemas map[string]*huma.Schema) {
	for _, f := range jobfile.Fields() {
		of, field := schemas["Spec"], f.Name
		if _, inner, nested := strings.Cut(f.Name, "."); nested {
			of, field = schemas["Resources"], inner
		}
		s := of.Properties[field]
		if s == nil {
			continue
		}
		s.Description = f.Text
		if f.Bounds != "" {
			s.Description += " " + strings.ToUpper(f.Bounds[:1]) + f.Bounds[1:] + "."
		}
		s.Enum = anys(f.Words)
		if f.Most > 0 {
			number := s
			if s.Items != nil {
				number = s.Items
			}
			number.Minimum, number.Maximum = &f.Least, &f.Most
		}
	}
}

// describe returns the schema of a field with its description, its words and its bounds.
func describe(schema, field string, s *huma.Schema) *huma.Schema {
	if s.Description == "" {
		s.Description = fieldText(schema, field)
	}
	bound(schema, field, s)
	for _, inner := range []any{s.Items, s.AdditionalProperties} {
		if inner, ok := inner.(*huma.Schema); ok && inner != nil {
			bound(schema, field, inner)
		}
	}
	words, open := wordsOf(schema, field)
	switch {
	case len(s.Enum) > 0 || len(words) == 0:
	case open: // one of the stable words, or any other text
		return &huma.Schema{Description: s.Description, AnyOf: []*huma.Schema{{Type: huma.TypeString, Enum: words}, {Type: huma.TypeString}}}
	default:
		s.Enum = words
	}
	return s
}

// fieldText returns the description of a field of a schema, or of a parameter of an operation.
func fieldText(of, field string) string {
	if text := fieldTexts[of+"."+field]; text != "" {
		return text
	}
	return fieldTexts[field]
}

const schemaRef = "#/components/schemas/"

// shownSchemas shows only some of the schemas. Requests are checked by all of them.
type shownSchemas struct {
	huma.Registry

	// shown is computed when the document is first requested, because it costs more memory than the rest of a daemon's start.
	shown func() map[string]*huma.Schema
}

// MarshalJSON implements json.Marshaler.
func (s *shownSchemas) MarshalJSON() ([]byte, error) { return json.Marshal(s.shown()) }

// hideUnused keeps the document from showing schemas to which no operation refers.
func hideUnused(doc *huma.OpenAPI) {
	all := doc.Components.Schemas.Map()
	doc.Components.Schemas = &shownSchemas{doc.Components.Schemas, sync.OnceValue(func() map[string]*huma.Schema { return usedIn(doc, all) })}
}

// usedIn returns the schemas to which operations refer, directly or indirectly.
func usedIn(doc *huma.OpenAPI, all map[string]*huma.Schema) map[string]*huma.Schema {
	used := map[string]*huma.Schema{}
	var follow func(v any)
	follow = func(v any) {
		for name := range refsIn(v) {
			if used[name] == nil && all[name] != nil {
				used[name] = all[name]
				follow(all[name])
			}
		}
	}
	follow(doc.Paths)
	follow(doc.Components.Responses)
	return used
}

// refsIn returns the names of the schemas to which a part of the document refers.
func refsIn(v any) map[string]bool {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // never happens: else the document itself could not be encoded
	}
	names := map[string]bool{}
	for part := range strings.SplitSeq(string(text), `"`+schemaRef) {
		name, _, _ := strings.Cut(part, `"`)
		names[strings.Clone(name)] = true // a substring would keep the whole text in memory
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name == "" || strings.ContainsAny(name, "{}") })
	return names
}

// shown returns the schemas of a document.
func shown(doc *huma.OpenAPI) map[string]*huma.Schema {
	if s, ok := doc.Components.Schemas.(*shownSchemas); ok {
		return s.shown()
	}
	return doc.Components.Schemas.Map()
}
