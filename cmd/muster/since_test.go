package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Parts of a listing, and jobs by name.
func TestListingIsSelectedByNameAndTime(t *testing.T) {
	at := func(id, name, submitted string) string {
		return strings.NewReplacer(`"2026-01-02T03:04:05Z"`, `"`+submitted+`"`, `"name":"train"`, `"name":"`+name+`"`).Replace(jobDoc(id, "RUNNING", ""))
	}
	first, second := at(idA, "train.sh", "2026-01-02T03:00:00Z"), at(idB, "eval", time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	var queries []string
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			queries = append(queries, r.URL.RawQuery)
			items := second + "," + first // the newest first, as daemons list them
			switch name := r.URL.Query().Get("name"); {
			case r.URL.Query().Get("prefix") != "":
				items = ""
			case name == "train.sh":
				items = first
			case name == "none":
				items = ""
			}
			answer(http.StatusOK, `{"schema":"muster.jobs/v1","items":[`+items+`]}`)(w, r)
		},
		"GET /v1/jobs/" + idA: answer(http.StatusOK, first),
	})
	for line, want := range map[string]string{
		"jobs -q": idB + "\n" + idA + "\n", "jobs -q -n 1": idB + "\n", "jobs --limit=5 -q": idB + "\n" + idA + "\n",
		"jobs -q --since 1h": idB + "\n", "jobs -q --since 2026-01-01": idB + "\n" + idA + "\n", "jobs -q --since 2026-01-03T00:00:00Z": idB + "\n",
	} {
		if r := f.muster(strings.Fields(line)...); r.code != 0 || r.stdout != want {
			t.Errorf("%s: exit %d, %q, %q, want 0, %q", line, r.code, r.stdout, r.err, want)
		}
	}
	queries = nil
	if r := f.muster("jobs", "--me"); r.code != 0 || !strings.Contains(queries[0], "mine=true") {
		t.Errorf("--me: exit %d, asked %q, want 0, mine=true", r.code, queries)
	}
	if r := f.muster("show", "train.sh"); r.code != 0 || !strings.HasPrefix(r.stdout, "job        "+idA+"\nname       train.sh\n") {
		t.Errorf("show by name: exit %d, %q, %q, want 0 and the job", r.code, r.stdout, r.err)
	}
	for line, says := range map[string]string{
		"show eval":          "job \"eval\": this is the name of " + idB + " " + idA + "; give an id",
		"show none":          "job \"none\": not found; `muster jobs --all` lists them",
		"jobs -n 0":          "--limit 0: must be at least 1",
		"jobs --since soon":  "--since: \"soon\": want a duration such as 2h, or a time such as 08:00",
		"jobs --me --user x": "--me: not with --user",
	} {
		if r := f.muster(strings.Fields(line)...); r.code == 0 || !strings.Contains(r.err, says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, want an error in one line with %q", line, r.code, r.err, says)
		}
	}
	if at, err := sinceOf("08:00", time.Date(2026, 1, 2, 7, 0, 0, 0, time.UTC)); err != nil || !at.Equal(time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("since 08:00 at 07:00: got %v, %v, want 08:00 of the day before", at, err)
	}
}
