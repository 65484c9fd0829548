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

// A ticket is valid for one target, one use and half a minute. It is removed from what is passed on.
func TestTicketIsForOneTargetAndOneUse(t *testing.T) {
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
			t.Errorf("the right ticket: got %q, %t, headers %v, want amy, true, none", of, ok, r.Header)
		}
		if _, ok := all.Take(socket(t, target, text)); ok {
			t.Error("a ticket was accepted twice")
		}
		for _, other := range []string{"/v1/jobs/b/tasks/0/exec?x=1", "/v1/jobs/a/tasks/0/exec", "/v1/jobs/a/tasks/0/exec?x=1&y=2"} {
			text := issue(target)
			if _, ok := all.Take(socket(t, other, text)); ok {
				t.Errorf("a ticket was accepted for %s", other)
			}
			if _, ok := all.Take(socket(t, target, text)); ok {
				t.Error("a ticket was accepted after a use for another target")
			}
		}
		if _, ok := all.Take(socket(t, target, "guessed")); ok {
			t.Error("a guessed ticket was accepted")
		}
		if _, ok := all.Take(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)); ok {
			t.Error("a request without a ticket was accepted")
		}
		late := issue(target)
		time.Sleep(ticketLife + time.Nanosecond)
		if _, ok := all.Take(socket(t, target, late)); ok {
			t.Error("an expired ticket was accepted")
		}
		for range maxTickets {
			issue(target)
		}
		if _, ok := all.Issue(target, "amy"); ok {
			t.Error("got more tickets than the bound")
		}
		time.Sleep(ticketLife + time.Nanosecond)
		issue(target)
		if n := len(all.open); n != 1 {
			t.Errorf("got %d tickets, want 1", n)
		}
	})
}
