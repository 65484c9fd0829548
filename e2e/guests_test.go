//go:build e2e

package e2e

// Hosts that joined with some of the roles: a guest that only runs tasks, and members that try more than their roles
// allow.

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// threeWithGuest starts a daemon of root, one of an ordinary user, and a guest that joined with --roles worker.
func threeWithGuest(t *testing.T) (root, user, guest *daemon) {
	t.Helper()
	root = newDaemon(t, "root", "--gpus", "none", "--cpus", "4").start()
	user = newDaemon(t, "user", "--gpus", "none", "--cpus", "4", "--config", os.DevNull)
	if os.Getuid() == 0 {
		const nobody = 65534
		if err := os.Chown(user.dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		user.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	user.start(root.invite().flags()...)
	guest = newDaemon(t, "guest", "--gpus", "none", "--cpus", "4").start(root.invite("--roles", "worker").flags()...)
	for _, d := range []*daemon{root, user, guest} {
		d.untilNodes(3)
	}
	return root, user, guest
}

func (d *daemon) id() job.Peer {
	d.t.Helper()
	for _, n := range d.nodes().Items {
		if n.Name == d.name {
			return n.ID
		}
	}
	d.t.Fatalf("%s does not list itself", d.name)
	return ""
}

// http returns a client of the daemon's socket.
func (d *daemon) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
}

// metrics returns the metrics of the daemon.
func (d *daemon) metrics() string {
	d.t.Helper()
	client := d.http()
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://daemon/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// A guest's host runs its tasks, and can do nothing else.
func TestGuestOnlyRunsTasks(t *testing.T) {
	t.Parallel()
	root, user, guest := threeWithGuest(t)
	for _, from := range []*daemon{root, user} {
		id := from.ok("submit", "-w", "guest", "--", "echo", "ran")
		if j := from.untilState(id, "SUCCEEDED"); j.Tasks[0].Node != "guest" {
			t.Errorf("ran on %s, want guest", j.Tasks[0].Node)
		}
		if out := root.ok("logs", id); !strings.Contains(out, "ran") {
			t.Errorf("its output at root: got %q, want ran", out)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/in", []byte("brought"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := root.in(dir, "run", "-w", "guest", "--upload", "in", "--", "cat", "in")
	if out.code != 0 || !strings.Contains(out.stdout, "brought") {
		t.Errorf("a task with files: got %+v, want its file", out)
	}

	g := newGate(t)
	id := root.ok(append([]string{"submit", "-x", "guest", "--env", "TOKEN=s3cret", "--"}, g.script("true")...)...)
	root.untilState(id, "RUNNING")
	guest.fails(1, []string{"not allowed", "role scheduler", "muster invite --roles"}, "submit", "--", "true")
	guest.fails(125, []string{"role scheduler"}, "run", "--", "true")
	for _, what := range [][]string{{"cancel", id}, {"hold", id}, {"requeue", id}, {"logs", id}, {"exec", id, "--", "true"}, {"cp", id + ":x", dir}, {"node", "drain", "root"}} {
		r := guest.muster(what...)
		if r.code == 0 || !containsAll(r.stderr, []string{"not allowed", "role scheduler"}) {
			t.Errorf("%q at the guest: exit %d: got %s, want a refusal with the role", what, r.code, r.stderr)
		}
	}
	j := guest.show(id) // all members see the public part
	if j.State != job.Running || j.Spec.Env["TOKEN"] == "s3cret" {
		t.Errorf("at the guest the job is %s, its environment %v, want RUNNING without the secret", j.State, j.Spec.Env)
	}
	guest.ok("jobs")
	guest.ok("why", id)
	guest.ok("node", "show", "root")
	guest.ok("node", "drain", "guest") // its own host
	root.untilNode("guest", "draining", func(n api.Node) bool { return n.State == api.NodeDraining })
	guest.ok("node", "resume", "guest")
	guest.fails(1, []string{"no inviter", "muster peers"}, "invite")
	for _, other := range []*daemon{root, user} {
		guest.fails(1, []string{"may not revoke"}, "peers", "--revoke", other.name)
	}
	root.untilNodes(3)
	user.fails(1, []string{"inviter"}, "invite") // an invitation gives that role only if it says so
	g.open()
	root.untilState(id, "SUCCEEDED")
}

// Members that send what their roles do not allow: the session ends, the log says why, and nothing happens.
func TestMembersCannotExceedTheirRoles(t *testing.T) {
	t.Parallel()
	root := newDaemon(t, "root", "--gpus", "none", "--cpus", "4").start()
	inv := root.invite("--roles", "worker", "--uses", "3")
	worker, second := rogue.Join(t, "worker", inv.Bootstrap, inv.Token), rogue.Join(t, "second", inv.Bootstrap, inv.Token)
	earlier := rogue.Join(t, "earlier", inv.Bootstrap, inv.Token)
	inv = root.invite("--roles", "scheduler")
	scheduler := rogue.Join(t, "scheduler", inv.Bootstrap, inv.Token)
	inv = root.invite("--roles", "inviter")
	inviter := rogue.Join(t, "inviter", inv.Bootstrap, inv.Token)
	at := root.id()

	g := newGate(t)
	id := root.ok(append([]string{"submit", "--env", "TOKEN=s3cret", "--"}, g.script("true")...)...)
	j := root.untilState(id, "RUNNING")
	group := uint64(job.ID(id).Group())
	of := &wirepb.AttemptRef{Job: id, N: int64(j.Tasks[0].Attempt)}
	epoch := &wirepb.EpochRef{Generation: 1 << 40, Term: 1}

	needs := "needs the role scheduler, and the peer has worker"
	checkDenied(t, root, worker, &wirepb.Cancel{Attempt: of, Group: group, Epoch: epoch}, needs)
	checkDenied(t, root, second, &wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: group, Epoch: epoch}}}, needs)
	checkDenied(t, root, scheduler, &wirepb.Event{Attempt: of, Group: group, N: 1}, "needs the role worker, and the peer has scheduler")
	if !strings.Contains(root.metrics(), "muster_role_denied_total 3") {
		t.Error("the messages are not counted")
	}
	if s, err := inviter.TrySession(at, true); err == nil {
		s.Reset()
		t.Error("a member with only the role inviter has a session")
	}
	for _, r := range []*rogue.Peer{worker, inviter} {
		for _, c := range []struct{ method, path string }{
			{http.MethodPost, "/v1/jobs/" + id + "/cancel"},
			{http.MethodPost, "/v1/jobs/" + id + "/hold"},
			{http.MethodPost, "/v1/jobs/" + id + "/requeue"},
			{http.MethodPost, "/v1/nodes/" + string(at) + "/drain"},
			{http.MethodPost, "/v1/nodes/" + string(at) + "/resume"},
			{http.MethodPost, "/v1/nodes/" + string(at) + "/declare-dead"},
			{http.MethodGet, "/v1/jobs/" + id + "/tasks/0/logs"},
			{http.MethodGet, "/v1/jobs/" + id + "/tasks/0/files"},
			{http.MethodGet, "/v1/jobs/" + id + "/tasks/0/exec"},
			{http.MethodGet, "/v1/jobs/" + id + "/tasks/0/attach"},
			{http.MethodGet, "/peer/v1/attempts/" + id + ".0.1/logs"},
			{http.MethodGet, "/peer/v1/attempts/" + id + ".0.1/exec"},
			{http.MethodPost, "/peer/v1/groups/" + job.ID(id).Group().String() + "/progress"},
		} {
			body := ""
			if c.method == http.MethodPost {
				body = "{}"
			}
			reply, err := r.HTTP(c.method, at, c.path, rogue.Operator("root"), body)
			if err != nil || reply.Status != http.StatusForbidden || !strings.Contains(reply.Body, "role scheduler") {
				t.Errorf("%s %s: got %d %s, %v, want 403 with the role", c.method, c.path, reply.Status, reply.Body, err)
			}
		}
		reply, err := r.HTTP(http.MethodGet, at, "/v1/jobs/"+id, rogue.Operator("root"), "")
		if err != nil || reply.Status != http.StatusOK || strings.Contains(reply.Body, "s3cret") {
			t.Errorf("GET of the job: got %d %s, %v, want 200 without the secret", reply.Status, reply.Body, err)
		}
	}
	reply, err := inviter.HTTP(http.MethodPost, at, "/peer/v1/chunks", rogue.Operator("root"), "")
	if err != nil || reply.Status != http.StatusForbidden {
		t.Errorf("the inviter fetches files: got %d %s, %v, want 403", reply.Status, reply.Body, err)
	}

	// A session that claims an earlier version goes on, and is not obeyed.
	old := earlier.Earlier(at)
	from := root.logged()
	if err := old.Send(&wirepb.Cancel{Attempt: of, Group: group, Epoch: epoch}, &wirepb.Ping{Number: 7}); err != nil {
		t.Fatal(err)
	}
	root.waitLog(from, "ignored", "role scheduler", string(earlier.ID()))
	if _, err := old.Until(patience, func(f *wirepb.Frame) bool { return f.GetPong().GetNumber() == 7 }); err != nil {
		t.Errorf("the session of an earlier version: got %v, want an answer", err)
	}

	if j := root.show(id); j.State != job.Running || j.Tasks[0].Attempt != int(of.N) {
		t.Errorf("the task is %s, want RUNNING", j.State)
	}
	g.open()
	root.untilState(id, "SUCCEEDED")
}

// checkDenied checks that a message ends the session of a member, and that the daemon's log says why.
func checkDenied(t *testing.T, d *daemon, r *rogue.Peer, m proto.Message, why string) {
	t.Helper()
	from := d.logged()
	s := r.Session(d.id())
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	// The session may be cut before the ping is written.
	if err := s.Send(&wirepb.Ping{Number: 7}); err == nil {
		if _, err := s.Until(patience, func(f *wirepb.Frame) bool { return f.GetPong().GetNumber() == 7 }); err == nil {
			t.Errorf("a %T of %s was accepted, want an error", m, r.ID())
			return
		}
	}
	d.waitLog(from, "session cut", "not allowed", why, string(r.ID()))
}

// Labels that are signed with the invitation take precedence over what a host says of itself, and so does its id over
// its name.
func TestSignedLabelsTakePrecedence(t *testing.T) {
	t.Parallel()
	root := newDaemon(t, "root", "--gpus", "none", "--cpus", "4").start()
	root.fails(2, []string{"secure", "K=V"}, "invite", "--label", "secure")
	root.fails(2, []string{"cpus"}, "invite", "--label", "cpus=9")
	inv := root.invite("--roles", "worker", "--label", "secure=yes", "--label", "rack=r1")
	good := newDaemon(t, "box", "--gpus", "none", "--cpus", "2", "--label", "secure=no", "--label", "mine=1").start(inv.flags()...)
	root.untilNodes(2)
	goodID := root.nodes().Items[0].ID
	// A host that claims false labels, and takes the name of the other one.
	newDaemon(t, "box", "--gpus", "none", "--cpus", "2", "--label", "secure=yes").start(root.invite("--roles", "worker").flags()...)
	root.untilNodes(3)

	var liarID job.Peer
	for _, n := range root.nodes().Items {
		if n.Name != "box" {
			continue
		}
		want := map[string]string{}
		if n.ID == goodID {
			want["secure"], want["rack"] = "yes", "r1"
		} else {
			liarID = n.ID
		}
		if !maps.Equal(n.Signed, want) || n.Labels["secure"] != "yes" {
			t.Errorf("%s: got labels %v, signed %v, want signed %v", n.ID, n.Labels, n.Signed, want)
		}
	}
	if out := good.ok("node", "show", string(goodID)); !containsAll(out, []string{"signed labels", "rack=r1,secure=yes", "own labels", "mine=1"}) {
		t.Errorf("node show: got %s, want signed and own labels", out)
	}
	ran := func(flags ...string) job.Peer {
		t.Helper()
		return root.untilState(root.ok(append(append([]string{"submit"}, flags...), "--", "true")...), "SUCCEEDED").Tasks[0].NodeID
	}
	for range 3 {
		if at := ran("-C", "secure=yes", "--trusted-labels"); at != goodID {
			t.Errorf("with trusted labels it ran on %s, want %v", at, goodID)
		}
	}
	if at := ran("-C", "secure=yes", "--trusted-labels", "--cpus", "2", "--mem", "1MiB"); at != goodID {
		t.Errorf("with trusted labels it ran on %s, want %v", at, goodID)
	}
	root.fails(3, []string{"could ever run"}, "submit", "-C", "mine=1", "--trusted-labels", "--", "true")
	root.fails(3, []string{"could ever run"}, "submit", "-C", "secure=yes", "--trusted-labels", "-w", string(liarID), "--", "true")
	if out := root.ok("nodes"); !strings.Contains(out, "box (…"+string(liarID)[len(liarID)-8:]+")") || !strings.Contains(out, "secure=yes (signed)") {
		t.Errorf("nodes: want the end of the id and the signed label, got\n%s", out)
	}
	for _, id := range []job.Peer{goodID, liarID} {
		if at := ran("-w", string(id)); at != id {
			t.Errorf("-w %s ran on %s, want %s", id, at, id)
		}
		root.ok("node", "show", string(id))
	}
}

// A host takes the name of another. It gets no job that was accepted for the other, and a selector that means both is
// refused.
func TestHostsOfOneNameAreDistinguished(t *testing.T) {
	t.Parallel()
	root := newDaemon(t, "root", "--gpus", "none", "--cpus", "4").start()
	newDaemon(t, "box", "--gpus", "none", "--cpus", "1").start(root.invite("--roles", "worker").flags()...)
	root.untilNodes(2)
	first := root.nodes().Items[0].ID
	g := newGate(t)
	busy := root.ok(append([]string{"submit", "-w", "box", "--cpus", "1", "--"}, g.script("true")...)...) // the other host has more free capacity
	root.untilState(busy, "RUNNING")
	early := root.ok("submit", "-w", "box", "--cpus", "1", "--", "true")
	newDaemon(t, "box", "--gpus", "none", "--cpus", "2").start(root.invite("--roles", "worker").flags()...)
	root.untilNodes(3)
	checkFor(t, 2*time.Second, func() string {
		if j := root.show(early); j.State != job.Pending {
			return "the job for the first host is " + string(j.State) + " on " + string(j.Tasks[0].NodeID)
		}
		return ""
	})
	var ids []string
	for _, n := range root.nodes().Items {
		if n.Name == "box" {
			ids = append(ids, string(n.ID))
		}
	}
	for _, what := range [][]string{
		{"submit", "-w", "box", "--", "true"},
		{"submit", "-x", "box", "--", "true"},
		{"submit", "-w", "b*", "--", "true"},
		{"submit", "-x", "bo[x-z]", "--", "true"},
		{"submit", "-C", "name=box", "--", "true"},
		{"node", "show", "box"},
		{"node", "drain", "box"},
		{"peers", "--revoke", "box"},
	} {
		root.fails(2, append([]string{"2"}, ids...), what...)
	}
	g.open()
	if at := root.untilState(early, "SUCCEEDED").Tasks[0].NodeID; at != first {
		t.Errorf("the job for the first host ran on %s, want %s", at, first)
	}
}
