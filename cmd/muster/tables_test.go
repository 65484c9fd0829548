package main

// The output of listings, and the requests of the verbs.

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

const gpuDoc = `{"schema":"muster.gpu/v1","node":"n1","uuid":"GPU-1","index":0,"model":"H100","class":"h100-80gb","memory":85899345920,"memory_used":1073741824,
	"utilization":93,"health":"healthy","simulated":true,"job":"` + idA + `"},
	{"schema":"muster.gpu/v1","node":"n1","uuid":"GPU-2","index":1,"model":"H100","class":"h100-80gb","memory":85899345920,"memory_used":-1,"utilization":-1,"health":"failed","detail":"fell off\nthe bus","simulated":true,"free":1,"job":""}`

const nodeDoc = `{"schema":"muster.node/v1","id":"12D3KooWNode","name":"n1","state":"suspect","detail":"silent for 7s","version":"v1","worker":true,"no_root":true,"drivers":["exec"],
	"labels":{"zone":"b","rack":"r1"},"os":"linux","arch":"arm64","addrs":["/ip4/10.0.0.1/tcp/4980"],"cpus":8,"memory":68719476736,"disk":1099511627776,
	"free":{"cpus":3,"memory":1073741824,"gpus":1},"gpus":[` + gpuDoc + `]}`

func TestVerbsPrintTables(t *testing.T) {
	failed := strings.Replace(jobDoc(idA, "FAILED", `,"exit_code":7,"pid":12,"stderr_tail":"no \u001b[31mway\nout\n"`), `"reason":""`, `"reason":"exit code 7","exit_code":7,"time_limit":5400`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":        answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":["n9"],"items":[`+failed+`]}`),
		"GET /v1/jobs/" + idA: answer(http.StatusOK, failed),
		"GET /v1/nodes":       answer(http.StatusOK, `{"schema":"muster.nodes/v1","partial":[],"items":[`+nodeDoc+`]}`),
		"GET /v1/nodes/n1":    answer(http.StatusOK, nodeDoc),
		"GET /v1/gpus":        answer(http.StatusOK, `{"schema":"muster.gpus/v1","partial":[],"items":[`+gpuDoc+`]}`),
		"GET /v1/peers": answer(http.StatusOK, `{"schema":"muster.peers/v1","partial":[],"items":[
			{"id":"12D3KooWNode","name":"n1","state":"ready","self":true,"roles":["worker","scheduler"],"addrs":["/a","/b"],"last_seen_at":"2026-01-02T03:04:05Z"}]}`),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, `{"job":"`+idA+`","state":"PENDING","reason":"Resources","reason_detail":"all busy",
			"clauses":[{"clause":"gpus: 2","meets":1,"of":2,"fails":[{"node":"n2","reason":"has none"}]}],"now":[],"later":[{"node":"n1","why":"2 GPUs are taken"}]}`),
	})
	for _, c := range []struct{ line, out, err string }{
		{
			"jobs --all",
			"ID                        NAME   USER  ST  TIME  NODE  GPUS  REASON\n" + idA + "  train  amy   F   1m1s  n1    2     exit code 7\n",
			"muster: incomplete: no answer from n9\n",
		},
		{
			"jobs --all --wide",
			"ID                        NAME   USER  ST  TIME  NODE  GPUS  SUBMITTED                PRIORITY  LIMIT  EXIT  REASON\n" + idA + "  train  amy   F   1m1s  n1    2     2026-01-02 03:04:05 UTC  50        1h30m  7     exit code 7\n",
			"muster: incomplete: no answer from n9\n",
		},
		{"show " + idA, `job        1268ezjnc8-mdxchras0wg7e
name       train
user       amy
state      FAILED (exit code 7)
exit code  7
command    python train.py
asks for   4 cpus, 8GiB memory, 2 H100 gpus, at most 1h30m
priority   50
submitted  2026-01-02 03:04:05 UTC
started    2026-01-02 03:04:06 UTC
ended      2026-01-02 03:05:07 UTC
elapsed    1m1s
owner      n1, kept in 1 copy
task 0     attempt 1 on n1 (12D3KooWNode), pid 12
           gpu GPU-1
           gpu GPU-2
           stderr: no ·[31mway
           stderr: out
`, ""},
		{"why " + idA, `job      1268ezjnc8-mdxchras0wg7e
state    PENDING
reason   Resources: all busy
starts   unknown
gpus: 2  met by 1 of 2 nodes
         n2: has none
later    n1: 2 GPUs are taken
`, ""},
		{"nodes", `NAME  STATE    CPUS  MEMORY  GPUS               FREE  LABELS          REASON
n1    suspect  8     64GiB   2 h100-80gb (sim)  -     rack=r1,zone=b  silent for 7s
`, ""},
		{"node show n1", `node        n1
id          12D3KooWNode
state       suspect: silent for 7s
version     v1
running     -
own labels  rack=r1,zone=b
addresses   /ip4/10.0.0.1/tcp/4980
runs        processes
of user     all but root
fencing     unknown, its version does not say: tasks with --on-partition fence run elsewhere only when this node is back, has rebooted or is declared dead
platform    linux/arm64
cpus        8, - free
memory      64GiB, - free
disk        1TiB
in use      -
#  MODEL             MEMORY  USED  UTIL  GIVEN  HEALTH                    JOB
0  H100 (simulated)  80GiB   1GiB  93%   1      healthy                   1268ezjnc8-mdxchras0wg7e
1  H100 (simulated)  80GiB   -     -     -      failed: fell off·the bus  -
`, ""},
		{"gpus", `NODE  #  MODEL             MEMORY  USED  UTIL  GIVEN  HEALTH                    JOB
n1    0  H100 (simulated)  80GiB   1GiB  93%   1      healthy                   1268ezjnc8-mdxchras0wg7e
n1    1  H100 (simulated)  80GiB   -     -     -      failed: fell off·the bus  -
`, ""},
		{"peers", "NAME       STATE  ROLES             LAST SEEN                ADDRESSES\nn1 (here)  ready  worker,scheduler  2026-01-02 03:04:05 UTC  /a /b\n", ""},
	} {
		r := f.muster(strings.Fields(c.line)...)
		if r.code != 0 || r.stdout != c.out || r.err != c.err {
			t.Errorf("%s: exit %d, stderr %q\n%s\nwant\n%s", c.line, r.code, r.err, r.stdout, c.out)
		}
	}
	for _, line := range []string{"jobs --json", "show --json " + idA, "nodes --json", "node show n1 --json", "gpus --json", "peers --json", "why --json " + idA} {
		var doc struct{ Schema *string }
		if r := f.muster(strings.Fields(line)...); r.code != 0 || json.Unmarshal([]byte(r.stdout), &doc) != nil || doc.Schema == nil || r.err != "" {
			t.Errorf("%s: exit %d, %s, want 0 and a document with a schema\n%s", line, r.code, r.err, r.stdout)
		}
	}
	r := f.muster("gpus", "--jsonl")
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], `{"schema":"muster.gpu/v1"`) {
		t.Errorf("gpus --jsonl: got %q, want 2 lines", r.stdout)
	}
}

// show lists the attempts of a task with several attempts.
func TestShowListsAttempts(t *testing.T) {
	attempts := `,"attempt":20,"older_attempts":17,"attempts":[
		{"attempt":18,"state":"FAILED","node":"n1","exit_code":75,"started_at":"2026-01-02T03:00:00Z","ended_at":"2026-01-02T03:00:05Z"},
		{"attempt":19,"state":"NODE_FAIL","reason":"n\u001b2 was silent","node":"n2","exit_code":null,"started_at":null,"ended_at":"2026-01-02T03:02:00Z"},
		{"attempt":20,"state":"FAILED","node":"n1","exit_code":137,"signal":9,"started_at":"2026-01-02T03:03:00Z","ended_at":"2026-01-02T03:03:01Z"}]`
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":        answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+jobDoc(idA, "FAILED", attempts)+`]}`),
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobDoc(idA, "FAILED", attempts)),
	})
	const want = `
TASK  ATTEMPT  NODE  STATE      EXIT      TIME  ENDED                    REASON
0     ...                                                                17 older attempts
0     18       n1    FAILED     75        5s    2026-01-02 03:00:05 UTC  -
0     19       n2    NODE_FAIL  -         -     2026-01-02 03:02:00 UTC  n·2 was silent
0     20       n1    FAILED     signal 9  1s    2026-01-02 03:03:01 UTC  -
`
	if r := f.muster("show", idA); r.code != 0 || !strings.HasSuffix(r.stdout, want) {
		t.Errorf("exit %d, %s\nwant at the end%s", r.code, r.stdout, want)
	}
}

// A task with hundreds of attempts, among hundreds of tasks, does not fill the screen.
func TestListOfAttemptsIsBounded(t *testing.T) {
	var tasks []api.Task
	for i := range 100 {
		tasks = append(tasks, api.Task{Task: i, Attempts: make([]api.Attempt, 17)})
	}
	var out strings.Builder
	if err := attemptTable(&out, 0, api.Job{Tasks: tasks}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1+3*17+1 || !strings.HasSuffix(out.String(), "97 more tasks had several attempts; name tasks to see theirs, such as ID.3\n") {
		t.Errorf("got %d lines, want 53 with the rest in the last:\n%s", lines, out.String())
	}
}

// A job that waits again after an attempt shows neither node nor time.
func TestWaitingJobShowsNoNodeAndTime(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+jobDoc(idA, "PENDING", "")+`]}`),
	})
	want := "ID                        NAME   USER  ST  TIME  NODE  GPUS  REASON\n" + idA + "  train  amy   PD  -     -     2     -\n"
	for _, line := range []string{"jobs", "ps -a", "jobs -t PD -u amy"} {
		if r := f.muster(strings.Fields(line)...); r.code != 0 || r.stdout != want {
			t.Errorf("%s: exit %d, %q, want exit 0 and stdout %q", line, r.code, r.stdout, want)
		}
	}
}

// A share of a GPU is not shown as a whole GPU.
func TestShareOfAGPUIsNotShownAsAWholeOne(t *testing.T) {
	shared := strings.Replace(jobDoc(idA, "RUNNING", ""), `"gpus":2,"gpu_model"`, `"gpu_share":0.25,"gpu_model"`, 1)
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/stats": answer(http.StatusOK, `{"waits":null}`), "GET /v1/jobs": answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+shared+`]}`)})
	for _, line := range []string{"jobs", "jobs --start"} {
		if r := f.muster(strings.Fields(line)...); r.code != 0 || !strings.Contains(r.stdout, "  0.25  ") {
			t.Errorf("%s: exit %d, %q, want exit 0 and stdout with %q", line, r.code, r.stdout, " 0.25 ")
		}
	}
}

// Daemons of earlier versions do not send the header with the cursor.
func TestJobsListsAllPages(t *testing.T) {
	for _, header := range []string{"Muster-Cursor", "Muster-Nothing"} {
		t.Run(header, func(t *testing.T) { testJobsOverPages(t, header) })
	}
}

func testJobsOverPages(t *testing.T, header string) {
	var asked []string
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		doc := `{"schema":"muster.jobs/v1","partial":["n9"],"next":"two","items":[` + jobDoc(idA, "RUNNING", "") + `]}`
		if r.URL.Query().Get("cursor") == "two" {
			doc = `{"schema":"muster.jobs/v1","partial":["n8","n9"],"items":[` + jobDoc(idB, "RUNNING", "") + `]}`
		} else {
			w.Header().Set(header, "two")
		}
		answer(http.StatusOK, doc)(w, r)
	}})
	r := f.muster("jobs", "--state", "r,pd", "--user", "amy", "--name", "t*")
	if r.code != 0 || !strings.Contains(r.stdout, idA) || !strings.Contains(r.stdout, idB) || r.err != "muster: incomplete: no answer from n8, n9\n" {
		t.Errorf("exit %d, %q, %q, want 0, both jobs, and the silent nodes", r.code, r.stdout, r.err)
	}
	if len(asked) != 2 || asked[0] != "limit=1000&name=t%2A&state=RUNNING%2CPENDING&user=amy" {
		t.Errorf("asked %q, want two pages with the filters", asked)
	}
}

func TestVerbsSendTheirRequests(t *testing.T) {
	var joined api.JoinRequest
	var asked []string
	change := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+string(body))
		if strings.Contains(r.URL.Path, idB) {
			problem(http.StatusConflict, "conflict", `"detail": "it runs"`)(w, r)
			return
		}
		answer(http.StatusOK, jobDoc(idA, "CANCELLED", ""))(w, r)
	}
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobDoc(idA, "RUNNING", "")), "GET /v1/jobs/" + idB: answer(http.StatusOK, jobDoc(idB, "RUNNING", "")),
		"POST /v1/jobs/{id}/cancel": change, "POST /v1/jobs/{id}/hold": change, "POST /v1/jobs/{id}/release": change,
		"POST /v1/jobs/{id}/requeue": change,
		"POST /v1/invitations":       answer(http.StatusCreated, `{"bootstrap":["/a","/b"],"token":"T"}`),
		"POST /v1/join": func(w http.ResponseWriter, r *http.Request) {
			if json.NewDecoder(r.Body).Decode(&joined) != nil {
				t.Error("a request to join without addresses")
			}
			answer(http.StatusOK, `{"cluster":"C"}`)(w, r)
		},
		"GET /v1/jobs": answer(http.StatusOK, `{"schema":"muster.jobs/v1","items":[]}`),
	})
	private, shared := filepath.Join(t.TempDir(), "private"), filepath.Join(t.TempDir(), "shared")
	for path, mode := range map[string]os.FileMode{private: 0o600, shared: 0o644} {
		if err := os.WriteFile(path, []byte("T\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		line, asked, out, err string
		code                  int
	}{
		{line: "kill " + idA + " --reason enough", asked: "/v1/jobs/" + idA + `/cancel{"reason":"enough"}`},
		{line: "hold " + idA, asked: "/v1/jobs/" + idA + "/hold{}"},
		{line: "requeue " + idA, asked: "/v1/jobs/" + idA + "/requeue{}"},
		{line: "requeue " + idA + ".0 --failed", asked: "/v1/jobs/" + idA + `/requeue{"tasks":"0","failed":true}`},
		{line: "release " + idA, asked: "/v1/jobs/" + idA + "/release{}"},
		{line: "hold " + idB + " " + idA, asked: "/v1/jobs/" + idB + "/hold{} /v1/jobs/" + idA + "/hold{}", code: 1, err: "muster: hold " + idB + ": it runs\n"},
		{ // a wrong argument does not stop the others
			line: "cancel UPPER zzz " + idA, asked: "/v1/jobs/" + idA + "/cancel{}", code: 1,
			err: `muster: job "UPPER": not found; ` + "`muster jobs --all` lists them; job \"zzz\": not found; `muster jobs --all` lists them\n",
		},
		{ // exit code 2 says that nothing was done
			line: "cancel last.5-1", code: 2, err: "muster: invalid request: tasks of \"last.5-1\": \"5-1\": want a task number or a range such as 0-9\n",
		},
		{line: "invite", out: "MUSTER_TOKEN=T muster daemon --bootstrap /a --bootstrap /b\n"},
		{line: "join /a --token T", code: 2, err: "muster: join: --token shows the token to all users of this host in the list of processes: give it in the variable MUSTER_TOKEN or with --token-file FILE, or allow it with --insecure-token\n"},
		{line: "join MUSTER_TOKEN=T muster daemon --bootstrap /a", code: 2, err: "muster: join: an argument shows the token to all users of this host in the list of processes: give it in the variable MUSTER_TOKEN or with --token-file FILE, or allow it with --insecure-token\n"},
		{line: "join /a --token T --insecure-token", err: "joined cluster C\n"},
		{line: "join /a --token-file " + private, err: "joined cluster C\n"},
		{line: "join /a --token-file " + shared, code: 2, err: "muster: --token-file: " + shared + ": others may read or change it (mode 0644); run `chmod 600 " + shared + "`\n"},
		{line: "join /a --token T --insecure-token --token-file " + private, code: 2, err: "muster: --token-file: the token is given twice; give it once\n"},
	} {
		asked = nil
		r := f.muster(strings.Fields(c.line)...)
		if got := strings.Join(asked, " "); r.code != c.code || r.stdout != c.out || r.err != c.err || got != c.asked {
			t.Errorf("%s: exit %d, %q, %q; asked %s; want exit %d, %q, %q; asked %s", c.line, r.code, r.stdout, r.err, got, c.code, c.out, c.err, c.asked)
		}
	}
	// the output of invite, in the form that is typed after join
	for _, args := range [][]string{
		{"join", "--insecure-token", "MUSTER_TOKEN=T", "muster", "daemon", "--bootstrap", "/a", "--bootstrap", "/b"},
		{"join", "--insecure-token", "MUSTER_TOKEN=T muster daemon --bootstrap /a --bootstrap /b"},
		{"join", "--insecure-token", "--bootstrap", "/a", "--bootstrap=/b", "MUSTER_TOKEN=T"},
		{"join", "--insecure-token", "/a", "/b", "MUSTER_TOKEN=T"},
	} {
		joined = api.JoinRequest{}
		r := f.muster(args...)
		if want := (api.JoinRequest{Bootstrap: []string{"/a", "/b"}, Token: "T"}); r.code != 0 || !reflect.DeepEqual(joined, want) {
			t.Errorf("%q: exit %d, %q; joined by %+v, want 0; %+v", args, r.code, r.err, joined, want)
		}
	}
	t.Setenv("MUSTER_TOKEN", "E")
	if r := f.muster("join", "--bootstrap", "/a"); r.code != 0 || joined.Token != "E" || r.err != "joined cluster C\n" {
		t.Errorf("exit %d, %q, %+v, want 0, joined with the token E", r.code, r.err, joined)
	}
	if r := f.muster("join"); r.code != 2 || !strings.Contains(r.err, "want the addresses") {
		t.Errorf("exit %d, %q, want 2: addresses", r.code, r.err)
	}
}

// Text of other users must not control the terminal.
func TestNoListingHandsOnControlCharacters(t *testing.T) {
	const evil = `\u001b[31m\nroot\t\u0007`
	node := strings.NewReplacer("silent for 7s", evil, `"zone":"b"`, `"zone":"`+evil+`"`, "fell off\\nthe bus", evil, `"name":"n1"`, `"name":"`+evil+`"`).Replace(nodeDoc)
	jobs := strings.NewReplacer(`"name":"train"`, `"name":"`+evil+`"`, `"user":"amy"`, `"user":"`+evil+`"`, `"reason":""`, `"reason":"`+evil+`"`).Replace(jobDoc(idA, "PENDING", ""))
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":        answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":["`+evil+`"],"items":[`+jobs+`]}`),
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobs),
		"GET /v1/nodes":       answer(http.StatusOK, `{"schema":"muster.nodes/v1","partial":[],"items":[`+node+`]}`),
		"GET /v1/nodes/n1":    answer(http.StatusOK, node),
		"GET /v1/gpus":        answer(http.StatusOK, `{"schema":"muster.gpus/v1","partial":[],"items":[`+strings.ReplaceAll(gpuDoc, `"H100"`, `"`+evil+`"`)+`]}`),
		"GET /v1/peers":       answer(http.StatusOK, `{"schema":"muster.peers/v1","partial":[],"items":[{"id":"12D3KooWNode","name":"`+evil+`","state":"ready","roles":[],"addrs":["`+evil+`"]}]}`),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, `{"job":"`+idA+`","state":"PENDING","reason":"`+evil+`",
			"clauses":[{"clause":"`+evil+`","meets":1,"of":2,"fails":[{"node":"`+evil+`","reason":"`+evil+`"}]}],"now":[{"node":"`+evil+`","why":"`+evil+`"}],"later":[]}`),
	})
	for _, line := range []string{"jobs", "show " + idA, "why " + idA, "nodes", "node show n1", "gpus", "peers"} {
		r := f.muster(strings.Fields(line)...)
		if r.code != 0 || !strings.Contains(r.stdout, "·[31m·root··") || strings.ContainsAny(r.stdout+r.err, "\x1b\x07\t") {
			t.Errorf("%s: exit %d, %q, stderr %q, want 0 without control characters", line, r.code, r.stdout, r.err)
		}
	}
}

func TestWhyOfAnEndedJobPrintsItsEnd(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobDoc(idA, "SUCCEEDED", "")),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, `{"job":"`+idA+`","state":"SUCCEEDED","reason":"",
			"clauses":[{"clause":"gpus: 2","meets":1,"of":2}],"now":[{"node":"n1","why":"this host"}],"later":[]}`),
	})
	want := "job     " + idA + "\nstate   SUCCEEDED\nreason  it no longer waits; see: muster show " + idA + "\n"
	if r := f.muster("why", idA); r.code != 0 || r.stdout != want {
		t.Errorf("exit %d, %q; want %q", r.code, r.stdout, want)
	}
}

// An array of which some tasks run is explained by one that waits; a task that is named is explained itself.
func TestWhyExplainsAWaitingOrTheNamedTask(t *testing.T) {
	doc := strings.Replace(jobDoc(idA, "RUNNING", ""), `"task_count":1`, `"array":"0-9","task_count":10`, 1)
	var asked []string
	why := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		task := `"task":7,"task_state":"PENDING","reason":"ArrayThrottle"`
		if r.URL.Query().Get("tasks") == "3" {
			task = `"task":3,"task_state":"SUCCEEDED","reason":""`
		}
		answer(http.StatusOK, `{"job":"`+idA+`","state":"RUNNING",`+task+`,"clauses":[],"now":[{"node":"n1","why":"this host"}],"later":[]}`)(w, r)
	}
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs/" + idA: answer(http.StatusOK, doc), "GET /v1/jobs/" + idA + "/why": why})
	for arg, want := range map[string]string{
		idA:        "job       " + idA + "\nstate     RUNNING\ntask 7    PENDING\nreason    ArrayThrottle\nhas room  n1: this host\n",
		idA + ".3": "job     " + idA + "\nstate   RUNNING\ntask 3  SUCCEEDED\nreason  it no longer waits; see: muster show " + idA + ".3\n",
	} {
		if r := f.muster("why", arg); r.code != 0 || r.stdout != want {
			t.Errorf("why %s: exit %d, %q, %q; want %q", arg, r.code, r.stdout, r.err, want)
		}
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"", "tasks=3"}) {
		t.Errorf("asked %q, want once without and once with task 3", asked)
	}
}

// TestRevokedPeersAreListed lists a revoked peer below the members, and restores it by its name.
func TestRevokedPeersAreListed(t *testing.T) {
	restored := ""
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/peers": answer(http.StatusOK, `{"schema":"muster.peers/v1","partial":[],"items":[
			{"id":"12D3KooWNode","name":"n1","state":"ready","self":true,"roles":["worker"],"addrs":[]},
			{"id":"12D3KooWGone","name":"zoe","state":"revoked","roles":[],"addrs":[],"revoked":{"at":"2026-01-02T03:04:05Z","reason":"sold","with_invited":true,"here":true}},
			{"id":"12D3KooWElse","name":"","state":"revoked","roles":[],"addrs":[],"revoked":{"at":"2026-01-02T03:04:05Z","by":"12D3KooWBen","by_name":"ben"}}]}`),
		"POST /v1/peers/{id}/restore": func(w http.ResponseWriter, r *http.Request) {
			restored = r.PathValue("id")
			w.WriteHeader(http.StatusNoContent)
		},
	})
	r := f.muster("peers")
	for _, want := range []string{
		"REVOKED  SINCE                    BY               REASON\n",
		"zoe      2026-01-02 03:04:05 UTC  the cluster key  sold (with those that it let in)\n",
		"To let one back in:\n  muster peers --restore 12D3KooWGone\n",
		"To let one back in, on the host under BY or the one that founded the cluster:\n  muster peers --restore 12D3KooWElse\n",
	} {
		if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("got %s\nwant %s", r.stdout, want)
		}
	}
	if r := f.muster("peers", "--json"); !strings.Contains(r.stdout, `"revoked": {`) && !strings.Contains(r.stdout, `"revoked":{`) {
		t.Errorf("--json: got %s, want the revocation", r.stdout)
	}
	if r := f.muster("peers", "--revoke", "zoe"); r.code != 1 || !strings.Contains(r.err, "no member is called") {
		t.Errorf("revoking it again by name: got %+v, want exit 1: no member is called", r)
	}
	for name, id := range map[string]string{"zoe": "12D3KooWGone", "12D3KooWElse": "12D3KooWElse", "12D3KooWNever": "12D3KooWNever"} {
		if r := f.muster("peers", "--restore", name); r.code != 0 || restored != id {
			t.Errorf("--restore %s: got %+v, restored %s, want %s", name, r, restored, id)
		}
	}
}

func TestRevokeOfAnUnknownMemberFails(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/peers": answer(http.StatusOK, `{"schema":"muster.peers/v1","partial":[],"items":[]}`)})
	if r := f.muster("peers", "--revoke", "zoe"); r.code != 1 || r.err != "muster: peers: no member is called \"zoe\"; `muster peers` lists them\n" {
		t.Errorf("exit %d, %q, want 1 and the hint to list members", r.code, r.err)
	}
}

func TestShowPrintsTheImageAndTheDirectory(t *testing.T) {
	doc := strings.NewReplacer(`"reason":""`, `"reason":"","exit_code":7`,
		`"command":["python","train.py"]`, `"command":["python","train.py"],"image":"busy:1","workdir":"/work","constraint":"rack=r1"`).Replace(jobDoc(idB, "FAILED", ""))
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":        answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+doc+`]}`),
		"GET /v1/jobs/" + idB: answer(http.StatusOK, doc),
	})
	if r := f.muster("jobs", "--all"); !strings.HasSuffix(r.stdout, "  exit code 7\n") {
		t.Errorf("jobs: got %q, want exit code 7", r.stdout)
	}
	if r := f.muster("show", idB); !strings.Contains(r.stdout, "\nimage       busy:1\nworkdir     /work\nconstraint  rack=r1\n") {
		t.Errorf("show: got %q, want the image, the directory and the constraint", r.stdout)
	}
}

// jobs --start asks for waiting jobs only, and prints when each should start, or why that is unknown.
func TestListingShowsEstimatedStarts(t *testing.T) {
	known := strings.Replace(jobDoc(idA, "PENDING", ""), `"reason":""`, `"reason":"Resources","estimated_start":"2026-01-02T09:00:00Z"`, 1)
	unknown := strings.Replace(jobDoc(idB, "PENDING", ""), `"reason":""`, `"reason":"Priority","estimated_start":null`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/stats": answer(http.StatusOK, `{"waits":null}`),
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("state"); got != "PENDING" {
				t.Errorf("got a request for state %q, want %q", got, "PENDING")
			}
			answer(http.StatusOK, `{"schema":"muster.jobs/v1","partial":[],"items":[`+known+`,`+unknown+`]}`)(w, r)
		},
		"GET /v1/jobs/" + idA: answer(http.StatusOK, known),
	})
	want := "ID                        NAME   USER  ST  START                 GPUS  REASON\n" +
		idA + "  train  amy   PD  2026-01-02 09:00 UTC  2     Resources\n" + idB + "  train  amy   PD  -                     2     Priority\n"
	if r := f.muster("jobs", "--start"); r.code != 0 || r.stdout != want {
		t.Errorf("exit %d, %q\n%s\nwant\n%s", r.code, r.err, r.stdout, want)
	}
	if r := f.muster("show", idA); !strings.Contains(r.stdout, "starts     2026-01-02 09:00:00 UTC or before\n") {
		t.Errorf("show: got %s %s, want the latest start", r.stdout, r.err)
	}
	for _, more := range []string{"--all", "--state=R"} {
		if r := f.muster("jobs", "--start", more); r.code != 2 || !strings.Contains(r.err, "leave out --all and --state") {
			t.Errorf("%s: exit %d, %q, want 2: leave out --all and --state", more, r.code, r.err)
		}
	}
}

// The use of a node is shown beside what it has, and unknown use as a dash.
func TestNodesShowTheirUse(t *testing.T) {
	doc := strings.Replace(nodeDoc, `"name":"n1"`, `"name":"n1","usage":{"at":"2026-01-02T03:04:05Z","cpus":12.34,"memory":1610612736,"read":1048576,"write":0,"received":null,"sent":null,"gpu_utilization":46.5}`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/nodes":    answer(http.StatusOK, `{"schema":"muster.nodes/v1","partial":[],"items":[`+doc+`,`+strings.Replace(nodeDoc, `"name":"n1"`, `"name":"n2"`, 1)+`]}`),
		"GET /v1/nodes/n1": answer(http.StatusOK, doc),
	})
	r := f.muster("nodes", "-o", "name,cpus-used,memory-used,gpus-busy,disk-io,network")
	if want := "NAME  CPUS USED  MEMORY USED  GPUS BUSY  DISK IO    NETWORK\nn1    12.3       1.5GiB       46%        1.0MiB 0B  - -\nn2    -          -            -          - -        - -\n"; r.stdout != want {
		t.Errorf("exit %d, %s\n%s, want\n%s", r.code, r.err, r.stdout, want)
	}
	r = f.muster("node", "show", "n1")
	for _, want := range []string{"in use      12.3 cpus, 1.5GiB of memory, gpus 46% busy\n", "disks: 1.0MiB read and 0B written in a second\n", "network: - received and - sent in a second\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("got %s, want %q", r.stdout, want)
		}
	}
	if r = f.muster("nodes", "--sort", "cpus-used"); r.code != 0 || !strings.HasPrefix(r.stdout, "NAME") || strings.Index(r.stdout, "n2 ") > strings.Index(r.stdout, "n1 ") {
		t.Errorf("sorted: exit %d, %s\n%s\nwant n2 first", r.code, r.err, r.stdout)
	}
}

// show says whether the time limit is the default one.
func TestShowMarksTheDefaultTimeLimit(t *testing.T) {
	for more, want := range map[string]string{``: "at most 1h30m\n", `,"time_limit_default":true`: "at most 1h30m (the default)\n"} {
		doc := strings.Replace(jobDoc(idA, "RUNNING", ""), `"task_count":1`, `"task_count":1,"time_limit":5400`+more, 1)
		f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs/" + idA: answer(http.StatusOK, doc)})
		if r := f.muster("show", idA); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("exit %d, %s\n%s, want %q", r.code, r.err, r.stdout, want)
		}
	}
}
