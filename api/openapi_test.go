package api

import (
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func bareServer(t *testing.T) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Self = "p"
	s, err := New(cfg, Needs{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func page(t *testing.T, s *Server, path string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1"+path, nil)
	w := httptest.NewRecorder()
	s.handler(fromTCP).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: got %d %s, want 200", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// The routes are compared with a file, so that a reviewer sees every change of them.
func TestOpenAPI(t *testing.T) {
	text := page(t, bareServer(t), "/openapi.json")
	if again := page(t, bareServer(t), "/openapi.json"); again != text {
		t.Errorf("the document is not always the same: got %v, want %v", again, text)
	}
	var doc struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In string }
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^3\.1\.\d+$`).MatchString(doc.OpenAPI) || doc.Info.Title == "" || doc.Info.Version == "" {
		t.Errorf("got openapi %q, info %+v, want version 3.1 with a title", doc.OpenAPI, doc.Info)
	}
	var lines []string
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			line := strings.ToUpper(method) + " " + path
			for _, p := range op.Parameters {
				line += " " + p.In + ":" + p.Name
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s has no %s", path, p.Name)
				}
			}
			lines = append(lines, line)
			if op.OperationID == "" || ids[op.OperationID] || len(op.Responses) < 2 {
				t.Errorf("%s: got operation %q with %d responses, want a unique ID and at least 2", line, op.OperationID, len(op.Responses))
			}
			ids[op.OperationID] = true
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/routes.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("got changed routes (%v); `go test ./api -run OpenAPI -update` writes the file that is wanted:\n%s", err, got)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if _, ok := doc.Components.Schemas[ref[1]]; !ok {
			t.Errorf("no schema %s", ref[1])
		}
	}
	for _, name := range []string{"Job", "Task", "Node", "GPU", "Problem", "Spec", "Event", "Invitation", "Explanation"} {
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("no schema %s", name)
		}
	}
	if strings.Contains(text, "/peer/v1") || strings.Contains(text, "ErrorModel") {
		t.Error("the document shows routes that are not for clients")
	}
}

// The page works on a host without internet access.
func TestDocsLoadNothingFromElsewhere(t *testing.T) {
	text := page(t, bareServer(t), "/docs")
	for _, bad := range []string{"<script", "http://", "https://", "<img", "<link", "src="} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{"/v1/jobs/{id}/why", "href=\"/openapi.json\"", "id=\"Job\""} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// Each route has a row with the verb of the same effect, and an example that names it.
func TestDocsHaveAVerbAndAnExampleForEachRoute(t *testing.T) {
	rt := newRouter(Config{}, Needs{}, nil, nil, newAdmission(nil), nil, slog.New(slog.DiscardHandler))
	ops := map[string]bool{}
	for op := range operations(rt.api.OpenAPI()) {
		ops[op.OperationID] = true
		if _, there := verbs[op.OperationID]; !there {
			t.Errorf("%s: no row in verbs", op.OperationID)
		}
		if lines := linesOf(op); !strings.HasPrefix(lines, "curl ") || strings.Contains(lines, "{id}") || !strings.Contains(lines, " localhost/") {
			t.Errorf("%s: got %s, want a curl command for localhost", op.OperationID, lines)
		}
	}
	for _, table := range []map[string]string{verbs, bodies} {
		for id := range table {
			if !ops[id] {
				t.Errorf("a row about %s, which is no route", id)
			}
		}
	}
	for id, body := range bodies {
		if !json.Valid([]byte(body)) {
			t.Errorf("%s: got %s, want JSON", id, body)
		}
	}
	for _, id := range []string{"submit-job", "offers"} {
		if _, err := decodeSpec([]byte(bodies[id])); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// Each format of the document is served, also after the daemon has dropped its own copy, and each is made once.
func TestDocumentIsServedInEachFormat(t *testing.T) {
	s := bareServer(t)
	for path, begins := range map[string]string{
		"/openapi.json": `{"components":`, "/openapi-3.0.json": `{"components":`, "/openapi.yaml": "components:\n", "/openapi-3.0.yaml": "components:\n",
	} {
		text := page(t, s, path)
		if !strings.HasPrefix(text, begins) || !strings.Contains(text, "/v1/jobs/{id}/why") || strings.Contains(text, "/peer/v1") {
			t.Errorf("%s: got %.200s, want the routes of clients only", path, text)
		}
		if page(t, s, path) != text {
			t.Errorf("%s: got another document the second time, want the same", path)
		}
	}
}
