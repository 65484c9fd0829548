package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// idC is the id of a third job.
var idC = strings.Replace(idA, idA[len(idA)-1:], "x", 1)

// partialDoc is a listing of jobs without those of silent members.
func partialDoc(silent []string, jobs ...string) string {
	return strings.Replace(jobsDoc(jobs...), `"partial":[]`, fmt.Sprintf(`"partial":["%s"]`, strings.Join(silent, `","`)), 1)
}

// A member that does not answer does not keep a verb from the jobs of the others. One line names it, and says what to
// do.
func TestSilentMemberKeepsNoVerbFromAllOthers(t *testing.T) {
	for _, verb := range []string{"cancel", "hold", "release", "requeue"} {
		var mu sync.Mutex
		var changed []string
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs": answer(http.StatusOK, partialDoc([]string{"ben"}, jobDoc(idA, "PENDING", ""), jobDoc(idB, "PENDING", ""))),
			"POST /v1/jobs/{id}/" + verb: func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				changed = append(changed, r.PathValue("id"))
				answer(http.StatusOK, jobDoc(r.PathValue("id"), "PENDING", ""))(w, r)
			},
		})
		r := f.muster(verb, "all")
		if want := "muster: all jobs: ben did not answer, so jobs accepted there are left out: "; r.code != 1 || !strings.HasPrefix(r.err, want) || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "`muster peers --revoke ben`") {
			t.Errorf("%s all: exit %d, %q, want 1 and one line about ben", verb, r.code, r.err)
		}
		if !slices.Equal(changed, []string{idA, idB}) {
			t.Errorf("%s all: changed %v, want %q", verb, changed, []string{idA, idB})
		}
	}
}

// wait all says at once which members are silent, waits for the jobs of the others, and does not claim that all have
// succeeded.
func TestWaitForAllNamesSilentMembers(t *testing.T) {
	silent := []string{"a", "b", "c", "d", "e", "f", "g"}
	for state, code := range map[string]int{"SUCCEEDED": 125, "FAILED": 7} {
		ended := jobDoc(idA, state, fmt.Sprintf(`,"exit_code":%d`, code%125))
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs":        answer(http.StatusOK, partialDoc(silent, jobDoc(idA, "RUNNING", ""))),
			"GET /v1/jobs/" + idA: answer(http.StatusOK, ended),
			"GET /v1/events":      events(ended),
		})
		if r := f.muster("wait", "all"); r.code != code || !strings.HasPrefix(r.err, "muster: all jobs: a, b, c, d, e and 2 more did not answer, ") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("wait all, of which one is %s: exit %d, %q, want %d and one line with the silent members", state, r.code, r.err, code)
		}
	}
}

// A member that lists jobs and then does not answer delays no other. After the first of its jobs the others are not
// tried.
func TestOwnerThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	evil := func(id string) string {
		return strings.NewReplacer("12D3KooWOwner", "12D3KooWEvil", `"owner_name":"n1"`, `"owner_name":"evil"`).Replace(jobDoc(id, "RUNNING", ""))
	}
	honest := make(chan struct{})
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": answer(http.StatusOK, jobsDoc(evil(idA), evil(idC), jobDoc(idB, "RUNNING", ""))),
		"POST /v1/jobs/" + idB + "/cancel": func(w http.ResponseWriter, r *http.Request) {
			close(honest)
			answer(http.StatusOK, jobDoc(idB, "CANCELLED", ""))(w, r)
		},
		"POST /v1/jobs/" + idA + "/cancel": func(w http.ResponseWriter, r *http.Request) {
			<-honest // until then it does not answer
			problem(http.StatusServiceUnavailable, "unavailable", `"detail": "evil did not answer"`)(w, r)
		},
	})
	r := f.muster("cancel", "all")
	if r.code != 1 || r.err != "muster: cancel "+idA+": evil did not answer; 1 more job of evil not tried\n" {
		t.Errorf("exit %d, %q, want 1 and one line about the jobs of evil", r.code, r.err)
	}
}
