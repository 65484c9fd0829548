package ui

// What a hidden tab does, and what it does when it is visible again.

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// Data that is requested periodically is not requested in a hidden tab, and at once when the tab is visible again.
func TestHiddenTabRequestsNothing(t *testing.T) {
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
		t.Errorf("got %d requests while visible, %d while hidden, %d when visible again, and %d after the end, want some, 0, some, 0", got.Seen, got.Hidden, got.Again, got.Ended)
	}
}

// The holders of GPUs are requested again when events were missed.
func TestHoldersAreRequestedAfterAGap(t *testing.T) {
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

// A tab that stays open while jobs arrive keeps a bounded number of them, the newest.
func TestJobsOfATabAreBounded(t *testing.T) {
	tab := page(t, daemon{}, "/users")
	got := eval[struct {
		Most, Kept   int
		Done         bool
		First, Final string
	}](t, tab, `(async () => { `+modules+`
		const { JobList, MOST } = await load('joblist.js');
		window.fetch = async () => new Response('{"items":[]}');
		const list = new JobList({ state: '', user: '', name: '' });
		await list.more();
		const born = (i) => new Date(1e12 + 1000 * i).toISOString();
		const job = (i) => ({ kind: 'job', id: '1-' + i, job: { id: '1-' + i, name: 'x', user: 'amy', state: 'PENDING', submitted_at: born(i) } });
		for (let i = 0; i < MOST + 100; i += 100) list.events(Array.from({ length: 100 }, (_, k) => job(i + k)));
		const { jobs, done } = list.value;
		return { Most: MOST, Kept: jobs.length, Done: done, First: jobs[0].id, Final: jobs[jobs.length - 1].id };
	})()`)
	if got.Kept != got.Most || got.Done || got.First != fmt.Sprintf("1-%d", got.Most+99) || got.Final != "1-100" {
		t.Errorf("after %d jobs and 100 more: got %+v, want the newest ones", got.Most, got)
	}
}
