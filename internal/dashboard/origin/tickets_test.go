package origin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func socket(t *testing.T, target, ticket string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Header.Set("Sec-Websocket-Protocol", "muster, muster.ticket."+ticket)
	return r
}

// A ticket belongs to one target, one use and half a minute. It is in nothing that is passed on.
func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Tickets[string]
		issue := func(target string) string {
			t.Helper()
			text, ok := all.Issue(target, "amy")
			if !ok {
				t.Fatal("no ticket")
			}
			return text
		}
		const target = "/v1/jobs/a/tasks/0/exec?x=1"
		text := issue(target)
		r := socket(t, target, text)
		if of, ok := all.Take(r); !ok || of != "amy" || len(r.Header) > 0 {
			t.Errorf("its own: %q, %t; left %v", of, ok, r.Header)
		}
		if _, ok := all.Take(socket(t, target, text)); ok {
			t.Error("used twice")
		}
		for _, other := range []string{"/v1/jobs/b/tasks/0/exec?x=1", "/v1/jobs/a/tasks/0/exec", "/v1/jobs/a/tasks/0/exec?x=1&y=2"} {
			text := issue(target)
			if _, ok := all.Take(socket(t, other, text)); ok {
				t.Errorf("used for %s", other)
			}
			if _, ok := all.Take(socket(t, target, text)); ok {
				t.Error("used after it was shown for something else")
			}
		}
		if _, ok := all.Take(socket(t, target, "guessed")); ok {
			t.Error("guessed")
		}
		if _, ok := all.Take(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)); ok {
			t.Error("none at all")
		}
		late := issue(target)
		time.Sleep(ticketLife + time.Nanosecond)
		if _, ok := all.Take(socket(t, target, late)); ok {
			t.Error("used late")
		}
		for range maxTickets {
			issue(target)
		}
		if _, ok := all.Issue(target, "amy"); ok {
			t.Error("more tickets than the bound")
		}
		time.Sleep(ticketLife + time.Nanosecond)
		issue(target)
		if n := len(all.open); n != 1 {
			t.Errorf("%d tickets are kept", n)
		}
	})
}
