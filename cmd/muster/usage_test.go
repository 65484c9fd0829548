package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// The verb adds up by job, user, project or day. Unknown values are dashes in a table and empty in CSV, not 0.
func TestUsageAddsUp(t *testing.T) {
	row := func(id, user string) string {
		return `{"schema":"muster.job/v1","id":"` + id + `","user":"` + user + `","state":"SUCCEEDED","submitted_at":"2126-01-02T03:04:05Z","started_at":"2126-01-02T03:04:05Z","task_count":1,"tasks":[]}`
	}
	sums := func(id, user, project, more string) http.HandlerFunc {
		return answer(http.StatusOK, `{"job":"`+id+`","name":"n","user":"`+user+`","project":"`+project+`","state":"SUCCEEDED","ended_at":"2126-01-02T12:00:00Z","tasks":1,"cpu_seconds_held":7200`+more+`}`)
	}
	const one, two, three, waits = "7f3k2aaaaa-7f3k2aaaaaaa", "7f3k2bbbbb-7f3k2aaaaaaa", "7f3k2ccccc-7f3k2aaaaaaa", "7f3k2ddddd-7f3k2aaaaaaa"
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":["cat"],"items":[`+row(one, "amy")+","+row(two, "ben")+","+row(three, "amy")+
			`,{"id":"`+waits+`","user":"amy","state":"PENDING","submitted_at":"2126-01-02T03:04:05Z","started_at":null,"tasks":[]}]}`),
		"GET /v1/jobs/" + one + "/usage":   sums(one, "amy", "vision", `,"measured":1,"cpu_seconds":1800,"cpu_seconds_known":7200,"memory_peak":1073741824`),
		"GET /v1/jobs/" + two + "/usage":   sums(two, "ben", "", ""),
		"GET /v1/jobs/" + three + "/usage": sums(three, "amy", "", `,"measured":1,"cpu_seconds":7200,"cpu_seconds_known":7200,"memory_peak":1024`),
	})
	for line, want := range map[string]string{
		"usage --csv -o job,owner,cpu-hours,cpu,memory,gpu":          "job,owner,cpu-hours,cpu,memory,gpu\n" + one + ",amy,2.00,25.0%,1.0GiB,\n" + two + ",ben,2.00,,,\n" + three + ",amy,2.00,100.0%,1.0KiB,\n",
		"usage --by user -o user,jobs,cpu-hours,cpu,memory":          "USER  JOBS  CPU-H  CPU    MEMORY\namy   2     4.00   62.5%  1.0GiB\nben   1     2.00   -      -\n",
		"usage --by project -o project,jobs":                         "PROJECT  JOBS\n-        2\nvision   1\n",
		"usage --project vision -q":                                  one + "\n",
		"usage --by user --csv --sort -cpu-hours -n 1 -o user,tasks": "user,tasks\namy,2\n",
	} {
		r := f.muster(strings.Fields(line)...)
		if r.code != 0 || r.stdout != want || !strings.Contains(r.err, "cat") && !strings.Contains(line, "-q") {
			t.Errorf("%s: exit %d\n%swant\n%s%s", line, r.code, r.stdout, want, r.err)
		}
	}
	for line, want := range map[string]string{"usage --by node": "--by", "usage --csv --json": "--csv", "usage --me --user amy": "--me", "usage x": "argument"} {
		if r := f.muster(strings.Fields(line)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit %d: got %s, want exit 2 and stderr with %q", line, r.code, r.err, want)
		}
	}
}

// An owner that does not answer is asked once, however many jobs it has, and is named. Without silent owners the list
// in JSON is empty and not null.
func TestUsageNamesASilentOwner(t *testing.T) {
	var rows []string
	routes, asked := map[string]http.HandlerFunc{}, new(atomic.Int32)
	for i := range 40 {
		id := fmt.Sprintf("7f3k2%05d-7f3k2aaaaaaa", i)
		rows = append(rows, `{"id":"`+id+`","owner_name":"ben","user":"amy","state":"RUNNING","submitted_at":"2126-01-02T03:04:05Z","started_at":"2126-01-02T03:04:05Z","tasks":[]}`)
		routes["GET /v1/jobs/"+id+"/usage"] = func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			answer(http.StatusServiceUnavailable, `{"code":"unavailable","detail":"owner ben does not answer"}`)(w, r)
		}
	}
	for partial, most := range map[string]int32{"": usageAtOnce, `"ben"`: 0} {
		asked.Store(0)
		routes["GET /v1/jobs"] = answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[`+partial+`],"items":[`+strings.Join(rows, ",")+`]}`)
		r := newFake(t, routes).muster("usage", "--json")
		if r.code != 0 || asked.Load() > most || !strings.Contains(r.stdout, `"partial": [
    "ben"
  ]`) {
			t.Errorf("partial [%s]: asked %d times, want at most %d; exit %d\n%s%s", partial, asked.Load(), most, r.code, r.stdout, r.err)
		}
	}
	routes["GET /v1/jobs"] = answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[]}`)
	if r := newFake(t, routes).muster("usage", "--json"); !strings.Contains(r.stdout, `"items": [],`) || !strings.Contains(r.stdout, `"partial": []`) {
		t.Errorf("without jobs: got %s, want empty lists", r.stdout)
	}
}

// A spreadsheet computes no cell, whatever the name of a job.
func TestCSVCellsAreNoFormulas(t *testing.T) {
	for cell, want := range map[string]string{"-": "", "=1+1": "'=1+1", "@SUM(A1)": "'@SUM(A1)", "-1": "'-1", "+1": "'+1", "a=b": "a=b", "": "", "0.25": "0.25"} {
		if got := csvCell(cell); got != want {
			t.Errorf("%q: got %q, want %q", cell, got, want)
		}
	}
}
