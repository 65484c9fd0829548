//go:build e2e

package e2e

// The audit log: who did what, from where, and to what, for users, holders of the token, members and strangers.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// checkEntries returns the entries of the daemon's own log that f selects. The test fails unless there are n.
func (d *daemon) checkEntries(n int, what string, f func(*api.AuditEntry) bool) []api.AuditEntry {
	d.t.Helper()
	var l api.Listing[api.AuditEntry]
	text := d.ok("audit", "--node", d.name, "-n", "1000", "--json")
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		d.t.Fatal(err)
	}
	var found []api.AuditEntry
	for i := range l.Items {
		if f(&l.Items[i]) {
			found = append(found, l.Items[i])
		}
	}
	if len(found) != n {
		d.t.Errorf("%s: got %d entries of %s, want %d:\n%s", d.name, len(found), what, n, text)
	}
	return found
}

// entriesOf selects entries by action, outcome, user and origin.
func entriesOf(a audit.Action, o audit.Outcome, user string, from audit.Origin) func(*api.AuditEntry) bool {
	return func(e *api.AuditEntry) bool {
		return e.Action == a && e.Outcome == o && e.User == user && e.From == from
	}
}

// TestActsOfUsersAreAudited performs every act that is logged, over the socket, over HTTP and through another member.
func TestActsOfUsersAreAudited(t *testing.T) {
	t.Parallel()
	asRoot(t)
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--http", addr, "--http-token", secret, "--http-user", "mail").start()
	inv := amy.invite("--label", "secure=yes", "--ttl", "5m")
	ben := newDaemon(t, "ben", "--gpus", "none", "--no-worker").start(inv.flags()...)
	amy.untilNodes(2)
	ben.untilNodes(2)

	amy.user, ben.user = ordinary, ordinary
	id := amy.ok("submit", "-J", "walk", "--env", "K=hush", "--download", "kept", "--", "sh", "-c", "echo x > kept; sleep 300", "hush")
	amy.untilState(id, "RUNNING")
	ben.ok("exec", id, "--", "echo", "hush-hush")
	ben.fails(1, []string{"hold"}, "hold", id) // the job runs
	ben.ok("requeue", id)
	ben.ok("hold", amy.ok("submit", "--hold", "--", "true"))
	ben.ok("cancel", id)
	amy.fails(1, []string{"not allowed"}, "node", "drain", "amy")
	amy.fails(1, []string{"not allowed"}, "invite")
	if out := amy.ok("audit"); strings.Contains(out, "root@") || !strings.Contains(out, "nobody@socket") {
		t.Errorf("an ordinary user sees\n%s\nwant the own entries only", out)
	}
	amy.fails(1, []string{"not allowed"}, "audit", "--user", "root")
	amy.user, ben.user = system, system
	ben.fails(1, []string{"belongs to nobody"}, "cancel", id)
	ben.fails(1, []string{"belongs to nobody"}, "logs", id)
	amy.user, ben.user = nil, nil
	ben.ok("logs", id)
	ben.ok("cp", id+":kept", t.TempDir())
	ben.ok("node", "drain", "amy", "--reason", "disk")
	amy.ok("node", "resume", "amy")
	call := func(token, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if s := call("0123456789abcdef", `{"command":["true"],"hold":true}`); s != http.StatusCreated {
		t.Errorf("submit with the token: got status %d, want 201", s)
	}
	if s := call("guess-of-the-token", `{"command":["true"]}`); s != http.StatusUnauthorized {
		t.Errorf("submit with a guess: got status %d, want 401", s)
	}

	at := ben.id()
	e := amy.checkEntries(2, "submissions over the socket", entriesOf(audit.Submit, audit.OK, "nobody", audit.Socket))
	if len(e) == 2 && (e[1].Object != id || e[1].UID == nil || *e[1].UID != nobody || e[1].PID == 0 || e[1].Details["name"] != "walk" || e[1].NodeID != amy.id()) {
		t.Errorf("got %+v, want the job, the user and the process", e[1])
	}
	for _, a := range []audit.Action{audit.Exec, audit.Requeue, audit.Hold, audit.Cancel} {
		own := ben.checkEntries(1, string(a), entriesOf(a, audit.OK, "nobody", audit.Socket))
		e := amy.checkEntries(1, string(a)+" through ben", entriesOf(a, audit.OK, "nobody", audit.Peer))
		if len(own) == 1 && (own[0].Details["forwarded_to"] != string(amy.id()) || own[0].UID == nil) {
			t.Errorf("got %+v, want that it was forwarded to amy", own[0])
		}
		if len(e) == 1 && (e[0].Peer != at || e[0].PeerName != "ben") {
			t.Errorf("got %+v, want that ben sent it", e[0])
		}
		if a == audit.Exec && len(e) == 1 && (e[0].Details["program"] != "echo" || e[0].Details["arguments"] != "1") {
			t.Errorf("got %+v, want the program and the number of arguments", e[0])
		}
	}
	amy.checkEntries(1, "a hold that failed", entriesOf(audit.Hold, audit.Failed, "nobody", audit.Peer))
	amy.checkEntries(1, "a drain that was refused", entriesOf(audit.Drain, audit.Refused, "nobody", audit.Socket))
	amy.checkEntries(1, "an invitation that was refused", entriesOf(audit.Invite, audit.Refused, "nobody", audit.Socket))
	amy.checkEntries(1, "a refused cancel", entriesOf(audit.Cancel, audit.Refused, systemName, audit.Peer))
	amy.checkEntries(1, "refused logs", entriesOf(audit.Logs, audit.Refused, systemName, audit.Peer))
	if e := amy.checkEntries(1, "an operator's look", entriesOf(audit.Logs, audit.OK, "root", audit.Peer)); len(e) == 1 && e[0].Details["job_user"] != "nobody" {
		t.Errorf("got %+v, want the user of the job", e[0])
	}
	if e := amy.checkEntries(1, "the drain", entriesOf(audit.Drain, audit.OK, "root", audit.Peer)); len(e) == 1 && (e[0].Object != string(amy.id()) || e[0].Details["reason"] != "disk") {
		t.Errorf("got %+v, want the node and the reason", e[0])
	}
	for _, from := range []*daemon{amy, ben} {
		origin := map[*daemon]audit.Origin{amy: audit.Peer, ben: audit.Socket}[from]
		if e := from.checkEntries(1, "the copy", entriesOf(audit.Files, audit.OK, "root", origin)); len(e) == 1 && (e[0].Object != id+".0" || from == amy && e[0].Details["paths"] != "kept") {
			t.Errorf("got %+v, want the task and the path", e[0])
		}
	}
	amy.checkEntries(1, "the resume", entriesOf(audit.Resume, audit.OK, "root", audit.Socket))
	if e := amy.checkEntries(1, "a job with the token", entriesOf(audit.Submit, audit.OK, "mail", audit.HTTP)); len(e) == 1 && !strings.HasPrefix(e[0].Address, "127.0.0.1:") {
		t.Errorf("got %+v, want the address", e[0])
	}
	amy.checkEntries(1, "a guess", entriesOf(audit.Authenticate, audit.Refused, "", audit.HTTP))
	made := amy.checkEntries(1, "the invitation", entriesOf(audit.Invite, audit.OK, "root", audit.Socket))
	used := amy.checkEntries(1, "its use", entriesOf(audit.Join, audit.OK, "", audit.Network))
	if len(made) == 1 && len(used) == 1 {
		want := map[string]string{"roles": "worker,scheduler", "ttl": "5m0s", "uses": "1", "labels": "secure=yes"}
		for k, v := range want {
			if made[0].Details[k] != v {
				t.Errorf("%s of the invitation: got %q, want %q", k, made[0].Details[k], v)
			}
		}
		if made[0].Object != inv.ID || used[0].Object != inv.ID || used[0].Peer != at || used[0].PeerName != "ben" || !strings.HasPrefix(used[0].Address, "/ip4/127.0.0.1/") {
			t.Errorf("got %+v\nand %+v, want one invitation, used by ben", made[0], used[0])
		}
	}
	both := amy.ok("audit", "-n", "1000", "--jsonl")
	if !strings.Contains(both, `"node":"amy"`) || !strings.Contains(both, `"node":"ben"`) {
		t.Errorf("the logs of both daemons: got\n%s\nwant entries of both", both)
	}
	for _, d := range []*daemon{amy, ben} {
		path := filepath.Join(d.dir, "data", audit.Name)
		text, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v, want mode 0600", info, err)
		}
		for _, hidden := range []string{"hush", inv.Token, "0123456789abcdef", "guess-of"} {
			if strings.Contains(string(text), hidden) {
				t.Errorf("the log of %s has %q", d.name, hidden)
			}
		}
	}
}

// TestRefusalsOfStrangersAndMembersAreAudited comes to the gate without a valid credential, and has members do what
// their roles do not allow.
func TestRefusalsOfStrangersAndMembersAreAudited(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	inv := amy.invite("--roles", "worker", "--uses", "2")
	guest := rogue.Join(t, "guest", inv.Bootstrap, inv.Token)
	ben := newDaemon(t, "ben", "--gpus", "none").start(inv.flags()...)
	late := newDaemon(t, "late", "--gpus", "none")
	late.launch(inv.flags()...)
	late.waitExit("used")
	id := amy.ok("submit", "--hold", "--", "true")

	if r, err := guest.HTTP(http.MethodPost, amy.id(), "/v1/jobs/"+id+"/cancel", rogue.Operator("root"), "{}"); err != nil || r.Status != http.StatusForbidden {
		t.Errorf("got %+v, %v, want 403", r, err)
	}
	if r, err := guest.HTTP(http.MethodPost, amy.id(), "/v1/invitations", rogue.Operator("root"), "{}"); err != nil || r.Status != http.StatusNotFound {
		t.Errorf("got %+v, %v, want 404", r, err)
	}
	checkDenied(t, amy, guest, &wirepb.Cancel{Attempt: &wirepb.AttemptRef{Job: id, N: 1}, Group: uint64(job.ID(id).Group()), Epoch: &wirepb.EpochRef{Generation: 9, Term: 9}}, "needs the role scheduler")
	amy.ok("peers", "--revoke", "ben", "--reason", "stolen\nkey")
	ben.kill()
	from := ben.launch()
	ben.waitLog(from, "revoked")

	if e := amy.checkEntries(1, "the used token", func(e *api.AuditEntry) bool { return e.Action == audit.Join && e.Outcome == audit.Refused }); len(e) == 1 &&
		(e[0].Code != "used-token" || e[0].Object != inv.ID || e[0].PeerName != "late" || !strings.HasPrefix(e[0].Address, "/ip4/127.0.0.1/")) {
		t.Errorf("got %+v, want the refused token of late", e[0])
	}
	joins := amy.checkEntries(2, "joins", func(e *api.AuditEntry) bool { return e.Action == audit.Join && e.Outcome == audit.OK })
	if !slices.ContainsFunc(joins, func(e api.AuditEntry) bool { return e.Peer == guest.ID() && e.Details["roles"] == "worker" }) {
		t.Errorf("got joins %+v, want that of the guest", joins)
	}
	for _, a := range []audit.Action{audit.Cancel, audit.Invite, audit.Role} {
		e := amy.checkEntries(1, "refused "+string(a), func(e *api.AuditEntry) bool { return e.Action == a && e.Outcome == audit.Refused })
		if len(e) == 1 && (e[0].From != audit.Peer || e[0].Peer != guest.ID() || e[0].PeerName != "guest" || e[0].User != "" || e[0].Code == "") {
			t.Errorf("got %+v, want that the guest did it, with a code", e[0])
		}
	}
	if e := amy.checkEntries(1, "the revocation", entriesOf(audit.Revoke, audit.OK, "root", audit.Socket)); len(e) == 1 && (e[0].Details["name"] != "ben" || e[0].Details["reason"] != `stolen\nkey`) {
		t.Errorf("got %+v, want the name and the reason", e[0])
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !strings.Contains(amy.ok("audit", "--action", "hello", "--jsonl"), `"code":"revoked"`); <-tick.C {
		if time.Since(began) > patience {
			t.Fatalf("got no entry about the revoked peer, want one:\n%s", amy.ok("audit"))
		}
	}
}

// TestFloodOfRefusalsHasFewAuditEntries has a member send thousands of requests that are refused. The log has their
// number in few entries, and still has the earlier and concurrent acts of others.
func TestFloodOfRefusalsHasFewAuditEntries(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	inv := amy.invite("--roles", "worker")
	guest := rogue.Join(t, "guest", inv.Bootstrap, inv.Token)
	id := amy.ok("submit", "--hold", "--", "true")
	const flood = 600
	for i := range flood {
		path := fmt.Sprintf("/v1/jobs/%s/cancel?n=%d", id, i)
		if r, err := guest.HTTP(http.MethodPost, amy.id(), path, rogue.Operator(fmt.Sprintf("user%d", i)), "{}"); err != nil || r.Status != http.StatusForbidden {
			t.Fatalf("got %+v, %v, want 403", r, err)
		}
	}
	amy.ok("cancel", id)
	amy.stop()
	amy.start()
	refused, lines := 0, 0
	var l api.Listing[api.AuditEntry]
	if err := json.Unmarshal([]byte(amy.ok("audit", "-n", "1000", "--json")), &l); err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Items {
		if e.Action == audit.Cancel && e.Outcome == audit.Refused {
			refused, lines = refused+e.Count, lines+1
		}
	}
	if refused != flood || lines > 60 {
		t.Errorf("got %d refusals in %d entries, want %d in at most 60", refused, lines, flood)
	}
	amy.checkEntries(1, "a submission before the flood", entriesOf(audit.Submit, audit.OK, "root", audit.Socket))
	amy.checkEntries(1, "a cancel after it", entriesOf(audit.Cancel, audit.OK, "root", audit.Socket))
}
