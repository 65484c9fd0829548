package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// muster events prints a log, or the columns that the flags of listings choose.
func TestEventsArePrintedInColumns(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i, e := range []string{
				`"kind":"gap"`, `"kind":"job","event_id":"e-1","job":` + jobDoc(idA, "RUNNING", ""), `"kind":"node","event_id":"e-2","node":{"name":"n1","state":"draining"}`,
				`"kind":"member","event_id":"e-3","member":{"name":"n2\u001b[31m","state":"lost"}`,
			} {
				fmt.Fprintf(w, "data: {\"at\":\"2026-01-02T03:04:0%dZ\",%s}\n\n", i, strings.ReplaceAll(e, "\n", " "))
			}
		},
	})
	for line, want := range map[string]string{
		"events":                              "2026-01-02T03:04:01.000 job    " + idA + " RUNNING train of amy\n2026-01-02T03:04:02.000 node   n1 draining, 0 tasks, free 0 of 0 cpus\n2026-01-02T03:04:03.000 member n2·[31m lost\n",
		"events -n 1":                         "2026-01-02T03:04:01.000 job    " + idA + " RUNNING train of amy\n",
		"events -o kind,state,node":           "KIND    STATE     NODE\njob     RUNNING   n1\nnode    draining  n1\nmember  lost      n2·[31m\n",
		"events -o kind --sort -time -n 2":    "KIND\nmember\nnode\n",
		"events -q":                           "e-1\ne-2\ne-3\n",
		"events --format {{.Kind}}={{.User}}": "job=amy\nnode=-\nmember=-\n",
	} {
		r := f.muster(strings.Fields(line)...)
		if r.code != 0 || r.stdout != want {
			t.Errorf("%s: exit %d, %s\n%s\nwant\n%s", line, r.code, r.err, r.stdout, want)
		}
	}
	if r := f.muster("events", "--json"); r.code != 0 || !strings.Contains(r.stdout, `"schema": "muster.events/v1"`) || strings.Count(r.stdout, `"kind"`) != 4 {
		t.Errorf("--json: exit %d, %s, want 0 and 4 events", r.code, r.stdout)
	}
}

// muster events ID prints the history of a job, over all pages.
func TestEventsOfAJobPrintItsHistory(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobDoc(idA, "FAILED", `,"exit_code":7`)),
		"GET /v1/jobs/" + idA + "/events": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("cursor") == "" {
				io.WriteString(w, `{"items":[{"kind":"submitted","at":"2026-01-02T03:04:05Z","user":"amy"},{"kind":"omitted","at":null,"count":3,"reason":"earlier attempts","task":0}],"next":"4"}`)
				return
			}
			io.WriteString(w, `{"items":[{"kind":"placed","at":"2026-01-02T03:04:06Z","task":0,"attempt":2,"node":"n1"},{"kind":"ended","at":"2026-01-02T03:05:06.5Z","task":0,"attempt":2,"node":"n1","state":"FAILED","exit_code":7}]}`)
		},
	})
	r := f.muster("events", idA)
	want := "TIME                     TASK  ATTEMPT  EVENT      WHAT\n" +
		"2026-01-02 03:04:05.000  -     -        submitted  by amy\n" +
		"-                        0     -        omitted    3, earlier attempts\n" +
		"2026-01-02 03:04:06.000  0     2        placed     on n1\n" +
		"2026-01-02 03:05:06.500  0     2        ended      FAILED, exit code 7\n"
	if r.code != 0 || r.stdout != want {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", r.code, r.err, r.stdout, want)
	}
	if r := f.muster("events", idA, "-n", "3", "-o", "event,node,exit"); r.stdout != "EVENT      NODE  EXIT\nsubmitted  -     -\nomitted    -     -\nplaced     n1    -\n" {
		t.Errorf("got %s, want 3 rows with the chosen columns", r.stdout)
	}
	if r := f.muster("events", idA, "--since", "1h"); r.code != 2 {
		t.Errorf("--since: exit %d, want exit 2", r.code)
	}
}
