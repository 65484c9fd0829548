package ui

// What the dashboard shows when a daemon does not answer, and when a daemon has no answer from another one.

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A door that reaches no daemon answers with 502: the page turns grey, and shows the text of the door.
func TestPageSaysThatItsDaemonIsSilent(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusOK)
	tab := page(t, daemon{"/v1/users": func(w http.ResponseWriter, r *http.Request) {
		if status.Load() == http.StatusOK {
			says(map[string]any{"items": []any{}})(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(int(status.Load()))
		_ = json.NewEncoder(w).Encode(map[string]string{"code": "unavailable", "detail": "no daemon answers on /run/x.sock"})
	}}, "/users")
	const ask = "(async () => { " + modules + " (await load('resource.js')).users.load(); return true; })()"
	until(t, tab, "document.body.innerText.includes('Nobody has used anything yet')")

	status.Store(http.StatusServiceUnavailable)
	eval[bool](t, tab, ask)
	until(t, tab, "document.querySelector('.fresh').innerText.includes('/run/x.sock')")
	if eval[bool](t, tab, "Boolean(document.querySelector('.banner'))") {
		t.Error("the page says that its daemon is gone, though another one does not answer")
	}

	status.Store(http.StatusBadGateway)
	eval[bool](t, tab, ask)
	until(t, tab, "Boolean(document.querySelector('.banner'))")
	if text := eval[string](t, tab, "document.querySelector('.banner').innerText"); !strings.Contains(text, "no daemon answers on /run/x.sock") {
		t.Errorf("the banner is %q, want the text of the door", text)
	}
	if !eval[bool](t, tab, "document.querySelector('main').classList.contains('stale')") {
		t.Error("old data is not marked")
	}
}
