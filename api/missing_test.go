package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/internal/dashboard/ui"
)

// A browser that asks for a page that does not exist gets the dashboard, which says so; all other clients get a problem
// document. No route has an address that the dashboard would treat as such a page.
func TestBrowserGetsTheDashboardForAMissingPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		page := amy.ask(t, "GET", "/nosuch", "Accept", "text/html,*/*;q=0.8", "Sec-Fetch-Site", "none")
		if policy := page.Header.Get("Content-Security-Policy"); page.StatusCode != http.StatusNotFound || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") || !strings.Contains(policy, "script-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("a browser: got %d %v, want the dashboard with 404", page.StatusCode, page.Header)
		}
		for _, pairs := range [][]string{nil, {"Accept", "application/json"}, {"Accept", "text/html", "Upgrade", "websocket", "Connection", "Upgrade"}, {"Accept", "text/html", "Sec-Fetch-Site", "cross-site"}} {
			if resp := amy.ask(t, "GET", "/nosuch", pairs...); resp.StatusCode < 400 || resp.Header.Get("Content-Type") != contentProb {
				t.Errorf("headers %q: got %d %v, want a problem document", pairs, resp.StatusCode, resp.Header)
			}
		}
		var doc struct {
			Paths map[string]json.RawMessage `json:"paths"`
		}
		if err := json.NewDecoder(amy.ask(t, "GET", "/openapi.json").Body).Decode(&doc); err != nil || len(doc.Paths) < 30 {
			t.Fatalf("got %d routes, %v, want at least 30", len(doc.Paths), err)
		}
		for _, path := range slices.AppendSeq(slices.Clone(docsPaths), maps.Keys(doc.Paths)) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Set("Accept", "text/html"); ui.IsMissing(r) {
				t.Errorf("%s is treated as a page that does not exist", path)
			}
		}
	})
}
