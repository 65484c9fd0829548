package api

// The OpenAPI document has everything that a client needs: descriptions, words, bounds, errors, authorization.

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/job"
)

type (
	specSchema struct {
		Ref                  string                `json:"$ref"`
		Type                 any                   `json:"type"`
		Description          string                `json:"description"`
		Properties           map[string]specSchema `json:"properties"`
		Items                *specSchema           `json:"items"`
		AdditionalProperties any                   `json:"additionalProperties"`
		Enum                 []any                 `json:"enum"`
		AnyOf                []specSchema          `json:"anyOf"`
		Minimum              *float64              `json:"minimum"`
		Maximum              *float64              `json:"maximum"`
		Format               string                `json:"format"`
	}
	specParam struct {
		Name, In, Description string
		Schema                specSchema
	}
	specAnswer struct {
		Ref         string `json:"$ref"`
		Description string
		Headers     map[string]specParam
		Content     map[string]struct{ Schema *specSchema }
	}
	specOperation struct {
		OperationID          string `json:"operationId"`
		Summary, Description string
		Parameters           []specParam
		RequestBody          *specAnswer
		Responses            map[string]specAnswer
	}
	specDocument struct {
		Servers    []struct{ URL, Description string }
		Security   []map[string][]string
		Paths      map[string]map[string]specOperation
		Components struct {
			Schemas         map[string]specSchema
			Responses       map[string]specAnswer
			SecuritySchemes map[string]struct{ Type, Scheme, Description string }
		}
	}
)

func document(t *testing.T) specDocument {
	t.Helper()
	text, err := OpenAPI("v")
	if err != nil {
		t.Fatal(err)
	}
	var doc specDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// isNumber reports whether a schema is that of a number, or of a number or null.
func (s specSchema) isNumber() bool {
	words, _ := json.Marshal(s.Type)
	return strings.Contains(string(words), `"integer"`) || strings.Contains(string(words), `"number"`)
}

// wordy are the fields that take some words, and not any text.
var wordy = []string{"state", "job_state", "task_state", "kind", "condition", "health", "outcome", "action", "code", "schema", "partition", "stream"}

// check reports what the schema of a field lacks. Requests need both bounds of their numbers.
func (s specSchema) check(t *testing.T, where, field string, request bool) {
	t.Helper()
	for _, inner := range append(s.AnyOf, s) {
		if inner.isNumber() && (inner.Minimum == nil || request && inner.Maximum == nil) {
			t.Errorf("%s: got a number without bounds, want them", where)
		}
	}
	if s.Items != nil {
		s.Items.check(t, where+"[]", "", request)
	}
	if slices.Contains(wordy, field) && s.Ref == "" && len(s.Enum) == 0 && s.Type == "string" {
		t.Errorf("%s: got any text, want its words", where)
	}
}

func TestOpenAPIDescribesEverything(t *testing.T) {
	doc := document(t)
	full, strict := documentOf("v"), map[string]bool{}
	addRequests(full, full.Components.Schemas.Map(), strict)
	fields, params := 0, 0
	for name, schema := range doc.Components.Schemas {
		for field, s := range schema.Properties {
			fields++
			if s.Description == "" {
				t.Errorf("%s.%s: no description, want one", name, field)
			}
			s.check(t, name+"."+field, field, strict[name])
		}
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			where := strings.ToUpper(method) + " " + path
			if op.Description == "" || op.Summary == "" {
				t.Errorf("%s (%s): no description, want op.Description other than an empty text and op.Summary other than an empty text", where, op.OperationID)
			}
			for _, p := range op.Parameters {
				params++
				if p.Description == "" {
					t.Errorf("%s: parameter %s: no description", where, p.Name)
				}
				p.Schema.check(t, where+" "+p.Name, "", true)
			}
			for status, r := range op.Responses {
				if r.Ref == "" && r.Description == "" {
					t.Errorf("%s: no description of %s", where, status)
				}
				for header, h := range r.Headers {
					if h.Description == "" {
						t.Errorf("%s: no description of the header %s", where, header)
					}
				}
			}
		}
	}
	if fields < 200 || params < 40 {
		t.Errorf("got %d fields and %d parameters, want at least 200 and 40", fields, params)
	}
}

// Every request with a document refuses an unknown field, so that a misspelled option never passes unnoticed.
func TestRequestsRefuseUnknownFields(t *testing.T) {
	full := documentOf("v")
	schemas := full.Components.Schemas.Map()
	strict := map[string]bool{}
	addRequests(full, schemas, strict)
	for name := range strict {
		if s := schemas[name]; s.Type == huma.TypeObject && s.AdditionalProperties != false {
			t.Errorf("%s accepts any field", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		amy, tried := newCluster(t, "amy").daemons[0], 0
		spec := job.DefaultSpec()
		spec.Command = []string{"true"}
		j, err := amy.client.Submit(t.Context(), spec, "")
		if err != nil {
			t.Fatal(err)
		}
		for path, methods := range document(t).Paths {
			for method, op := range methods {
				if op.RequestBody == nil || op.RequestBody.Content["application/json"].Schema == nil {
					continue
				}
				tried++
				target := strings.NewReplacer("jobs/{id}", "jobs/"+string(j.ID), "{id}", "amy").Replace(path)
				status, _, body := amy.raw(t, strings.ToUpper(method), target, `{"nosuchfield": 1}`)
				if status != http.StatusUnprocessableEntity || !strings.Contains(body, "nosuchfield") {
					t.Errorf("%s: got %d %s, want 422 with the field", target, status, body)
				}
			}
		}
		if tried < 10 {
			t.Errorf("got %d requests with a document, want at least 10", tried)
		}
	})
}

func TestOpenAPIDocumentsErrors(t *testing.T) {
	doc := document(t)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			where := strings.ToUpper(method) + " " + path
			for _, status := range []string{"401", "403", "429", "503", "default"} {
				if _, ok := op.Responses[status]; !ok {
					t.Errorf("%s: the status %s is missing", where, status)
				}
			}
			if _, ok := op.Responses["404"]; strings.Contains(path, "{") != ok {
				t.Errorf("%s: 404 is documented: got %v, want it with an ID only", where, ok)
			}
			if _, ok := op.Responses["422"]; op.RequestBody != nil && !ok {
				t.Errorf("%s: 422 is missing", where)
			}
			for status, r := range op.Responses {
				name := strings.TrimPrefix(r.Ref, "#/components/responses/")
				if problem := doc.Components.Responses[name].Content[contentProb].Schema; r.Ref != "" && (problem == nil || problem.Ref != "#/components/schemas/Problem") {
					t.Errorf("%s: got %s refers to %s, want a problem document", where, status, r.Ref)
				}
			}
		}
	}
}

func TestOpenAPISaysHowToConnect(t *testing.T) {
	doc := document(t)
	if len(doc.Servers) < 2 || doc.Servers[0].URL != "/" || !strings.Contains(doc.Servers[1].Description, "--unix-socket") {
		t.Errorf("servers: got %+v, want / and the socket", doc.Servers)
	}
	token := doc.Components.SecuritySchemes["token"]
	if token.Type != "http" || token.Scheme != "bearer" || token.Description == "" {
		t.Errorf("scheme: got %+v, want a bearer token", token)
	}
	// The token or nothing, because requests over the socket need no token.
	if len(doc.Security) != 2 || len(doc.Security[0]) != 1 || len(doc.Security[1]) != 0 {
		t.Errorf("security: got %v, want the token or nothing", doc.Security)
	}
}

// Each text describes something that has no other description, so that nothing is said twice.
func TestOpenAPIWordsAreUsed(t *testing.T) {
	doc := document(t)
	said, ops := map[string]bool{}, map[string]bool{}
	note := func(of, field, text string) {
		for _, key := range []string{of + "." + field, field} {
			if fieldTexts[key] == text {
				said[key] = true
				return
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		for field, s := range schema.Properties {
			note(name, field, s.Description)
		}
	}
	for _, methods := range doc.Paths {
		for _, op := range methods {
			ops[op.OperationID] = true
			for _, p := range op.Parameters {
				note(op.OperationID, p.Name, p.Description)
			}
			for _, r := range op.Responses {
				for name, h := range r.Headers {
					note(op.OperationID, name, h.Description)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fieldTexts)) {
		if !said[key] {
			t.Errorf("the text of %s describes nothing", key)
		}
	}
	for id := range operationTexts {
		if !ops[id] {
			t.Errorf("there is no operation %s", id)
		}
	}
}

// The page shows every operation of the document, whatever its method.
func TestDocsShowEveryOperation(t *testing.T) {
	text := page(t, bareServer(t), "/docs")
	for path, methods := range document(t).Paths {
		for method, op := range methods {
			if !strings.Contains(text, `<h3 id="`+op.OperationID+`"><code>`+strings.ToUpper(method)+" "+path+`</code>`) {
				t.Errorf("the page lacks %s %s, want it", method, path)
			}
		}
	}
}
