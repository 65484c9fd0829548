package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// raw sends a request and returns the answer's status, content type and body.
func (d *daemon) raw(t *testing.T, method, path, body string, header ...string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
}

func TestSubmitWithAKeyIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		spec := job.DefaultSpec()
		spec.Name, spec.Command = "first", []string{"true"}
		spec.Resources.Memory = 8 << 30
		j, err := amy.client.Submit(t.Context(), spec, "key-1")
		if err != nil || j.Schema != SchemaJob || j.User != "amy" || j.Resources.Memory != 8<<30 || j.Spec.Resources.Memory != 8<<30 || j.Copies != 1 {
			t.Fatalf("Submit = %+v, %v, want the job of amy with 8 GiB", j, err)
		}
		again, err := amy.client.Submit(t.Context(), spec, "key-1")
		if err != nil || again.ID != j.ID {
			t.Errorf("a second Submit with one key = %s, %v; want %s", again.ID, err, j.ID)
		}
		status, _, body := amy.raw(t, "POST", "/v1/jobs", `{"command":["true"]}`)
		var created Job
		if err := json.Unmarshal([]byte(body), &created); err != nil || status != http.StatusCreated || created.Priority != 50 || created.ID == "" {
			t.Errorf("defaults: got %d %s, want a job of priority 50", status, body)
		}
	})
}

// A job file of exactly the allowed size is accepted and returned, whatever characters it contains.
func TestLargestJobFileIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		spec := job.DefaultSpec()
		spec.Script = "#"
		text, err := job.EncodeSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		spec.Script += strings.Repeat("<", job.MaxSpecBytes-len(text))
		j, err := amy.client.Submit(t.Context(), spec, "key")
		if err != nil || j.Spec == nil || j.Spec.Script != spec.Script {
			t.Fatalf("submit: got error %v, want the same script", err)
		}
		got, err := amy.client.Job(t.Context(), j.ID)
		if err != nil || got.Spec == nil || got.Spec.Script != spec.Script {
			t.Errorf("Job: got error %v, want the same script", err)
		}
	})
}

func TestSubmitRefusesMalformedJobFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		for _, c := range []struct {
			body   string
			status int
			code   string
			says   string
		}{
			{`{"command":["true"],"comand":1}`, 422, "bad-request", `unknown field "comand"`},
			{`{"command":["true"],"resources":{"gpu":1}}`, 422, "bad-request", `unknown field "gpu"`},
			{`{"command":["true"],"resources":{"memory":8}}`, 422, "bad-request", `8GiB`},
			{`{"command":["true"],"time_limit":"90"}`, 422, "bad-request", `needs a unit`},
			{`{"command":"true"}`, 422, "bad-request", `command`},
			{`{"command":["true"]} {}`, 422, "bad-request", `one job`},
			{`{}`, 422, "bad-request", `command or a script`},
			{`null`, 422, "bad-request", `command or a script`},
			{`{"command":["true"],"name":"a\u0007b"}`, 422, "bad-request", `printable`},
			{`{"command":["true"],"image":"i","output":"o"}`, 422, "bad-request", `absolute path of the node`},
			{`{"command":["true"],"nodes":513}`, 422, "bad-request", `nodes 513: want 1 to 512`},
			{`{"command":["true"],"resources":{"exclusive":true}}`, 422, "bad-request", `unknown field "exclusive"`},
			{`{"command":["true"],"begin":"16:00"}`, 422, "bad-request", `16:00`},
			{`{"command":["true"],"constraint":"gpu.memory>=40"}`, 422, "bad-request", `at character 13`},
			{`{"command":`, 422, "bad-request", `unexpected EOF`},
			{``, 400, "bad-request", `required`},
			{`{"command":["` + strings.Repeat("a", 10<<20) + `"]}`, 413, "too-large", `too large`},
		} {
			status, kind, body := amy.raw(t, "POST", "/v1/jobs", c.body)
			var p Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || kind != contentProb {
				t.Fatalf("%.60s: got %s %s: %v, want a problem document", c.body, kind, body, err)
			}
			if status != c.status || p.Status != c.status || p.Code != c.code || p.Type != problemType+c.code || !strings.Contains(p.Error(), c.says) {
				t.Errorf("%.60s: got %d %s, want %d, %s: %s", c.body, status, body, c.status, c.code, c.says)
			}
			if len(body) > 2000 {
				t.Errorf("%.60s: the problem repeats the request: got %d bytes, want at most 2000", c.body, len(body))
			}
		}
		if len(amy.jobs) != 0 {
			t.Errorf("got %d jobs, want 0", len(amy.jobs))
		}
	})
}

func TestSubmitOfAnImpossibleJobIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		amy.noMatch = &contract.Explanation{
			Reason:  job.Reason{Word: job.ReasonNoMatch, Detail: "gpus: no node has 64"},
			Clauses: []contract.Clause{{Clause: "gpus: 64", Of: 1, Fails: []contract.Failed{{Node: amy.peer, Name: "amy", Reason: "has 8"}}}},
		}
		spec := job.DefaultSpec()
		spec.Command, spec.Resources.GPUs = []string{"true"}, 64
		_, err := amy.client.Submit(t.Context(), spec, "")
		var p *Problem
		if !errors.Is(err, ErrNoMatch) || errors.Is(err, ErrBad) || !errors.As(err, &p) || p.Explanation == nil ||
			p.Explanation.Clauses[0].Fails[0].Reason != "has 8" || !strings.Contains(err.Error(), "no node has 64") {
			t.Errorf("Submit = %v (%+v), want ErrNoMatch with the explanation", err, p)
		}
		spec.Hold = true
		if _, err := amy.client.Submit(t.Context(), spec, ""); err != nil {
			t.Errorf("a held job: got %v, want no error", err)
		}
	})
}

func TestErrorsAreTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		mine := amy.put(running(amy.newJob(1), amy))
		foreign := amy.newJob(2)
		foreign.User = "eve"
		amy.put(foreign)
		ctx := t.Context()
		first := func(_ any, err error) error { return err }
		for name, c := range map[string]struct {
			got, want error
		}{
			"no job":          {first(amy.client.Job(ctx, job.NewID(amy.group, 99))), ErrNotFound},
			"no job afar":     {first(amy.client.Job(ctx, job.NewID(ben.group, 99))), ErrNotFound},
			"no group":        {first(amy.client.Job(ctx, job.NewID(77, 1))), ErrNotFound},
			"no id":           {first(amy.client.Job(ctx, "xyz")), ErrNotFound},
			"no node":         {first(amy.client.Node(ctx, "zoe")), ErrNotFound},
			"running on hold": {first(amy.client.Hold(ctx, mine.ID, Change{})), ErrConflict},
			"another's again": {first(amy.client.Requeue(ctx, foreign.ID, Change{})), ErrDenied},
			"another's":       {first(amy.client.Cancel(ctx, foreign.ID, Change{})), ErrDenied},
			"another's, afar": {first(ben.client.Cancel(ctx, foreign.ID, Change{})), ErrDenied},
			"invite":          {first(amy.client.Invite(ctx, InviteRequest{})), ErrDenied},
			"join":            {first(amy.client.Join(ctx, []string{"/ip4/1.2.3.4"}, "t")), ErrDenied},
			"revoke":          {amy.client.Revoke(ctx, ben.peer, "", false), ErrDenied},
			"restore":         {amy.client.Restore(ctx, ben.peer), ErrDenied},
			"drain":           {first(amy.client.Drain(ctx, "amy", DrainRequest{})), ErrDenied},
			"drain, afar":     {first(amy.client.Drain(ctx, "ben", DrainRequest{})), ErrDenied},
			"resume":          {first(amy.client.Resume(ctx, "amy")), ErrDenied},
			"drain no node":   {first(amy.client.Drain(ctx, "zoe", DrainRequest{})), ErrNotFound},
			"bad state":       {first(amy.client.Jobs(ctx, JobFilter{States: []job.State{"NOPE"}})), ErrBad},
			"bad glob":        {first(amy.client.Jobs(ctx, JobFilter{Name: "[a"})), ErrBad},
			"bad cursor":      {first(amy.client.Jobs(ctx, JobFilter{Cursor: "x"})), ErrBad},
			"bad limit":       {first(amy.client.Jobs(ctx, JobFilter{Limit: 5000})), ErrBad},
			"long reason":     {first(amy.client.Cancel(ctx, mine.ID, Change{Reason: strings.Repeat("x", maxReason+1)})), ErrBad},
		} {
			if !errors.Is(c.got, c.want) || strings.Contains(c.got.Error(), "\n") {
				t.Errorf("%s: got %v, want %v", name, c.got, c.want)
			}
		}
		if _, err := amy.Get(ctx, mine.ID); err != nil || len(amy.asked) != 1 {
			t.Errorf("got requests %v, want one: the others must be refused", amy.asked)
		}
		for _, path := range []string{"/v2/jobs", "/v1/jobs?nope=1", "/v1/jobs/x/y/z", "/peer/v1/attempts/" + job.Attempt{Job: mine.ID, N: 1}.String() + "/logs"} {
			if status, kind, body := amy.raw(t, "GET", path, ""); (status != 404 && status != 422) || kind != contentProb {
				t.Errorf("GET %s: got %d %s %s, want a problem document", path, status, kind, body)
			}
		}
	})
}

func TestOperatorsInviteJoinAndRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.server.auth.operators = []string{"amy"}
		ctx := t.Context()
		inv, err := amy.client.Invite(ctx, InviteRequest{TTL: 90, Uses: 2, Roles: []string{"worker"}})
		if err != nil || inv.Token != "tok" || inv.Schema != SchemaInvitation || inv.ExpiresAt.Location() != time.UTC {
			t.Errorf("Invite = %+v, %v, want the token with its end in UTC", inv, err)
		}
		if j, err := amy.client.Join(ctx, []string{"/ip4/1.2.3.4"}, "good"); err != nil || j.Cluster != "c1" {
			t.Errorf("Join = %+v, %v, want cluster c1", j, err)
		}
		if _, err := amy.client.Join(ctx, []string{"/ip4/1.2.3.4"}, "bad"); !errors.Is(err, ErrDenied) {
			t.Errorf("Join with a bad token = %v, want ErrDenied", err)
		}
		if err := amy.client.Revoke(ctx, ben.peer, "stolen", true); err != nil {
			t.Error(err)
		}
		if err := amy.client.Revoke(ctx, amy.peer, "", false); !errors.Is(err, ErrConflict) {
			t.Errorf("revoking oneself = %v, want ErrConflict", err)
		}
		if err := amy.client.Restore(ctx, ben.peer); err != nil {
			t.Error(err)
		}
		if want := "[invite 1m30s 2 [worker] join [/ip4/1.2.3.4] revoke " + string(ben.peer) + ": stolen true restore " + string(ben.peer) + "]"; fmt.Sprint(amy.asked) != want {
			t.Errorf("asked %v, want %s", amy.asked, want)
		}
		d, err := amy.client.Daemon(ctx, true)
		if err != nil || d.Config[0].Origin != "flag" || d.Facts[0].Name != "driver" || d.Schema != SchemaDaemon {
			t.Errorf("Daemon = %+v, %v, want the setting and the fact", d, err)
		}
		peers, err := amy.client.Peers(ctx)
		if err != nil || len(peers.Items) != 2 || !peers.Items[0].Self || peers.Items[1].Self {
			t.Errorf("Peers = %+v, %v, want 2, the first itself", peers, err)
		}
		amy.revoked = []RevokedMember{{Peer: "gone", Name: "zoe", PeerRevocation: PeerRevocation{At: time.Unix(1, 0).UTC(), By: ben.peer, Reason: "sold"}}}
		peers, err = amy.client.Peers(ctx)
		if err != nil || len(peers.Items) != 3 || peers.Items[2].State != PeerRevoked || peers.Items[2].Revoked == nil || peers.Items[2].Revoked.Reason != "sold" {
			t.Errorf("Peers = %+v, %v, want 3, the last revoked", peers, err)
		}
	})
}

func TestReadyReportsWhyADaemonIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		if err := amy.client.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		amy.notReady = errors.New("the journal replays")
		if err := amy.client.Ready(t.Context()); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "journal replays") {
			t.Errorf("Ready = %v, want ErrUnavailable: journal replays", err)
		}
		if status, _, body := amy.raw(t, "GET", "/health", ""); status != 200 || !strings.Contains(body, SchemaHealth) {
			t.Errorf("health: got %d %s, want 200", status, body)
		}
		_, _, text := amy.raw(t, "GET", "/metrics", "")
		if !strings.Contains(text, `muster_api_requests_total{route="GET /ready",status="503"} 1`) {
			t.Errorf("metrics: got %s, want one request with status 503", text)
		}
	})
}

func TestHugeHeaderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		status, _, _ := amy.raw(t, "GET", "/health", "", "X-Big", strings.Repeat("a", 2*maxHeader))
		if status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d, want 431", status)
		}
	})
}

// A commit may take longer than the deadline for the request's body.
func TestSubmitMayTakeLongerThanTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy := c.daemons[0]
		amy.slow = 3 * bodyTimeout
		spec := job.DefaultSpec()
		spec.Command = []string{"true"}
		if _, err := amy.client.Submit(t.Context(), spec, ""); err != nil {
			t.Errorf("Submit = %v, want no error", err)
		}
	})
}

// The server does not wait for a client that sends only half a job file.
func TestRequestWithAStalledBodyTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		conn, err := amy.front.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if took := time.Since(began); took != bodyTimeout || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("got %[2]s after %[1]s, want 408 after %[3]s", took, resp.Status, bodyTimeout)
		}
	})
}

func FuzzDecodeSpec(f *testing.F) {
	f.Add([]byte(`{"command":["a"],"resources":{"memory":"8GiB"},"time_limit":"2h"}`))
	f.Add([]byte(`{"command":["a"],"env":{"A":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := decodeSpec(body)
		if err != nil {
			if p := problemOf(err); p.Status < 400 || p.Code == codeInternal {
				t.Errorf("%q: got %v as %+v, want a client's error", body, err, p)
			}
			return
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("%q was accepted: got %v, want a valid job file", body, err)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeSpec(text); err != nil {
			t.Errorf("got %s from %q, and then %+v, %v, want that it is accepted again", text, body, again, err)
		}
	})
}

func FuzzReadEvents(f *testing.F) {
	var b bytes.Buffer
	b.WriteString(": alive\n\nevent: job\ndata: {\"kind\":\"job\",\"id\":\"x\"}\n\n")
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, body []byte) {
		_ = readEvents(bytes.NewReader(body), func() {}, func(Event) bool { return true })
	})
}

// For any jobs and page size, following the cursors shows each matching job once, newest first.
func TestPagesShowEachJobOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []job.Job
		for i := range rapid.IntRange(0, 30).Draw(t, "jobs") {
			at := time.Unix(int64(rapid.IntRange(0, 5).Draw(t, "second")), 0)
			state := rapid.SampledFrom(job.States()).Draw(t, "state")
			all = append(all, job.Job{ID: job.NewID(1, uint64(i)), Submitted: at, Tasks: []job.Task{{State: state}}})
		}
		q := job.Query{Limit: rapid.IntRange(1, 7).Draw(t, "limit"), States: []job.State{job.Pending, job.Running, job.Failed}}
		want := 0
		for _, j := range all {
			if q.Match(&j) {
				want++
			}
		}
		var got []job.Job
		for {
			page := q.Pick(append([]job.Job{}, all...))
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after, err := parseCursor(cursor(page[len(page)-1].Position()))
			if err != nil {
				t.Fatal(err)
			}
			q.After = after
		}
		if len(got) != want {
			t.Fatalf("got %d jobs on the pages, want %d", len(got), want)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Submitted.After(got[i-1].Submitted) || got[i].ID == got[i-1].ID {
				t.Fatalf("job %d is out of order", i)
			}
		}
	})
}
