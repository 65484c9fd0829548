package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// waitingDoc returns the document of a job that waits, and has not run before.
func waitingDoc(id, state, more string) string {
	return strings.NewReplacer(`"reason":""`, more, `"started_at":"2026-01-02T03:04:06Z","ended_at":"2026-01-02T03:05:07Z",`, "").Replace(jobDoc(id, state, ""))
}

// jobs --start prints the begin time of a job with --begin; a time that has passed is left out.
func TestListingShowsTheBeginTimeOfJobs(t *testing.T) {
	over := waitingDoc(idA, "PENDING", `"reason":"Resources","begin_at":"2000-01-02T09:00:00Z"`)
	later := waitingDoc(idB, "PENDING", `"reason":"BeginTime","begin_at":"2999-01-02T09:00:00Z"`)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":        answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+over+`,`+later+`]}`),
		"GET /v1/jobs/" + idB: answer(http.StatusOK, later),
		"GET /v1/stats":       answer(http.StatusInternalServerError, `{}`), // the listing does not need it
	})
	a, b := idA+"  train  amy   PD  -                          2     Resources\n", idB+"  train  amy   PD  from 2999-01-02 09:00 UTC  2     BeginTime\n"
	head := "ID                        NAME   USER  ST  START                      GPUS  REASON\n"
	if r := f.muster("jobs", "--start"); r.code != 0 || r.stdout != head+a+b {
		t.Errorf("exit %d, %q\n%s\nwant\n%s", r.code, r.err, r.stdout, head+a+b)
	}
	if r := f.muster("jobs", "--start", "--sort", "start"); r.code != 0 || r.stdout != head+b+a {
		t.Errorf("sorted: exit %d, %q\n%s\nwant\n%s", r.code, r.err, r.stdout, head+b+a)
	}
	if r := f.muster("show", idB); !strings.Contains(r.stdout, "starts     2999-01-02 09:00:00 UTC or later\n") {
		t.Errorf("show: got %s %s, want the time of --begin", r.stdout, r.err)
	}
}

// why promises no start to a job that waits for something other than capacity.
func TestWhyPromisesNoStart(t *testing.T) {
	const begin = `,"begin_at":"2999-01-02T09:00:00Z"`
	for _, c := range []struct{ state, reason, begin, want string }{
		{"PENDING", "Resources", "", "starts  unknown\nnow     n1: this host\n"},
		{"PENDING", "BeginTime", begin, "starts    2999-01-02 09:00:00 UTC or later\nhas room  n1: this host\n"},
		{"PENDING", "BeginTime", "", "reason    BeginTime\nhas room  n1: this host\n"}, // of a daemon that does not send the time
		{"PENDING", "Dependency", "", "starts      when its dependencies are met\nhas room    n1: this host\ndepends on  afterok:" + idB + " waiting: RUNNING\n"},
		{"PENDING", "Dependency", begin, "starts      when its dependencies are met, and not before 2999-01-02 09:00:00 UTC\nhas room    n1: this host\ndepends on  afterok:" + idB + " waiting: RUNNING\n"},
		{"PENDING", "DependencyNeverSatisfied", "", "starts      never: its dependencies cannot be met\nhas room    n1: this host\ndepends on  afterok:" + idB + " waiting: RUNNING\n"},
		{"PENDING", "DependencyNeverSatisfied", begin, "starts      never: its dependencies cannot be met\nhas room    n1: this host\ndepends on  afterok:" + idB + " waiting: RUNNING\n"},
		{"HELD", "Held", "", "starts    after its release: muster release " + idA + "\nhas room  n1: this host\n"},
	} {
		doc := waitingDoc(idA, c.state, fmt.Sprintf(`"reason":%q%s,"dependencies":[{"condition":"afterok","job":%q,"state":"waiting","job_state":"RUNNING"}]`, c.reason, c.begin, idB))
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/" + idA:          answer(http.StatusOK, doc),
			"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, fmt.Sprintf(`{"job":%q,"state":%q,"reason":%q,"clauses":[],"now":[{"node":"n1","why":"this host"}],"later":[]}`, idA, c.state, c.reason)),
		})
		if r := f.muster("why", idA); r.code != 0 || !strings.HasSuffix(r.stdout, c.want) {
			t.Errorf("%s, %s%s: exit %d, %q\n%s\nwant\n%s", c.state, c.reason, c.begin, r.code, r.err, r.stdout, c.want)
		}
	}
}

// alloc prints its nodes as listings do.
func TestAllocPrintsItsNodes(t *testing.T) {
	a := allocation{job: api.Job{Tasks: []api.Task{{Node: "n3"}, {Node: "n1"}, {Node: "n2"}, {Node: "n2"}, {Node: "big"}}}}
	if got := a.nodes(); got != "n[1-3],big" {
		t.Errorf("got nodes %q, want %q", got, "n[1-3],big")
	}
}

// jobs --start prints how long jobs have waited that have started, apart from the listing. Unknown figures are left
// out.
func TestListingShowsHowLongJobsWaited(t *testing.T) {
	const list = `{"schema":"muster.jobs/v1","partial":[],"items":[]}`
	for stats, want := range map[string]string{
		`{"partial":[],"waits":{"started":12,"p50":0.4,"p95":95,"longest":7260,"partial":[]}}`:        "muster: the jobs that started in the last hour (12) waited less than 1s (median), 1m35s (95th percentile), at most 2h1m\n",
		`{"partial":["n8"],"waits":{"started":1,"p50":3,"p95":3,"longest":3,"partial":["n\u001b9"]}}`: "muster: the jobs that started in the last hour (1) waited 3s (median), 3s (95th percentile), at most 3s; not counting those of n8, n·9\n",
		`{"partial":[],"waits":{"started":0,"p50":null,"p95":null,"longest":null,"partial":[]}}`:      "muster: no job has started in the last hour\n",
		`{"partial":[],"waits":null}`: "",
	} {
		f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs": answer(http.StatusOK, list), "GET /v1/stats": answer(http.StatusOK, stats)})
		if r := f.muster("jobs", "--start"); r.code != 0 || r.err != want || strings.Contains(r.stdout, "waited") {
			t.Errorf("%s: exit %d, %q and %q, want %q", stats, r.code, r.stdout, r.err, want)
		}
		for _, form := range []string{"--json", "--jsonl", "-q"} {
			if r := f.muster("jobs", "--start", form); r.code != 0 || r.err != "" {
				t.Errorf("%s: exit %d, %q, want exit 0 and empty stderr", form, r.code, r.err)
			}
		}
	}
}
