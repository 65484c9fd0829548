package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// who is a requester in a test, and what the table allows that requester to see.
type who struct {
	name     string
	user     string
	operator bool
	share    bool // the job has share_output
	own      bool // the setting visibility is own
	may      []part
}

var everybody = []who{
	{name: "its user", user: "ada", may: []part{partRow, partOutput, partSpec, partFiles, partInside, partChange}},
	{name: "its user, if users see only their own", user: "ada", own: true, may: []part{partRow, partOutput, partSpec, partFiles, partInside, partChange}},
	{name: "an operator", user: "op", operator: true, may: []part{partRow, partOutput, partSpec, partFiles, partInside, partChange}},
	{name: "an operator, if users see only their own", user: "op", operator: true, own: true, may: []part{partRow, partOutput, partSpec, partFiles, partInside, partChange}},
	{name: "another user", user: "eve", may: []part{partRow}},
	{name: "another user, of a job that shares its output", user: "eve", share: true, may: []part{partRow, partOutput}},
	{name: "another user, if users see only their own", user: "eve", own: true},
	{name: "another user, of both", user: "eve", share: true, own: true},
}

func TestTableDecidesWhatARequesterSees(t *testing.T) {
	for _, w := range everybody {
		j := job.Job{User: "ada"}
		j.Spec.ShareOutput = w.share
		a := requester{user: w.user, operator: w.operator, ownOnly: w.own}
		for p := range parts {
			if got, want := a.may(p, &j), slices.Contains(w.may, p); got != want {
				t.Errorf("%s, part %d: got %v, want %v", w.name, p, got, want)
			}
		}
	}
	nobody := job.Job{}
	if (requester{}).may(partSpec, &nobody) || (requester{}).may(partOutput, &nobody) {
		t.Error("a requester without a name passes as the user of a job without one")
	}
}

// secretJob is a job with a secret word in every field that is private to its user.
func secretJob(d *daemon, share bool) job.Job {
	j := running(d.newJob(7), d)
	t := &j.Tasks[0]
	t.State, t.Ended, t.PID = job.Failed, t.Started.Add(time.Second), 4711
	t.Exit = &job.Exit{State: job.Failed, Code: 1, Tail: "whisper"}
	j.User = "ada"
	s := &j.Spec
	s.Name, s.ShareOutput = "public-name", share
	s.Command, s.Script, s.Params, s.Env = []string{"hush"}, "hush", map[string]string{"a": "hush"}, map[string]string{"hush": "hush"}
	s.Image, s.Workdir, s.Output, s.Error, s.Tree = "hush", "/hush", "hush", "hush", "hush"
	s.Download, s.Mounts, s.EachLine, s.Upload = []string{"hush"}, []string{"hush"}, nil, []string{"hush"}
	return j
}

// TestRequesterSeesTheSameAtEveryDaemon requests every cell of the table at the daemon that owns the job, and at
// another daemon.
func TestRequesterSeesTheSameAtEveryDaemon(t *testing.T) {
	for _, w := range everybody {
		for _, via := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, via %d", w.name, via), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { w.checkAt(t, via) })
			})
		}
	}
}

func (w who) checkAt(t *testing.T, via int) {
	c := newCluster(t, "amy", "ben")
	owner, at := c.daemons[0], c.daemons[via]
	j := secretJob(owner, w.share)
	owner.put(j)
	out := owner.log(job.Attempt{Job: j.ID, Task: 0, N: 1}, "stdout")
	out.write("whisper")
	out.end()
	owner.server.auth.ownOnly = w.own
	owner.server.feeds.hello.Own = w.own
	at.server.auth.httpUser = w.user
	if w.operator {
		at.server.auth.operators = []string{w.user}
	}
	base := "/v1/jobs/" + string(j.ID)
	has := func(p part) bool { return slices.Contains(w.may, p) }

	for _, r := range []struct {
		part         part
		method, path string
	}{
		{partRow, "GET", base},
		{partRow, "GET", base + "/tasks"},
		{partRow, "GET", base + "/usage"},
		{partRow, "GET", base + "/tasks/0/usage"},
		{partRow, "GET", base + "/why"},
		{partOutput, "GET", base + "/tasks/0/logs"},
		{partOutput, "GET", base + "/tasks/0/logs?attempt=1&exact=true"},
		{partFiles, "GET", base + "/tasks/0/files?path=x"},
		{partInside, "GET", base + "/tasks/0/exec"},
		{partInside, "GET", base + "/tasks/0/attach"},
		{partChange, "POST", base + "/hold"},
		{partChange, "POST", base + "/release"},
		{partChange, "POST", base + "/cancel"},
	} {
		status, _, body := at.raw(t, r.method, r.path, "")
		want := "allowed"
		switch {
		case has(r.part):
		case has(partRow):
			want = "denied"
		default:
			want = "hidden"
		}
		got := "allowed"
		switch {
		case status == http.StatusForbidden:
			got = "denied"
		case status == http.StatusNotFound && strings.Contains(body, "only their own jobs"):
			got = "hidden"
		}
		if got != want {
			t.Errorf("%s %s: got %s (%d %s), want %s", r.method, r.path, got, status, body, want)
		}
		if strings.Contains(body, "hush") && !has(partSpec) {
			t.Errorf("got the job file in the answer of %s %s, want none: %s", r.method, r.path, body)
		}
		if strings.Contains(body, "whisper") && !has(partOutput) {
			t.Errorf("got the output in the answer of %s %s, want none: %s", r.method, r.path, body)
		}
		if strings.Contains(body, "4711") && !has(partInside) {
			t.Errorf("got the process in the answer of %s %s, want none: %s", r.method, r.path, body)
		}
	}
	owner.put(j) // as before the changes
	if has(partRow) {
		w.checkRow(t, at, j)
	}
	w.checkListed(t, at, j, has(partRow))
}

// checkRow checks what all users see of a job.
func (w who) checkRow(t *testing.T, at *daemon, j job.Job) {
	t.Helper()
	d, err := at.client.Job(t.Context(), j.ID)
	if err != nil || d.Name != "public-name" || d.User != "ada" || d.State != job.Failed || d.Resources.CPUs != j.Spec.Resources.CPUs || d.Tasks[0].Node != "amy" || d.StartedAt == nil || d.Spec.Name != d.Name {
		t.Errorf("the row: got %+v, %v, want the public fields", d, err)
	}
	text, err := json.Marshal(d)
	if all := slices.Contains(w.may, partSpec); err != nil || all != strings.Contains(string(text), "hush") {
		t.Errorf("the job file: got %s, %v, want the secret words only with the right to see it", text, err)
	}
	if all := slices.Contains(w.may, partOutput); all != (d.Tasks[0].StderrTail == "whisper") {
		t.Errorf("the last lines of stderr: got %q, want them only with the right to see the output", d.Tasks[0].StderrTail)
	}
}

// checkListed checks listings and events.
func (w who) checkListed(t *testing.T, at *daemon, j job.Job, visible bool) {
	t.Helper()
	for _, f := range []JobFilter{{}, {User: "ada"}, {Prefix: string(j.ID)}} {
		l, err := at.client.Jobs(t.Context(), f)
		if err != nil || (len(l.Items) == 1) != visible || len(l.Partial) > 0 {
			t.Errorf("listing %+v: got %+v, %v, want one job if it is visible", f, l, err)
		}
		if text, _ := json.Marshal(l); strings.Contains(string(text), "hush") {
			t.Errorf("got the job file in a listing, want none: %s", text)
		}
	}
	for _, ids := range [][]job.ID{nil, {j.ID}} {
		changed := j
		changed.Spec.Priority = 60 + len(ids) // a state that was reported before is no event
		body := at.eventsFor(t, ids, func() { at.cluster.daemons[0].put(changed) })
		if got := strings.Contains(body, "public-name"); got != visible || strings.Contains(body, "hush") || strings.Contains(body, "whisper") {
			t.Errorf("events of %v: got %s, want the job if it is visible, without secret words", ids, body)
		}
	}
}

// eventsFor returns what a stream of events sends within a second, with a change halfway.
func (d *daemon) eventsFor(t *testing.T, ids []job.ID, change func()) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	path := "http://127.0.0.1:1/v1/events"
	for _, id := range ids {
		path += "?job=" + string(id)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	later := time.AfterFunc(time.Second/2, change)
	defer later.Stop()
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // until the second is over
	return string(text)
}

// TestExplanationsHideTheJobFileFromOthers checks that an explanation shows other users no paths and labels of the job file.
func TestExplanationsHideTheJobFileFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		j := secretJob(amy, true)
		amy.put(j)
		amy.why = []contract.Clause{{Clause: "driver: exec"}, {Clause: "mount: /hush"}, {Clause: "constraint hush=1"}, {Clause: "nodelist: hush"}, {Clause: "exclude: hush"}, {Clause: "cpus: 1"}}
		for user, want := range map[string]int{"ada": 6, "eve": 2} {
			amy.server.auth.httpUser = user
			x, err := amy.client.Why(t.Context(), j.ID, nil)
			if err != nil || len(x.Clauses) != want {
				t.Errorf("%s: got clauses %+v, %v, want %d", user, x.Clauses, err, want)
			}
		}
	})
}
