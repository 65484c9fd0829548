package main

// Every listing on a terminal, and the flags that all of them have.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/muster/table"
)

func wordColumns() table.Columns[string] {
	return table.Columns[string]{{Name: "word", IsKey: true, Cell: func(s string) string { return s }}}
}

// hugeCluster answers listings with texts of the greatest length.
func hugeCluster(t *testing.T) *fake {
	t.Helper()
	long := strings.Repeat("long-name-", 20)
	gpus := make([]string, 64)
	for i := range gpus {
		gpus[i] = fmt.Sprintf(`{"schema":"muster.gpu/v1","node":"%s","node_id":"12D3KooWNode","uuid":"GPU-%d","index":%d,"model":"NVIDIA %s","class":"class-%d-%s","memory":85899345920,"memory_used":1073741825,"utilization":100,
			"health":"unhealthy","detail":"%s","free":0.25,"job":"%s","jobs":["%s","%s"]}`, long, i, i, long, i, long, long, idA, idA, idB)
	}
	node := fmt.Sprintf(`{"schema":"muster.node/v1","id":"12D3KooWNode","name":"%s","state":"draining","detail":"%s","labels":{"%s":"%s"},"signed_labels":{"%s":"x"},"cpus":1024,"memory":1099511627777,"free":{"cpus":1000,"memory":1,"gpus":64},"gpus":[%s]}`,
		long, long, long, long, long, strings.Join(gpus, ","))
	huge := func(id, state string) string {
		return strings.NewReplacer(`"name":"train"`, `"name":"`+long+`"`, `"user":"amy"`, `"user":"`+long+`"`, `"node":"n1"`, `"node":"`+long+`"`, `"reason":""`, `"reason":"`+long+`"`,
			`"started_at":"2026-01-02T03:04:06Z"`, `"started_at":"1999-01-02T03:04:06Z"`, `"resources":{`, `"time_limit":8640000,"estimated_start":"2026-01-02T03:04:06Z","resources":{`).Replace(jobDoc(id, state, ""))
	}
	peer := func(name, more string) string {
		return fmt.Sprintf(`{"id":"12D3KooW%s","name":"%s%s","state":"ready","self":true,"roles":["worker","scheduler","inviter"],"addrs":["/%s","/%s"],"last_seen_at":"2026-01-02T03:04:05Z"%s}`, name, name, long, long, long, more)
	}
	return newFake(t, map[string]http.HandlerFunc{
		"GET /v1/stats": answer(http.StatusOK, `{"waits":null}`),
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			doc := jobsDoc(huge(idA, "OUT_OF_MEMORY"), huge(idB, "PENDING"))
			if r.URL.Query().Get("state") == "PENDING" {
				doc = jobsDoc(huge(idB, "PENDING"))
			}
			answer(http.StatusOK, doc)(w, r)
		},
		"GET /v1/nodes": answer(http.StatusOK, `{"schema":"muster.nodes/v1","items":[`+node+`]}`),
		"GET /v1/gpus":  answer(http.StatusOK, `{"schema":"muster.gpus/v1","items":[`+strings.Join(gpus, ",")+`]}`),
		"GET /v1/peers": answer(http.StatusOK, `{"schema":"muster.peers/v1","items":[`+peer("a", "")+","+peer("b", "")+","+
			peer("c", `,"revoked":{"at":"2026-01-02T03:04:05Z","by":"12D3KooWa","by_name":"`+long+`","reason":"`+long+`","with_invited":true,"here":true}`)+`]}`),
		"GET /v1/users": answer(http.StatusOK, `{"schema":"muster.users/v1","items":[{"user":"`+long+`","project":"`+long+`","weight":1000,"share":1,"used":1,"gpu_seconds":1e10,"cpu_seconds":1e10,"running":1000000,"waiting":1000000,
			"limits":[{"nodes":1000,"tasks":1000,"gpus":1000,"cpus":1000,"memory":1000000000001}]}]}`),
		"GET /v1/audit": answer(http.StatusOK, auditDoc),
	})
}

// listings are the command lines of all listings.
var listings = []string{"jobs", "jobs --all", "jobs --start", "nodes", "gpus", "gpus --free", "peers", "users", "audit"}

func TestListingsFit80Columns(t *testing.T) {
	f := hugeCluster(t)
	for _, line := range listings {
		screen := &tty{columns: 80, lines: 24}
		var errs bytes.Buffer
		args := append([]string{"muster", "--socket", f.socket}, strings.Fields(line)...)
		if code := run(t.Context(), args, streams{strings.NewReader(""), screen, &errs}); code != 0 {
			t.Fatalf("%s: exit %d, %s, want 0", line, code, errs.String())
		}
		on := screen.take()
		for row := range strings.Lines(on) {
			if n := table.Width(strings.TrimSuffix(row, "\n")); n > 80 {
				t.Errorf("%s: got %d columns, want at most 80: %s", line, n, row)
			}
		}
		if strings.ContainsAny(on, "\x1b") {
			t.Errorf("%s: got colours, want none: %q", line, on)
		}
		for _, wide := range []result{f.muster(strings.Fields(line)...), f.musterOn(&tty{columns: 80, lines: 24}, append(strings.Fields(line), "--wide")...)} {
			if strings.Contains(wide.stdout, "…\n") || line != "audit" && !strings.Contains(wide.stdout, strings.Repeat("long-name-", 20)) {
				t.Errorf("%s: cut without a terminal, or with --wide:\n%s", line, wide.stdout)
			}
		}
	}
}

// musterOn runs the program on a terminal.
func (f *fake) musterOn(screen *tty, args ...string) result {
	f.t.Helper()
	var errs bytes.Buffer
	code := run(f.t.Context(), append([]string{"muster", "--socket", f.socket}, args...), streams{strings.NewReader(""), screen, &errs})
	return result{code, screen.take(), errs.String()}
}

// All listings have the same flags, with the same meaning.
func TestAllListingsHaveTheSameFlags(t *testing.T) {
	f := hugeCluster(t)
	for _, line := range listings {
		args := strings.Fields(line)
		lines := func(more ...string) []string {
			t.Helper()
			r := f.muster(append(append([]string{}, args...), more...)...)
			if r.code != 0 {
				t.Errorf("%s %q: exit %d, %q, want exit 0", line, more, r.code, r.err)
			}
			return strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
		}
		help := lines("-o", "help")
		var names []string
		for _, l := range help[1:] {
			name, meaning, _ := strings.Cut(l, " ")
			if names = append(names, name); strings.TrimSpace(meaning) == "" {
				t.Errorf("%s: the column %s is not explained", line, name)
			}
		}
		if help[0][:6] != "COLUMN" || len(names) < 5 {
			t.Errorf("%s -o help: got %q, want at least 5 columns below COLUMN", line, help)
		}
		rows := len(lines("-q"))
		for _, name := range names {
			if got := lines("-o", name, "--sort", "-"+name, "-n", "1"); len(got) != 2 {
				t.Errorf("%s -o %s: got %q, want 2 lines", line, name, got)
			}
			if got := lines("--format", "{{."+strings.ReplaceAll(name, "-", "")+"}}"); len(got) != rows {
				t.Errorf("%s --format %s: got %d rows, want %d", line, name, len(got), rows)
			}
		}
		if got := lines("-o", names[0]+":12,"+names[1]); !strings.HasPrefix(got[0], fmt.Sprintf("%-12.12s  ", got[0][:10])) {
			t.Errorf("%s with a width: got %q, want a first column of 12", line, got)
		}
		for _, form := range [][]string{{"--json"}, {"--format", "json"}, {"-o", "json"}} {
			var doc struct{ Items []any }
			if got := strings.Join(lines(form...), "\n"); json.Unmarshal([]byte(got), &doc) != nil || len(doc.Items) < rows {
				t.Errorf("%s %q: got %.100s, want one document with all rows", line, form, got)
			}
		}
		for _, form := range [][]string{{"--jsonl"}, {"--format", "jsonl"}, {"-o", "jsonl"}} {
			if got := lines(form...); len(got) < rows || !strings.HasPrefix(got[0], "{") {
				t.Errorf("%s %q: got %.100q, want a line of JSON for each row", line, form, got)
			}
		}
		list := strings.Join(names, ", ")
		for wrong, says := range map[string]string{
			"-o nope":            `--columns: no such column: "nope"; there are ` + list,
			"--sort nope":        `--sort: no such column: "nope"; there are ` + list,
			"--format {{.Nope}}": `--format: no such column: "Nope"; there are ` + list,
			"-o id:wide":         `--columns: `,
			"-q --json":          "--json and --quiet: give one of them",
			"--columns=":         `--columns: no such column: ""`,
			"--format=":          `--format: want a template`,
			"-n 0":               "--limit 0: ",
		} {
			r := f.muster(append(append([]string{}, args...), strings.Fields(wrong)...)...)
			if r.code != 2 || r.stdout != "" || !strings.Contains(r.err, says) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("%s %s: exit %d, %q; want %q", line, wrong, r.code, r.err, says)
			}
		}
	}
}

// A sorted listing is cut after sorting; an unsorted one asks for no more than it prints.
func TestSortedListingIsCutAfterSorting(t *testing.T) {
	var asked []string
	first, second := strings.Replace(jobDoc(idA, "RUNNING", ""), `"priority":50`, `"priority":9`, 1), strings.Replace(jobDoc(idB, "RUNNING", ""), `"priority":50`, `"priority":10`, 1)
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("limit"))
		answer(http.StatusOK, jobsDoc(first, second))(w, r)
	}})
	for line, want := range map[string]string{
		"jobs -q -n 1":                                            idA + " 1",
		"jobs -q -n 1 --sort -priority":                           idB + " 1000",
		"jobs -q -n 1 --sort priority":                            idA + " 1000",
		"jobs -q -n 1 --sort priority:desc":                       idB + " 1000",
		"jobs -o priority:6,name --sort user,-priority --limit 1": "PRIOR…  NAME\n10      train 1000",
		"jobs --format {{.ID}}={{.Priority}} -n 1":                idA + "=9 1",
	} {
		asked = nil
		r := f.muster(strings.Fields(line)...)
		if got := strings.TrimSuffix(r.stdout, "\n") + " " + strings.Join(asked, ","); r.code != 0 || got != want {
			t.Errorf("%s: exit %d, %q, %q; want %q", line, r.code, got, r.err, want)
		}
	}
}

// A shared GPU shows how much of it is given, and to which jobs.
func TestSharedGPUShowsItsJobs(t *testing.T) {
	doc := func(uuid, free, jobs string) string {
		return `{"node":"n1","uuid":"` + uuid + `","model":"H100","memory":85899345920,"memory_used":0,"utilization":0,"health":"healthy","free":` + free + `,"jobs":[` + jobs + `]}`
	}
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/nodes": answer(http.StatusOK, `{"items":[{"id":"x","name":"n1","state":"ready","free":{"cpus":3,"gpus":1},"gpus":[`+
		doc("a", "0.2", `"`+idA+`"`)+","+doc("b", "1", "")+","+doc("c", "0.3", `"`+idB+`"`)+`]}]}`), "GET /v1/gpus": answer(http.StatusOK, `{"items":[`+
		doc("a", "0.2", `"`+idA+`","`+idB+`"`)+","+doc("b", "1", "")+","+doc("c", "0", "")+`]}`)}) // no job has c, and it cannot be given
	want := "UUID  GIVEN  JOB\na     0.8    " + idA + "," + idB + "\nb     -      -\nc     -      -\n"
	if r := f.muster("gpus", "-o", "uuid,given,job"); r.stdout != want {
		t.Errorf("got %s\nwant\n%s", r.stdout, want)
	}
	if r := f.muster("nodes", "-o", "name,free"); r.stdout != "NAME  FREE\nn1    3 cpus, 1.5 gpus\n" {
		t.Errorf("got %s, want 3 CPUs and 1.5 GPUs free", r.stdout)
	}
}
