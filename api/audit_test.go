package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

// openAudit gives the daemon an audit log.
func (d *daemon) openAudit(t *testing.T) {
	t.Helper()
	cfg := audit.DefaultConfig()
	d.auditDir = t.TempDir()
	cfg.Dir = d.auditDir
	l, err := audit.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d.audit = l
}

// entries returns the entries that the daemon wrote, the oldest first.
func (d *daemon) entries(t *testing.T) []audit.Entry {
	t.Helper()
	all, err := d.audit.Find(t.Context(), audit.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	return all
}

// newEntries returns what the daemon wrote since an earlier call, one line for each entry.
func (d *daemon) newEntries(t *testing.T, from *int) []string {
	t.Helper()
	all := d.entries(t)
	var lines []string
	for _, e := range all[*from:] {
		line := fmt.Sprintf("%s %s by %s@%s", e.Action, e.Outcome, e.User, e.From)
		if e.Object != "" {
			line += " of " + e.Object
		}
		for _, k := range slices.Sorted(maps.Keys(e.Details)) {
			line += " " + k + "=" + e.Details[k]
		}
		lines = append(lines, line)
	}
	*from = len(all)
	return lines
}

// Each route is in exactly one of the two tables, and each row of them is a route.
func TestEveryRouteIsAuditedOrNot(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Self = "p"
	rt := newRouter(cfg, Needs{}, &daemons{}, &followRoutes{}, newAdmission(nil), nil, slog.New(slog.DiscardHandler))
	seen := map[string]bool{}
	for _, op := range rt.all {
		seen[op.OperationID] = true
		row, yes := audited[op.OperationID]
		why, no := notAudited[op.OperationID]
		if yes == no {
			t.Errorf("%s %s (%s): got audited %t, not audited %t, want one of both", op.Method, op.Path, op.OperationID, yes, no)
		}
		if no && len(why) < 10 {
			t.Errorf("%s is not audited for no reason, want one", op.OperationID)
		}
		if yes && !row.action.Known() {
			t.Errorf("%s: unknown action %q", op.OperationID, row.action)
		}
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(audited)), slices.Collect(maps.Keys(notAudited))) {
		if !seen[id] {
			t.Errorf("there is no route %s", id)
		}
	}
	if len(seen) < 40 {
		t.Errorf("got %d routes, want at least 40", len(seen))
	}
}

// Both the daemon that a user asks and the one that decides log the request and its user.
func TestRequestsAreAuditedAtBothDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		id, ctx := string(j.ID), t.Context()
		var a, b int
		forwarded := " forwarded_to=" + string(ben.peer)
		spec := job.DefaultSpec()
		spec.Name, spec.Command, spec.Env = "train", []string{"secret-arg"}, map[string]string{"K": "secret-env"}
		for _, x := range []struct {
			name    string
			do      func() error
			at, own []string // at amy, and at ben
		}{
			{"submit", func() error { j, err := amy.client.Submit(ctx, spec, ""); spec.Name = string(j.ID); return err }, []string{"submit ok by amy@http of ID name=train"}, nil},
			{"hold", func() error { _, err := amy.client.Hold(ctx, j.ID, Change{}); return err }, []string{"hold ok by amy@http of " + id + forwarded}, []string{"hold ok by amy@peer of " + id}},
			{"cancel", func() error { _, err := amy.client.Cancel(ctx, j.ID, Change{}); return err }, []string{"cancel ok by amy@http of " + id + forwarded}, []string{"cancel ok by amy@peer of " + id}},
			{"hold what ended", func() error { _, err := amy.client.Hold(ctx, j.ID, Change{}); return expect(err, ErrConflict) }, []string{"hold failed by amy@http of " + id + forwarded}, []string{"hold failed by amy@peer of " + id}},
			{"show", func() error { _, err := amy.client.Job(ctx, j.ID); return err }, nil, nil},
			{"own logs", func() error { _, _, _ = amy.raw(t, "GET", "/v1/jobs/"+id+"/tasks/0/logs", ""); return nil }, nil, nil},
			{"drain", func() error {
				_, err := amy.client.Drain(ctx, "ben", DrainRequest{Reason: "disk"})
				return expect(err, ErrDenied)
			}, []string{"drain refused by amy@http of " + string(ben.peer) + forwarded + " name=ben"}, []string{"drain refused by amy@peer of " + string(ben.peer) + " name=ben"}},
			{"invite", func() error { _, err := amy.client.Invite(ctx, InviteRequest{}); return expect(err, ErrDenied) }, []string{"invite refused by amy@http"}, nil},
		} {
			if err := x.do(); err != nil {
				t.Errorf("%s: %v", x.name, err)
			}
			at, own := amy.newEntries(t, &a), ben.newEntries(t, &b)
			for i := range at {
				at[i] = strings.ReplaceAll(at[i], spec.Name, "ID")
			}
			if !slices.Equal(at, x.at) || !slices.Equal(own, x.own) {
				t.Errorf("%s: got\n at amy %q\nwant %q\n at ben %q\nwant %q", x.name, at, x.at, own, x.own)
			}
		}
		for _, e := range ben.entries(t) {
			if e.Peer != amy.peer && e.Peer == "" {
				t.Errorf("got %+v, want the daemon that sent it", e)
			}
		}
		text, err := os.ReadFile(amy.auditDir + "/" + audit.Name)
		if err != nil || bytes.Contains(text, []byte("secret-")) {
			t.Errorf("%v; the log has secrets, want none: %s", err, text)
		}
	})
}

func expect(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got %w, want %w", err, want)
}

// The acts of operators are logged with their important facts, and never with the token.
func TestActsOfOperatorsAreAuditedWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy", "ben").daemons[0]
		amy.server.auth.operators = []string{"amy"}
		ben := amy.cluster.daemons[1]
		j := amy.newJob(1)
		j.User = "eve"
		j = amy.put(j)
		ctx := t.Context()
		do := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		do(amy.client.Invite(ctx, InviteRequest{TTL: 60, Uses: 3, Roles: []string{"worker"}, Labels: map[string]string{"secure": "yes", "a": "b"}}))
		do(amy.client.Join(ctx, []string{"/ip4/10.0.0.1/tcp/1"}, "good"))
		_, err := amy.client.Join(ctx, []string{"/ip4/10.0.0.1/tcp/1"}, "token-that-is-bad")
		do(nil, expect(err, ErrDenied))
		do(amy.client.Drain(ctx, "amy", DrainRequest{Reason: "disk\nfull"}))
		do(amy.client.Resume(ctx, "amy"))
		do(amy.client.Cancel(ctx, j.ID, Change{}))
		if status, _, text := amy.raw(t, "POST", "/v1/peers/ben/revoke", `{"reason":"lost","with_invited":true}`); status != http.StatusOK {
			t.Errorf("revoke: got %d %s, want 200", status, text)
		}
		if status, _, text := amy.raw(t, "POST", "/v1/peers/"+string(ben.peer)+"/restore", ""); status != http.StatusNoContent {
			t.Errorf("restore: got %d %s, want 204", status, text)
		}
		from := 0
		want := []string{
			"invite ok by amy@http of inv1 labels=a=b,secure=yes roles=worker ttl=1m0s uses=3",
			"join ok by amy@http of c1 bootstrap=/ip4/10.0.0.1/tcp/1",
			"join refused by amy@http bootstrap=/ip4/10.0.0.1/tcp/1",
			"drain ok by amy@http of " + string(amy.peer) + " name=amy reason=disk\\nfull",
			"resume ok by amy@http of " + string(amy.peer) + " name=amy",
			"cancel ok by amy@http of " + string(j.ID) + " job_user=eve",
			"revoke ok by amy@http of " + string(ben.peer) + " name=ben reason=lost with_invited=true",
			"restore ok by amy@http of " + string(ben.peer),
		}
		if got := amy.newEntries(t, &from); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		text, err := os.ReadFile(amy.auditDir + "/" + audit.Name)
		if err != nil || bytes.Contains(text, []byte("token-that")) || bytes.Contains(text, []byte(`"tok"`)) {
			t.Errorf("%v; the log has a token, want none: %s", err, text)
		}
	})
}

// Refusals are logged, whatever the route is.
func TestRefusalsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		j := amy.put(amy.newJob(1))
		from := 0
		amy.mu.Lock()
		amy.callers = []string{roleWorker}
		amy.mu.Unlock()
		amy.asDaemon(t, "POST", "/v1/jobs/"+string(j.ID)+"/cancel")
		amy.asDaemon(t, "POST", "/v1/invitations")
		amy.asDaemon(t, "GET", "/v1/daemon")
		amy.server.auth.httpUser = "eve"
		amy.raw(t, "GET", "/v1/jobs/"+string(j.ID)+"/tasks/0/logs", "")
		amy.raw(t, "POST", "/v1/jobs/"+string(j.ID)+"/cancel", "{}")
		digest := []byte("not the digest of anything")
		amy.server.auth.token.Store(&digest)
		amy.raw(t, "POST", "/v1/jobs", "{}", "Authorization", "Bearer stolen-token-guess")
		want := []string{
			"cancel refused by @peer of " + string(j.ID),
			"invite refused by @peer",
			"other refused by @peer of GET /v1/daemon",
			"logs refused by eve@http of " + string(j.ID) + ".0 job_user=amy",
			"cancel refused by eve@http of " + string(j.ID) + " job_user=amy",
			"authenticate refused by @http of POST /v1/jobs",
		}
		if got := amy.newEntries(t, &from); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, e := range amy.entries(t) {
			if e.Code == "" || (e.Reason == "" && e.Outcome != audit.OK) {
				t.Errorf("got %+v, want a code and a reason", e)
			}
		}
		// a flood of guesses makes few entries
		for range 1000 {
			amy.raw(t, "GET", "/v1/jobs", "", "Authorization", "Bearer stolen-token-guess")
		}
		if n := len(amy.newEntries(t, &from)); n == 0 || n > 120 {
			t.Errorf("got %d entries of 1000 guesses, want 1 to 120", n)
		}
	})
}

// A request that is unanswered when its client leaves is logged, too.
func TestUnansweredRequestIsAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		close(ben.silent)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := amy.client.Cancel(ctx, j.ID, Change{}); err == nil {
			t.Error("a silent daemon has answered")
		}
		synctest.Wait()
		from := 0
		if got := amy.newEntries(t, &from); len(got) != 1 || !strings.HasPrefix(got[0], "cancel failed by amy@http of "+string(j.ID)) {
			t.Errorf("got %q, want one entry of a cancel that failed", got)
		}
	})
}

// Operators see the acts of all users, at all daemons; others see only their own.
func TestAuditListsOwnEntriesAndAllToOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		for i, d := range []*daemon{amy, ben, cal, amy} {
			user := []string{"amy", "eve"}[i%2]
			d.audit.Record(audit.Entry{Action: audit.Submit, Outcome: audit.OK, User: user, From: audit.HTTP, Object: fmt.Sprint(i)})
			time.Sleep(time.Second)
		}
		close(cal.silent)
		ctx := t.Context()
		list := func(f AuditFilter) (objects []string, l Listing[AuditEntry]) {
			t.Helper()
			l, err := amy.client.Audit(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range l.Items {
				objects = append(objects, e.Object+"@"+e.Node)
			}
			return objects, l
		}
		if got, _ := list(AuditFilter{}); !slices.Equal(got, []string{"0@amy"}) {
			t.Errorf("amy sees %q, want 0@amy", got) // cal does not answer, and amy did nothing else
		}
		if _, err := amy.client.Audit(ctx, AuditFilter{User: "eve"}); !errors.Is(err, ErrDenied) {
			t.Errorf("amy asks for the acts of eve: got %v, want ErrDenied", err)
		}
		amy.server.auth.operators = []string{"amy"}
		if got, l := list(AuditFilter{}); !slices.Equal(got, []string{"GET /v1/audit@amy", "3@amy", "1@ben", "0@amy"}) || !slices.Equal(l.Partial, []string{"cal"}) || l.Schema != SchemaAudit {
			t.Errorf("an operator sees %q with silent nodes %q, want 4 entries and cal", got, l.Partial)
		}
		if got, l := list(AuditFilter{User: "eve", Node: "ben"}); !slices.Equal(got, []string{"1@ben"}) || l.Items[0].Schema != SchemaAuditEntry || l.Items[0].NodeID != ben.peer {
			t.Errorf("entries of eve at ben: got %q, want 1@ben", got)
		}
		if got, _ := list(AuditFilter{Limit: 1, Action: "submit"}); !slices.Equal(got, []string{"3@amy"}) {
			t.Errorf("the newest submit: got %q, want 3@amy", got)
		}
		if _, err := amy.client.Audit(ctx, AuditFilter{Action: "nonsense"}); !errors.Is(err, ErrBad) {
			t.Errorf("an unknown action: got %v, want ErrBad", err)
		}
	})
}

// A daemon that lies about its log cannot attribute entries to another daemon, or make the answer longer.
func TestAuditBoundsALyingDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.server.auth.operators = []string{"amy"}
		var lie Listing[AuditEntry]
		for i := range 5000 {
			lie.Items = append(lie.Items, AuditEntry{Node: "amy", NodeID: amy.peer, Entry: audit.Entry{Time: time.Now().Add(time.Hour), Action: "x", Object: fmt.Sprint(i), Count: 1}})
		}
		for _, bad := range []string{"\x1b[2J", strings.Repeat("x", 1<<20), "a\nb"} {
			lie.Items = append(lie.Items, AuditEntry{Entry: audit.Entry{Time: time.Now().Add(2 * time.Hour), Action: "x", Object: bad, Count: 1}})
		}
		ben.mu.Lock()
		ben.lies = map[string]any{"/v1/audit": lie}
		ben.mu.Unlock()
		l, err := amy.client.Audit(t.Context(), AuditFilter{Limit: 10})
		if err != nil || len(l.Items) != 10 {
			t.Fatalf("got %d entries, %v, want 10", len(l.Items), err)
		}
		for _, e := range l.Items {
			if e.NodeID != ben.peer || e.Node != "ben" || len(e.Object) > 4 {
				t.Errorf("got %+v, want an entry of ben with a bounded object", e)
			}
		}
	})
}
