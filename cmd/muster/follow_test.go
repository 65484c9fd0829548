package main

// Waiting for jobs and following them: the output and the exit codes.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestVerbsExitWithTheCodeOfTheJob(t *testing.T) {
	for _, c := range []struct {
		state, more string
		code        int
		says        string
	}{
		{"SUCCEEDED", `,"exit_code":0`, 0, ""},
		{"FAILED", `,"exit_code":7`, 7, ""},
		{"FAILED", `,"signal":9`, 137, ""},
		{"TIMEOUT", `,"signal":15`, 124, ""},
		{"CANCELLED", ``, 125, "muster: job " + idA + ": CANCELLED, and its owner does not say why\n"},
		{"NODE_FAIL", ``, 125, "muster: job " + idA + ": NODE_FAIL, and its owner does not say why\n"},
	} {
		ended := jobDoc(idA, c.state, c.more)
		f := newFake(t, map[string]http.HandlerFunc{
			"POST /v1/jobs":                    answer(http.StatusCreated, jobDoc(idA, "PENDING", "")),
			"GET /v1/jobs/" + idA:              answer(http.StatusOK, ended),
			"GET /v1/events":                   events(ended),
			"GET /v1/jobs/{id}/tasks/{t}/logs": logOf("out\n", "err\n", ""),
		})
		if r := f.muster("wait", idA); r.code != c.code || r.stdout != "" {
			t.Errorf("wait for %s%s: exit %d, want %d (%s)", c.state, c.more, r.code, c.code, r.err)
		}
		if r := f.muster("run", "x"); r.code != c.code || r.stdout != "out\n" || r.err != "err\n"+c.says {
			t.Errorf("run to %s%s: exit %d, want %d; stdout %q, stderr %q", c.state, c.more, r.code, c.code, r.stdout, r.err)
		}
		if r := f.muster("submit", "-W", "x"); r.code != c.code || r.stdout != idA+"\n" {
			t.Errorf("submit -W to %s%s: exit %d, want %d; stdout %q", c.state, c.more, r.code, c.code, r.stdout)
		}
		if r := f.muster("submit", "-f", "x"); r.code != c.code || r.stdout != idA+"\n" || !strings.Contains(r.err, "out\n") || !strings.Contains(r.err, "err\n") {
			t.Errorf("submit -f to %s%s: exit %d, want %d; stdout %q, stderr %q", c.state, c.more, r.code, c.code, r.stdout, r.err)
		}
	}
}

func TestWaitForSeveralJobsExitsWithTheHighestCode(t *testing.T) {
	good, bad := jobDoc(idA, "SUCCEEDED", `,"exit_code":0`), strings.Replace(jobDoc(idB, "FAILED", `,"exit_code":3`), `"reason":""`, `"reason":"exit code 3"`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, good),
		"GET /v1/jobs/" + idB: answer(http.StatusOK, bad),
		"GET /v1/events":      events(good, bad),
		"GET /v1/jobs":        answer(http.StatusOK, jobsDoc()),
	})
	if r := f.muster("wait", idA, idB); r.code != 3 || r.err != "muster: job "+idB+": FAILED: exit code 3\n" {
		t.Errorf("wait: exit %d, %q, want 3 and the job that failed", r.code, r.err)
	}
	if r := f.muster("wait", "all"); r.code != 0 || r.err != "" {
		t.Errorf("wait all without jobs: exit %d, %q, want exit 0 and empty stderr", r.code, r.err)
	}
	if r := f.muster("wait", "zzzz"); r.code != 125 || !strings.Contains(r.err, "zzzz") {
		t.Errorf("wait zzzz: exit %d, %q, want 125 with the word", r.code, r.err)
	}
}

// taskDocs returns a page of tasks, each "NUMBER STATE EXITCODE".
func taskDocs(tasks ...string) string {
	var items []string
	for _, text := range tasks {
		var n, code int
		var state string
		fmt.Sscan(text, &n, &state, &code)
		items = append(items, fmt.Sprintf(`{"job":%q,"task":%d,"state":%q,"exit_code":%d,"attempt":1,"reason":"it said %d"}`, idA, n, state, code, code))
	}
	return `{"schema":"muster.tasks/v1","partial":[],"items":[` + strings.Join(items, ",") + `]}`
}

// arrayDoc returns the document of an array, as listings have it.
func arrayDoc(array string, tasks int, state string) string {
	return fmt.Sprintf(`{"schema":"muster.job/v1","id":%q,"name":"train","user":"amy","state":%q,"array":%q,"task_count":%d,"counts":{},"tasks":[]}`, idA, state, array, tasks)
}

// wait ID.0-9 waits for these tasks only, and asks for them again when the job has changed.
func TestWaitForTasksIgnoresOtherTasks(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	left := 2 // requests in which one task has not ended yet
	doc := arrayDoc("10-99", 90, "RUNNING")
	changes := make(chan struct{}, 8)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, doc),
		"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				fmt.Fprintf(w, "data: {\"kind\":\"job\",\"job\":%s}\n\n", doc)
				w.(http.Flusher).Flush()
				select {
				case <-changes:
				case <-r.Context().Done():
					return
				}
			}
		},
		"GET /v1/jobs/{id}/tasks": func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			q := r.URL.Query()
			asked = append(asked, q.Get("tasks")+" "+q.Get("limit"))
			switch {
			case strings.Contains(q.Get("state"), "FAILED"):
				answer(http.StatusOK, taskDocs("11 FAILED 7", "30 TIMEOUT 0"))(w, r)
			case left > 0:
				left--
				changes <- struct{}{}
				answer(http.StatusOK, taskDocs("11 RUNNING 0"))(w, r)
			default:
				answer(http.StatusOK, taskDocs())(w, r)
			}
		},
	})
	r := f.muster("wait", idA+".10-19,30")
	if r.code != 124 || !strings.Contains(r.err, "task "+idA+".11: FAILED: it said 7\n") || !strings.Contains(r.err, "task "+idA+".30: TIMEOUT") {
		t.Errorf("wait: exit %d, %q, want 124 with both tasks", r.code, r.err)
	}
	if got := strings.Join(asked, "; "); got != "10-19,30 1; 10-19,30 1; 10-19,30 1; 10-19,30 1000" {
		t.Errorf("asked %s, want the tasks three times, and then their ends", got)
	}
	if r := f.muster("wait", idA+".3"); r.code != 125 || !strings.Contains(r.err, "the job has 90 tasks, from 10 to 99") {
		t.Errorf("wait for an unknown task: exit %d, %q, want 125 with the numbers of the tasks", r.code, r.err)
	}
}

// logs --all prints the tasks in order: the output of a task does not come before that of an earlier task, even if that
// one has none yet.
func TestLogsOfAllTasksAreInOrder(t *testing.T) {
	others := make(chan struct{})
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:     answer(http.StatusOK, arrayDoc("0-3", 4, "SUCCEEDED")),
		"GET /v1/jobs/{id}/tasks": answer(http.StatusOK, taskDocs("0 SUCCEEDED 0", "1 SUCCEEDED 0", "2 SUCCEEDED 0", "3 PENDING 0")),
		"GET /v1/jobs/{id}/tasks/{t}/logs": func(w http.ResponseWriter, r *http.Request) {
			switch r.PathValue("t") {
			case "0":
				<-others
				logOf("first\n", "", "")(w, r)
			case "1":
				logOf("", "", "")(w, r)
			case "2":
				logOf("third\nand more", "", "")(w, r)
				time.AfterFunc(50*time.Millisecond, func() { close(others) })
			case "3":
				problem(http.StatusConflict, "conflict", `"detail": "it has none yet"`)(w, r)
			}
		},
	})
	if r := f.muster("logs", "--all", idA); r.code != 0 || r.stdout != "0| first\n2| third\n2| and more\n" || r.err != "" {
		t.Errorf("logs --all: exit %d, %q, %q, want 0 and the output in order", r.code, r.stdout, r.err)
	}
}

// The client also waits for a daemon that is killed before it confirms that the wait is open, because the daemon was
// there a moment ago.
func TestWaitOutlivesADaemonKilledAtOnce(t *testing.T) {
	kills := 0
	told := events(jobDoc(idA, "FAILED", `,"exit_code":7`))
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, jobDoc(idA, "RUNNING", "")),
		"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
			if kills++; kills <= 3 { // net/http retries one of the requests
				panic(http.ErrAbortHandler)
			}
			told(w, r)
		},
	})
	if r := f.muster("wait", idA); r.code != 7 || kills != 4 {
		t.Errorf("exit %d, %q after %d kills, want 7 after 4 kills", r.code, r.err, kills)
	}
}

func TestWaitEndsOnTimeoutAndCtrlC(t *testing.T) {
	running := jobDoc(idA, "RUNNING", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := events(running)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA: answer(http.StatusOK, running),
		"POST /v1/jobs":       answer(http.StatusCreated, running),
		"GET /v1/events":      told,
		"GET /v1/jobs/{id}/tasks/{t}/logs": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Muster-Attempt", "1")
			w.Header().Set("Muster-Offset", "0")
			w.(http.Flusher).Flush()
			cancel() // as Ctrl-C does
			<-r.Context().Done()
		},
	})
	if r := f.muster("wait", idA, "--timeout", "1ms"); r.code != 125 || !strings.Contains(r.err, "the timeout has passed; the job goes on") {
		t.Errorf("wait --timeout: exit %d, %q, want 125: the job goes on", r.code, r.err)
	}
	r := f.musterIn(ctx, "", "run", "x")
	if r.code != 130 || r.err != "muster: detached, the job goes on; to follow it again: muster logs -f "+idA+"; to end it: muster cancel "+idA+"\n" {
		t.Errorf("run and Ctrl-C: exit %d, %q, want 130 with the verbs to follow or end it", r.code, r.err)
	}
	if r := f.musterIn(ctx, "", "jobs"); r.code != 130 || r.err != "muster: interrupted\n" {
		t.Errorf("Ctrl-C in a listing: exit %d, %q, want 130, interrupted", r.code, r.err)
	}
}

// TestInputEndsWithCtrlC never sends any input.
func TestInputEndsWithCtrlC(t *testing.T) {
	clearEnvironment(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, typing := io.Pipe()
	defer typing.Close()
	cancel()
	for _, args := range [][]string{{"muster", "submit", "-"}, {"muster", "submit", "-F", "-"}} {
		if code := run(ctx, args, streams{in, io.Discard, io.Discard}); code != 130 {
			t.Errorf("%q: exit %d, want 130", args, code)
		}
	}
}

func TestLogsSelectStreamAndTail(t *testing.T) {
	ended := jobDoc(idA, "SUCCEEDED", `,"exit_code":0`)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:              answer(http.StatusOK, ended),
		"GET /v1/events":                   events(ended),
		"GET /v1/jobs/{id}/tasks/{t}/logs": logOf("1\n2\n3\n", "bad", "4\n"),
	})
	for line, want := range map[string]string{
		idA: "1\n2\n3\n", idA + " -n2": "2\n3\n", idA + " -n 9": "1\n2\n3\n", "-n 0 " + idA: "", idA + " --stderr": "bad", idA + " --stderr -n 1": "bad", idA + " --stdout": "1\n2\n3\n",
		idA + " -f": "1\n2\n3\n4\n", "-fn1 " + idA: "3\n4\n", "-f -n 0 " + idA + ".0": "4\n",
	} {
		if r := f.muster(append([]string{"logs"}, strings.Fields(line)...)...); r.code != 0 || r.stdout != want {
			t.Errorf("logs %s: exit %d, %q, %s; want %q", line, r.code, r.stdout, r.err, want)
		}
	}
	for line, code := range map[string]int{idA + ".1": 1, idA + ".0-1": 2, idA + ".0 --task 1": 2} {
		if r := f.muster(append([]string{"logs"}, strings.Fields(line)...)...); r.code != code {
			t.Errorf("logs %s: exit %d, %s; want %d", line, r.code, r.err, code)
		}
	}
}

func TestLogsOfAWaitingJobFollowItsStart(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:     answer(http.StatusOK, jobDoc(idA, "PENDING", "")),
		"GET /v1/jobs/{id}/tasks": problem(http.StatusServiceUnavailable, "unavailable", `"detail": "why it waits is not known now"`),
		"GET /v1/events":          events(jobDoc(idA, "SUCCEEDED", `,"exit_code":0`)),
		"GET /v1/jobs/{id}/tasks/{t}/logs": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("follow") != "true" {
				problem(http.StatusConflict, "conflict", `"detail": "none yet"`)(w, r)
				return
			}
			logOf("late\n", "", "")(w, r)
		},
	})
	if r := f.muster("logs", "-f", "-n", "1", idA); r.code != 0 || r.stdout != "late\n" {
		t.Errorf("logs -f -n: exit %d, %q, %q, want 0, late", r.code, r.stdout, r.err)
	}
	if r := f.muster("logs", "-n", "1", idA); r.code != 1 || r.err != "muster: none yet\n" {
		t.Errorf("logs -n: exit %d, %q, want 1, none yet", r.code, r.err)
	}
}

// logs of a task that never started says why there is no output, and fails. A task that has started may have no output.
func TestLogsOfAnUnstartedTaskFail(t *testing.T) {
	none := problem(http.StatusConflict, "conflict", `"detail": "none yet"`)
	for _, c := range []struct {
		name, job, task string // name, and the documents of the job and the task
		args            string
		log             http.HandlerFunc
		code            int
		want            string
	}{
		{
			"waiting", jobDoc(idA, "PENDING", ""), `"state":"PENDING","reason":"Dependency","reason_detail":"afterok:x is RUNNING"`, idA, none, 1,
			"job " + idA + " has no output: it is PENDING (Dependency: afterok:x is RUNNING); why: muster why " + idA + "; to wait for its output: muster logs -f " + idA,
		},
		{
			"the last lines", jobDoc(idA, "PENDING", ""), `"state":"PENDING","reason":"NoMatch"`, idA + " -n 3", none, 1,
			"job " + idA + " has no output: it is PENDING (NoMatch); why: muster why " + idA + "; to wait for its output: muster logs -f " + idA,
		},
		{
			"held", jobDoc(idA, "HELD", ""), `"state":"HELD","reason":"Held"`, idA, none, 1,
			"job " + idA + " has no output: it is HELD (Held); to let it start: muster release " + idA,
		},
		{
			"cancelled", jobDoc(idA, "CANCELLED", ""), `"state":"CANCELLED","reason":"by amy"`, idA, logOf("", "", ""), 1,
			"job " + idA + " has no output: it is CANCELLED (by amy); it had not started",
		},
		{
			"followed, then cancelled", jobDoc(idA, "CANCELLED", ""), `"state":"CANCELLED","reason":"by amy"`, "-f " + idA, logOf("", "", ""), 1,
			"job " + idA + " has no output: it is CANCELLED (by amy); it had not started",
		},
		{
			"a task of an array", arrayDoc("0-3", 4, "PENDING"), `"task":2,"state":"PENDING","reason":"BeginTime"`, idA + ".2", none, 1,
			"task " + idA + ".2 has no output: it is PENDING (BeginTime); why: muster why " + idA + ".2; to wait for its output: muster logs -f " + idA + ".2",
		},
		{
			"all of an array", arrayDoc("0-3", 4, "PENDING"), `"state":"PENDING"`, "--all " + idA, none, 1,
			"job " + idA + " has no output: it is PENDING; why: muster why " + idA + "; to wait for its output: muster logs -f " + idA,
		},
		{"has started", jobDoc(idA, "FAILED", ""), `"state":"FAILED","started_at":"2026-01-02T03:04:05Z","exit_code":1`, idA, logOf("", "", ""), 0, ""},
		{"starts meanwhile", jobDoc(idA, "PENDING", ""), `"state":"RUNNING"`, idA, logOf("", "", ""), 0, ""},
		{"has run, all", arrayDoc("0-3", 4, "CANCELLED")[:1] + `"started_at":"2026-01-02T03:04:05Z",` + arrayDoc("0-3", 4, "CANCELLED")[1:], `"state":"CANCELLED"`, "--all " + idA, logOf("", "", ""), 0, ""},
	} {
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/" + idA:              answer(http.StatusOK, c.job),
			"GET /v1/jobs/{id}/tasks":          answer(http.StatusOK, `{"schema":"muster.tasks/v1","partial":[],"items":[{`+c.task+`}]}`),
			"GET /v1/events":                   events(c.job),
			"GET /v1/jobs/{id}/tasks/{t}/logs": c.log,
		})
		want := ""
		if c.want != "" {
			want = "muster: " + c.want + "\n"
		}
		if r := f.muster(append([]string{"logs"}, strings.Fields(c.args)...)...); r.code != c.code || r.err != want || r.stdout != "" {
			t.Errorf("%s: exit %d, %q, %q; want %d, %q", c.name, r.code, r.stdout, r.err, c.code, want)
		}
	}
}

func TestTailReturnsTheLastLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"", 3, ""}, {"a", 1, "a"}, {"a\n", 1, "a\n"}, {"a\nb", 1, "b"}, {"a\n\n", 1, "\n"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\n", 5, "a\nb\n"}, {"a\n", 0, ""}} {
		if got := string(tail([]byte(c.text), c.n)); got != c.want {
			t.Errorf("tail(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
