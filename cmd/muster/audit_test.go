package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/audit"
)

const auditDoc = `{"schema":"muster.audit/v1","partial":["n9"],"items":[
	{"schema":"muster.audit_entry/v1","node":"n1","node_id":"12D3KooWNode","time":"2026-01-02T03:06:07Z","first_time":"2026-01-02T03:01:00Z","action":"hello","outcome":"refused","code":"revoked","from":"network","peer":"12D3KooWStranger1","address":"/ip4/10.0.0.7/tcp/1","count":4311},
	{"schema":"muster.audit_entry/v1","node":"n1","node_id":"12D3KooWNode","time":"2026-01-02T03:05:06Z","action":"cancel","outcome":"refused","code":"denied","reason":"it belongs to amy","user":"ben","from":"peer","peer":"12D3KooWGuest","peer_name":"n2\u001b[2J\nx","object":"` + idA + `","count":1},
	{"schema":"muster.audit_entry/v1","node":"n1","node_id":"12D3KooWNode","time":"2026-01-02T03:04:05Z","action":"submit","outcome":"ok","user":"amy","uid":1000,"pid":7,"from":"socket","object":"` + idA + `","details":{"name":"train"},"count":1}]}`

func TestAuditPrintsEntriesInEachForm(t *testing.T) {
	var asked string
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/audit": func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		answer(http.StatusOK, auditDoc)(w, r)
	}})
	want := "TIME             NODE  WHO           ACTION  WHAT\n" +
		"01-02 03:04 UTC  n1    amy@socket    submit  " + idA + "\n" +
		"01-02 03:05 UTC  n1    ben@n2·[2J·x  cancel  refused (denied) " + idA + "\n" +
		"01-02 03:06 UTC  n1    10.0.0.7      hello   +4311 refused (revoked) tranger1\n"
	r := f.muster("audit", "--since", "2026-01-02T03:04", "--user", "amy", "--action", "submit", "--node", "n1", "-n", "7")
	if r.stdout != want || r.code != 0 || !strings.Contains(r.err, "no answer from n9") {
		t.Errorf("exit %d, %s\n%s\nwant exit 0, stderr with n9 and\n%s", r.code, r.err, r.stdout, want)
	}
	if asked != "action=submit&limit=7&node=n1&since=2026-01-02T03%3A04%3A00Z&user=amy" {
		t.Errorf("asked for %s, want all filters of the command line", asked)
	}
	if r := f.muster("audit", "--jsonl"); strings.Count(r.stdout, "\n") != 3 || strings.Count(r.stdout, `"schema":"muster.audit_entry/v1"`) != 3 {
		t.Errorf("audit --jsonl: got %s, want 3 entries", r.stdout)
	}
	if r := f.muster("audit", "--json"); !strings.Contains(r.stdout, `"schema": "muster.audit/v1"`) || !strings.Contains(r.stdout, `"uid": 1000`) {
		t.Errorf("audit --json: got %s, want the schema and uid 1000", r.stdout)
	}
	if r := f.muster("audit", "--me"); r.code != 0 || asked != "limit=100&mine=true" {
		t.Errorf("--me: exit %d, asked for %s, want 0, limit=100&mine=true", r.code, asked)
	}
	for _, wrong := range [][]string{{"--me", "--user", "amy"}, {"--since", "later"}, {"-n", "0"}, {"-n", "1001"}, {"x"}} {
		if r := f.muster(append([]string{"audit"}, wrong...)...); r.code != 2 {
			t.Errorf("%q: exit %d: got %s, want exit 2", wrong, r.code, r.err)
		}
	}
}

// On a terminal no line has more than 80 columns, whatever the names are.
func TestAuditFits80Columns(t *testing.T) {
	long := strings.Repeat("long-", 30)
	var b bytes.Buffer
	p := table.NewPrinter(&b, auditColumns().Shown(table.Usual), 80)
	if err := p.Rows([]api.AuditEntry{{Node: long, Entry: audit.Entry{Time: time.Now(), User: long, PeerName: long, Peer: "p", Object: long, Action: audit.DeclareDead, Outcome: audit.Refused, Code: "denied", Count: 1 << 40}}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("got %d columns, want at most 80: %s", n, line)
		}
	}
}
