package ui

// The dashboard in Debian's Chromium, with a daemon that answers what a test wants.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/musterhq/muster/internal/testkit/chromium"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

// daemon answers the requests of the dashboard. Unknown requests get status 404.
type daemon map[string]http.HandlerFunc

func (d daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch answer := d[r.URL.Path]; {
	case answer != nil:
		answer(w, r)
	case r.URL.Path == "/v1/events":
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasPrefix(r.URL.Path, "/v1/"):
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"not_found","title":"not found"}`))
	default:
		Serve(w, r)
	}
}

// says answers with a document.
func says(document any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	}
}

// page opens a page of a daemon. Without a browser the test is skipped.
func page(t *testing.T, d daemon, path string) context.Context {
	t.Helper()
	program := needtest.Browser(t)
	dir := t.TempDir() // made before the browser, which must have ended when it is removed
	server := httptest.NewServer(d)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	tab, stop := chromium.New(t.Context(), program, dir, 1280, 800, nil)
	t.Cleanup(func() {
		_ = chromedp.Cancel(tab)
		stop()
	})
	if err := chromedp.Do(tab, chromedp.Navigate(server.URL+path)); err != nil {
		t.Fatal(err)
	}
	return tab
}

func eval[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression of the page is true.
func until(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if eval[bool](t, tab, expression) {
			return
		}
	}
	t.Fatalf("%s was never true; the page is %s", expression, eval[string](t, tab, "document.documentElement.innerText"))
}

// nodes is a listing of nodes with these GPUs, 50 in each rack.
func nodes(n int, gpus ...any) any {
	var all []any
	for i := range n {
		all = append(all, map[string]any{
			"id": fmt.Sprintf("id%d", i), "name": fmt.Sprintf("node-%04d", i), "state": "ready", "labels": map[string]string{"rack": fmt.Sprintf("r%d", i/50)}, "signed_labels": map[string]string{},
			"gpus": append([]any{}, gpus...), "cpus": 8, "memory": 1 << 30, "running": 1, "free": map[string]any{"cpus": 7, "memory": 1 << 29}, "drivers": []string{}, "addrs": []string{},
		})
	}
	return map[string]any{"items": all}
}

// A list of thousands of nodes draws only the rows on the screen, wherever it is scrolled to: drawing all rows would
// take too long at each change.
func TestListOfManyNodesDrawsVisibleRows(t *testing.T) {
	const all = 3000
	tab := page(t, daemon{"/v1/nodes": says(nodes(all))}, "/nodes")
	until(t, tab, "document.body.innerText.includes('node-0000')")
	const rows = "document.querySelectorAll('[data-row]').length"
	if n := eval[int](t, tab, rows); n < 10 || n > 60 {
		t.Errorf("got %d of %d rows drawn, want 10 to 60", n, all)
	}
	eval[bool](t, tab, "document.querySelector('[role=table]').scrollTop = 1e9, true")
	until(t, tab, "document.body.innerText.includes('node-2999')")
	if n := eval[int](t, tab, rows); n > 60 {
		t.Errorf("at the end: got %d of %d rows drawn, want at most 60", n, all)
	}
	if said := eval[string](t, tab, "document.querySelector('[role=table]').getAttribute('aria-rowcount')"); said != fmt.Sprint(all+1) {
		t.Errorf("got aria-rowcount %s, want %d", said, all+1)
	}
}

// The topology of many nodes is drawn in parts, so that the tab stays responsive.
func TestTopologyIsDrawnInParts(t *testing.T) {
	const all = 1000
	watched := make(chan struct{})
	tab := page(t, daemon{"/v1/nodes": func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-watched:
		case <-r.Context().Done():
			return
		}
		says(nodes(all))(w, r)
	}}, "/topology")
	until(t, tab, "document.body.innerText.includes('Loading')")
	const drawn = "document.querySelectorAll('.leaves button').length"
	eval[bool](t, tab, `window.most = window.last = 0, new MutationObserver(() => { const n = `+drawn+`; most = Math.max(most, n - last); last = n; }).observe(document.body, { childList: true, subtree: true }), true`)
	close(watched)
	until(t, tab, fmt.Sprintf("%s === %d", drawn, all))
	if most := eval[int](t, tab, "most"); most > 50 {
		t.Errorf("got %d nodes drawn at once, want at most 50", most)
	}
	if text := eval[string](t, tab, "document.querySelector('.tree').innerText"); !strings.Contains(text, "rack r19 50 nodes") {
		t.Errorf("the topology is %q, want rack r19 with 50 nodes", text)
	}
}

// Data that has not arrived is shown as loading, and not as none.
func TestLatestChangesAreShownAsLoading(t *testing.T) {
	arrived := make(chan struct{})
	tab := page(t, daemon{"/v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("state") == "" {
			select {
			case <-arrived:
			case <-r.Context().Done():
				return
			}
		}
		says(map[string]any{"items": []any{}})(w, r)
	}}, "/")
	const changes = "document.querySelector('[aria-labelledby=o-new]')?.innerText || ''"
	until(t, tab, "Boolean("+changes+")")
	if text := eval[string](t, tab, changes); !strings.Contains(text, "Loading") || strings.Contains(text, "Nothing") {
		t.Errorf("before they are loaded: got the changes %q, want Loading", text)
	}
	close(arrived)
	until(t, tab, "("+changes+").includes('Nothing yet.')")
}
