//go:build e2e

package e2e

// The history of a job, forgetting it, and querying nodes again.

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// asks sends a request over the socket.
func (d *daemon) asks(method, path, body string) (status int, text string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://muster"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// TestHistoryOfAJobIsCompleteUntilForgotten follows a job that is held, fails and runs again, at another daemon and
// after a kill of its owner.
func TestHistoryOfAJobIsCompleteUntilForgotten(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--default-time", "90m").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--no-worker").start(amy.invite().flags()...)
	amy.untilNodes(2)
	ben.untilNodes(2)

	id := amy.ok("submit", "--hold", "--", "sh", "-c", "exit 3")
	if text := amy.ok("show", id); !strings.Contains(text, "at most 1h30m (the default)") {
		t.Errorf("show: want the default time limit, got\n%s", text)
	}
	amy.ok("release", id)
	amy.fails(3, nil, "wait", id)
	amy.ok("requeue", id, "--reason", "once more")
	amy.fails(3, nil, "wait", id)
	kinds := func(d *daemon) string {
		var l api.Listing[api.JobEvent]
		if err := json.Unmarshal([]byte(d.ok("events", id, "--json")), &l); err != nil {
			t.Fatal(err)
		}
		var words []string
		last := time.Time{}
		for _, e := range l.Items {
			words = append(words, string(e.Kind))
			if e.At == nil || e.At.Before(last) {
				t.Errorf("%s is at %v, want after %s", e.Kind, e.At, last)
				continue
			}
			last = *e.At
		}
		return strings.Join(words, " ")
	}
	want := "submitted released placed started ended requeued placed started ended ended"
	if got := kinds(ben); got != want {
		t.Errorf("history at ben: got %s, want %s", got, want)
	}
	amy.kill()
	amy.start()
	if got := kinds(amy); got != want {
		t.Errorf("history after a restart: got %s, want %s", got, want)
	}

	waits := amy.ok("submit", "-c", "4", "--retries", "9", "--", "sh", "-c", "test $MUSTER_ATTEMPT -ge 4")
	amy.ok("wait", waits)
	running := amy.ok("submit", "--", "sleep", "300")
	for _, job := range []string{id, waits} {
		if status, _ := ben.asks("DELETE", "/v1/jobs/"+job, ""); status != 204 {
			t.Errorf("forget %s: status %d, want 204", job, status)
		}
		amy.fails(1, []string{"not found"}, "show", job)
	}
	if status, text := ben.asks("DELETE", "/v1/jobs/"+running, ""); status != 409 || !strings.Contains(text, "muster cancel") {
		t.Errorf("forget a running job: got %d %s, want 409 and the verb", status, text)
	}
	if text := amy.ok("audit", "--action", "forget"); strings.Count(text, "forget") < 2 {
		t.Errorf("the audit log: want both acts, got\n%s", text)
	}
	big := amy.ok("submit", "-c", "4", "--", "true")
	status, text := ben.asks("POST", "/v1/schedule", "{}")
	var d api.Looked
	if err := json.Unmarshal([]byte(text), &d); status != 200 || err != nil || len(d.Waiting) != 1 || string(d.Waiting[0].Job) != big || d.Waiting[0].Reason == "" {
		t.Errorf("schedule: got %d %s, want the reason of the large job", status, text)
	}
	amy.ok("cancel", running)
	amy.ok("wait", big)
}
