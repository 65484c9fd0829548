package ui

// What a tab does that nobody sees, and when it is seen again.

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// What is asked for again and again is not asked for in a hidden tab, and at once when the tab is seen again.
func TestHiddenAsksNothing(t *testing.T) {
	tab := page(t, daemon{}, "/")
	got := eval[struct{ Seen, Hidden, Again, Ended int }](t, tab, `(async () => { `+modules+`
		const { again } = await load('api.js');
		const turn = () => new Promise((done) => setTimeout(done));
		const look = async (hidden) => {
			Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });
			document.dispatchEvent(new Event('visibilitychange'));
			for (let i = 0; i < 20; i++) await turn();
		};
		let asked = 0;
		const count = async (f) => { const before = asked; await f(); return asked - before; };
		const end = again(async () => { asked++; }, 0);
		const Seen = await count(() => look(false));
		await look(true);
		const Hidden = await count(() => look(true));
		const Again = await count(() => look(false));
		end();
		await look(false);
		return { Seen, Hidden, Again, Ended: await count(() => look(false)) };
	})()`)
	if got.Seen == 0 || got.Hidden != 0 || got.Again == 0 || got.Ended != 0 {
		t.Errorf("a tab asked %d times when it was seen, %d when it was hidden, %d when it was seen again, and %d after the end", got.Seen, got.Hidden, got.Again, got.Ended)
	}
}

// Whose jobs hold GPUs is asked for anew when events were missed.
func TestHoldersAfterGap(t *testing.T) {
	gap := make(chan struct{})
	var late atomic.Bool
	tab := page(t, daemon{
		"/v1/nodes": says(nodes(1, map[string]any{"uuid": "GPU-1", "class": "h100", "health": "healthy", "utilization": 5, "jobs": []string{"1-1"}})),
		"/v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			user := "amy"
			if late.Load() {
				user = "ben"
			}
			says(map[string]any{"items": []any{map[string]string{"id": "1-1", "user": user}}})(w, r)
		},
		"/v1/events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-gap:
				_, _ = w.Write([]byte("event: gap\ndata: {\"kind\":\"gap\"}\n\n"))
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
			}
			<-r.Context().Done()
		},
	}, "/gpus")
	const users = "document.querySelector('select[aria-label=\"any user\"]')?.innerText || ''"
	until(t, tab, "("+users+").includes('amy')")
	late.Store(true)
	close(gap)
	until(t, tab, "("+users+").includes('ben')")
}
