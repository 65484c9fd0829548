package main

// The output of verbs about gangs.

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// gangDoc returns the document of a gang, or of an array of gangs, with the tasks NUMBER STATE NODE EXITCODE.
func gangDoc(array string, nodes, count int, state, more string, tasks ...string) string {
	var docs []string
	counts := map[string]int{}
	for _, text := range tasks {
		var n, code int
		var state, node string
		fmt.Sscan(text, &n, &state, &node, &code)
		where, exit := `,"attempt":1,"node":"`+node+`","gpus":["GPU-`+fmt.Sprint(n)+`"]`, ""
		if node == "-" {
			where = `,"gpus":[]`
		}
		if job.State(state).Ended() {
			exit = fmt.Sprintf(`,"exit_code":%d,"started_at":"2026-01-02T03:04:06Z","ended_at":"2026-01-02T03:04:08Z"`, code)
		}
		docs = append(docs, fmt.Sprintf(`{"job":%q,"task":%d,"state":%q%s%s}`, idA, n, state, where, exit))
		counts[state]++
	}
	var sums []string
	for s, n := range counts {
		sums = append(sums, fmt.Sprintf("%q:%d", s, n))
	}
	return fmt.Sprintf(`{"schema":"muster.job/v1","id":%q,"name":"ddp","user":"amy","state":%q,"array":%q,"nodes":%d,"task_count":%d,"priority":50,"copies":1,"owner":"12D3KooWOwner",
		"submitted_at":"2026-01-02T03:04:05Z","resources":{"cpus":4,"gpus":2},"spec":{"command":["torchrun"]}%s,
		"counts":{%s},"tasks":[%s]}`, idA, state, array, nodes, count, more, strings.Join(sums, ","), strings.Join(docs, ","))
}

func TestTablesShowGangs(t *testing.T) {
	failed := gangDoc("", 3, 3, "FAILED", `,"reason":"rank 1 on n2: exit code 3","exit_code":3,"exit_status":3`, "0 CANCELLED n1 143", "1 FAILED n2 3", "2 CANCELLED n3 143")
	gathers := gangDoc("", 3, 3, "RESERVED", `,"reason":"GangWaiting","reason_detail":"2 of 3 nodes hold a place"`, "0 RESERVED n1", "1 RESERVED b", "2 PENDING -")
	large := gangDoc("", 16, 16, "RUNNING", "")
	half := gangDoc("", 3, 3, "RUNNING", "", "0 RUNNING n01", "1 SUCCEEDED n02 0", "2 RUNNING n7")
	array := gangDoc("0-9", 2, 20, "RUNNING", "", "6 RUNNING n1", "7 FAILED n2 1")
	for _, c := range []struct{ name, doc, listed, shown string }{
		{"failed", failed, "F   -     n[1-3]  3     rank 1 on n2: exit code 3", `
state      FAILED (rank 1 on n2: exit code 3)
exit code  3
command    torchrun
asks for   4 cpus, 2 gpus, on each of 3 nodes
priority   50
submitted  2026-01-02 03:04:05 UTC
started    -
ended      -
elapsed    -
owner      12D3KooWOwner, kept in 1 copy
ranks      1 FAILED, 2 CANCELLED
rank 0     CANCELLED, exit code 143, attempt 1 on n1, 2s
rank 1     FAILED, exit code 3, attempt 1 on n2, 2s
rank 2     CANCELLED, exit code 143, attempt 1 on n3, 2s
`},
		{"gathers", gathers, "RS  -     n1,b  2     GangWaiting", `
ranks      1 PENDING, 2 RESERVED
rank 0     RESERVED, attempt 1 on n1, -
rank 1     RESERVED, attempt 1 on b, -
rank 2     PENDING
`},
		{"large", large, "R   -     16 nodes  32    -", "\nranks\n           other ranks: muster show " + idA + ".0-15\n"},
		{"half", half, "R   -     n01,n02,n7  3     1/3 done", "rank 1     SUCCEEDED, attempt 1 on n02, 2s\n"},
		{"array", array, "R   -     -     2     1/20 done, 1 failed", `
array      0-9: 1/20 done, 1 failed
tasks      1 RUNNING, 1 FAILED
task 3.0   RUNNING, attempt 1 on n1, -
task 3.1   FAILED, exit code 1, attempt 1 on n2, 2s
           other tasks: muster show ` + idA + `.0-9
`},
	} {
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs":        answer(http.StatusOK, jobsDoc(c.doc)),
			"GET /v1/jobs/" + idA: answer(http.StatusOK, c.doc),
		})
		if r := f.muster("jobs", "-a"); r.code != 0 || !strings.Contains(r.stdout, c.listed+"\n") {
			t.Errorf("jobs of %s: exit %d, %s\n%s\nwant exit 0 and the line %s", c.name, r.code, r.err, r.stdout, c.listed)
		}
		if r := f.muster("show", idA); r.code != 0 || !strings.HasSuffix(r.stdout, c.shown) && !strings.Contains(r.stdout, c.shown) {
			t.Errorf("show of %s: exit %d, %s\n%s\nwant %s", c.name, r.code, r.err, r.stdout, c.shown)
		}
	}
}

// The names of nodes in a table are valid for --nodelist.
func TestNodeNamesAreValidNodeLists(t *testing.T) {
	for want, names := range map[string][]string{
		"":                      {},
		"n1":                    {"n1"},
		"n[1-3,7],m2,gpu":       {"n3", "m2", "n1", "gpu", "n2", "n7"},
		"n01,n02":               {"n01", "n02"},
		"4,n[0-1]":              {"4", "n0", "n1"},
		"n99999999999999999999": {"n99999999999999999999"},
	} {
		if got := nodeNames(names); got != want {
			t.Errorf("%q: got %q, want %q", names, got, want)
		}
	}
	list, err := job.ParseNodes(nodeList(nodeNames([]string{"n3", "m2", "n1", "gpu", "n2", "n7"})))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"n2": true, "n4": false, "n7": true, "m2": true, "gpu": true} {
		if list.Has(name, "12D3KooW") != want {
			t.Errorf("the list has %s: got %v, want the opposite", name, !want)
		}
	}
}

// The tasks of gangs are named by rank, for each verb, and the daemon is asked for their numbers.
func TestTasksOfGangsAreNamedByRank(t *testing.T) {
	gang := gangDoc("", 3, 3, "RUNNING", "", "0 RUNNING n1", "1 RUNNING n2", "2 RUNNING n3")
	array := gangDoc("0-9", 2, 20, "RUNNING", "")
	for _, c := range []struct {
		doc, line, asked string
		code             int
		out, err         string
	}{
		{gang, "logs ID", "0-2", 0, "0| said 0\n1| said 1\n2| said 2\n", ""},
		{gang, "logs ID.2", "", 0, "said 2\n", ""},
		{gang, "logs ID --task 2", "", 0, "said 2\n", ""},
		{gang, "logs ID.1-2", "1-2", 0, "1| said 1\n2| said 2\n", ""},
		{gang, "logs -n 5 ID", "", 2, "", "logs: --lines and --attempt: name one task, such as ID.0"},
		{gang, "logs ID.0.1", "", 2, "", "INDEX.RANK names a task of an array of gangs only"},
		{gang, "logs ID.3", "", 1, "", "the job has 3 ranks, from 0 to 2"},
		{gang, "exec ID -- true", "", 2, "", "exec: \"ID\": name one task, such as ID.0"},
		{gang, "cancel ID.1", "1", 0, "", ""},
		{array, "logs ID", "0-1", 0, "0.0| said 0\n0.1| said 1\n", ""},
		{array, "logs ID.3", "6-7", 0, "3.0| said 6\n3.1| said 7\n", ""},
		{array, "logs ID.3.1", "", 0, "said 7\n", ""},
		{array, "logs ID --task 3.1", "", 0, "said 7\n", ""},
		{array, "logs ID.3-4", "", 2, "", "name one task, or use --all"},
		{array, "logs --all ID.3-4.1", "7,9", 0, "3.1| said 7\n4.1| said 9\n", ""},
		{array, "logs ID.10", "", 1, "", "the job has 10 gangs of 2 tasks, from 0.0 to 9.1"},
		{array, "logs ID.3.2", "", 1, "", "from 0.0 to 9.1"},
		{array, "exec ID.3 -- true", "", 2, "", "name one task, such as ID.0.0"},
		{array, "cancel ID.3,5-6", "6-7,10-13", 0, "", ""},
		{array, "hold ID.3.0", "6", 0, "", ""},
	} {
		asked := ""
		change := func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 1000)
			n, _ := r.Body.Read(body)
			asked = strings.NewReplacer(`{"tasks":"`, "", `"}`, "").Replace(strings.TrimSpace(string(body[:n])))
			answer(http.StatusOK, c.doc)(w, r)
		}
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/" + idA: answer(http.StatusOK, c.doc),
			"GET /v1/jobs/{id}/tasks": func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Query().Get("tasks")
				ranges, err := job.ParseRanges(asked)
				if err != nil {
					t.Errorf("%s: got a request for %q: %v", c.line, asked, err)
				}
				var docs []string
				for _, x := range ranges {
					for n := x.First; n <= x.Last; n++ {
						docs = append(docs, fmt.Sprintf("%d RUNNING 0", n))
					}
				}
				answer(http.StatusOK, taskDocs(docs...))(w, r)
			},
			"GET /v1/jobs/{id}/tasks/{t}/logs": func(w http.ResponseWriter, r *http.Request) { logOf("said "+r.PathValue("t")+"\n", "", "")(w, r) },
			"POST /v1/jobs/{id}/cancel":        change, "POST /v1/jobs/{id}/hold": change,
		})
		r := f.muster(strings.Fields(strings.ReplaceAll(c.line, "ID", idA))...)
		want := strings.ReplaceAll(c.err, "ID", idA)
		if r.code != c.code || r.stdout != c.out || !strings.Contains(r.err, want) || want == "" && r.err != "" || asked != c.asked {
			t.Errorf("%s: exit %d, %q, %q, asked for %q; want %d, %q, %q, %q", c.line, r.code, r.stdout, r.err, asked, c.code, c.out, want, c.asked)
		}
	}
}
