package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// Whichever daemon receives a request about a job, the owner of the job answers it and knows the user.
func TestRequestsAreForwardedToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		ctx := t.Context()
		got, err := amy.client.Job(ctx, j.ID)
		if err != nil || got.Owner != ben.peer || got.Spec.Env["SECRET"] != "s3cret" {
			t.Fatalf("Job = %+v, %v, want all of it from ben", got, err)
		}
		if w, err := amy.client.Why(ctx, j.ID, nil); err != nil || w.Reason != job.ReasonResources {
			t.Errorf("Why = %+v, %v, want Resources", w, err)
		}
		if got, err := amy.client.Hold(ctx, j.ID, Change{Reason: "later"}); err != nil || got.ID != j.ID {
			t.Errorf("Hold = %v, %v, want %v", got.ID, err, j.ID)
		}
		if got, err := amy.client.Release(ctx, j.ID, Change{}); err != nil || got.ID != j.ID {
			t.Errorf("Release = %v, %v, want %v", got.ID, err, j.ID)
		}
		got, err = amy.client.Cancel(ctx, j.ID, Change{Reason: "not needed"})
		if err != nil || got.State != job.Cancelled {
			t.Errorf("Cancel = %s, %v, want CANCELLED", got.State, err)
		}
		want := []string{"hold " + string(j.ID) + " false: later", "hold " + string(j.ID) + " true: ", "cancel " + string(j.ID) + ": not needed"}
		if !slices.Equal(ben.asked, want) || len(amy.asked) != 0 {
			t.Errorf("ben was asked %q, want %q; amy was asked %q, want nothing", ben.asked, want, amy.asked)
		}
		// Other users see the job but not its secrets, whichever daemon they use.
		amy.server.auth.httpUser, ben.server.auth.httpUser = "eve", "eve"
		for _, d := range c.daemons {
			got, err := d.client.Job(ctx, j.ID)
			if err != nil || len(got.Spec.Env) != 0 || len(got.Spec.Command) != 0 || got.Spec.Name == "" {
				t.Errorf("at %s eve sees %v, %v, want the name without secrets", d.name, got.Spec.Env, err)
			}
		}
		if amy.jobs[j.ID].Spec.Env != nil || ben.jobs[j.ID].Spec.Env["SECRET"] != "s3cret" {
			t.Error("hiding a secret changed the job")
		}
	})
}

// The server ignores a header in which a client claims to be another user.
func TestClientCannotClaimToBeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.server.auth.httpUser = "eve"
		for _, j := range []job.Job{amy.put(amy.newJob(1)), ben.put(ben.newJob(1))} {
			status, _, body := amy.raw(t, "POST", "/v1/jobs/"+string(j.ID)+"/cancel", `{}`, headerUser, "amy")
			if status != http.StatusForbidden {
				t.Errorf("job %s: got %d %s, want 403", j.ID, status, body)
			}
		}
		if len(amy.asked)+len(ben.asked) != 0 {
			t.Errorf("got requests %v and %v, want none", amy.asked, ben.asked)
		}
	})
}

// Two daemons that each believe the other to be the owner do not forward a request for ever.
func TestRequestIsForwardedOnceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.forwarded = func(job.Group) (job.Peer, bool) { return ben.peer, false }
		ben.forwarded = func(job.Group) (job.Peer, bool) { return amy.peer, false }
		_, err := amy.client.Job(t.Context(), job.NewID(9, 9))
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "does not own it") {
			t.Errorf("Job = %v, want ErrUnavailable: it does not own it", err)
		}
	})
}

func TestSilentOwnerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		close(ben.silent)
		cal.back.Close()
		for _, d := range []*daemon{ben, cal} {
			id := job.NewID(d.group, 1)
			began := time.Now()
			_, err := amy.client.Job(t.Context(), id)
			took := time.Since(began)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "owner "+d.name+" of job "+string(id)+" does not answer") || took > forwardRead {
				t.Errorf("after %s: got %v, want ErrUnavailable with the silent owner", took, err)
			}
		}
	})
}

// A guest, which can have no jobs, is not asked for any, so that a silent guest neither delays a listing nor makes it
// partial.
func TestSilentGuestSpoilsNoListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.newJob(1)
		ben.put(j)
		cal.roles = []string{"worker"}
		close(cal.silent)
		for _, fresh := range []bool{false, true} {
			began := time.Now()
			l, err := amy.client.Jobs(t.Context(), JobFilter{Fresh: fresh})
			if took := time.Since(began); err != nil || len(l.Items) != 1 || len(l.Partial) > 0 || took >= fanWait {
				t.Errorf("after %s: got %v without %v, %v, want one job at once, of all members", took, l.Items, l.Partial, err)
			}
		}
		cal.roles = nil // not known
		if l, err := amy.client.Jobs(t.Context(), JobFilter{Fresh: true}); err != nil || !slices.Equal(l.Partial, []string{"cal"}) {
			t.Errorf("of a member whose roles are not known: got a listing without %v, %v, want without cal", l.Partial, err)
		}
	})
}

// A listing takes no longer than its bound and names members that did not answer.
func TestListingNamesSilentMembersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan", "eli")
		amy, ben, cal, dan, eli := c.daemons[0], c.daemons[1], c.daemons[2], c.daemons[3], c.daemons[4]
		for i, d := range c.daemons {
			d.put(d.newJob(uint64(10 + i)))
		}
		close(cal.silent)
		dan.back.Close()
		amy.states[eli.peer] = NodeLost
		ctx := t.Context()
		began := time.Now()
		l, err := amy.client.Jobs(ctx, JobFilter{})
		if took := time.Since(began); err != nil || took != fanWait {
			t.Fatalf("Jobs took %s, %v, want fanWait", took, err)
		}
		if len(l.Items) != 2 || l.Items[0].Owner != ben.peer || l.Items[1].Owner != amy.peer || !slices.Equal(l.Partial, []string{"cal", "dan", "eli"}) {
			t.Errorf("Jobs = %v, partial %v, want those of ben and amy, without cal, dan and eli", l.Items, l.Partial)
		}
		if l.Items[0].Spec != nil {
			t.Error("a listing has job files")
		}
		nodes, err := amy.client.Nodes(ctx)
		if err != nil || len(nodes.Items) != 5 || !slices.Equal(nodes.Partial, l.Partial) {
			t.Fatalf("Nodes = %+v, %v, want 5 nodes and the same silent members", nodes, err)
		}
		var states []NodeState
		for _, n := range nodes.Items {
			states = append(states, n.State)
			if n.CPUs != 16 || len(n.GPUs) != 1 {
				t.Errorf("node %s: got %+v, want 16 CPUs and one GPU", n.Name, n)
			}
		}
		if !slices.Equal(states, []NodeState{NodeReady, NodeReady, NodeSuspect, NodeSuspect, NodeLost}) {
			t.Errorf("got states %v, want two ready, two suspect and one lost", states)
		}
		for free, want := range map[bool]int{false: 5, true: 2} {
			if g, err := amy.client.GPUs(ctx, free); err != nil || len(g.Items) != want {
				t.Errorf("GPUs(%v) = %d, %v; want %d", free, len(g.Items), err, want)
			}
		}
		s, err := amy.client.Stats(ctx)
		if err != nil || s.Nodes[NodeReady] != 2 || s.Nodes[NodeSuspect] != 2 || s.Nodes[NodeLost] != 1 || s.Jobs[job.Pending] != 2 ||
			s.GPUs.Total != 2 || s.GPUs.Free != 2 || *s.GPUs.Held != 0 || s.Models["h100-80gb"].Total != 2 || s.Models["h100-80gb"].Free != 2 || s.CPUs != (Amount{32, 16}) || len(s.Partial) != 3 {
			t.Errorf("Stats = %+v, %v, want the sums of two nodes that answer", s, err)
		}
	})
}

func TestNodeIsFoundByNameOrID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		close(cal.silent)
		for _, name := range []string{"ben", string(ben.peer), ben.peer.Short()} {
			n, err := amy.client.Node(t.Context(), name)
			if err != nil || n.ID != ben.peer || n.State != NodeReady || n.GPUs[0].Utilization != 7 {
				t.Errorf("Node(%s) = %+v, %v, want ben, ready", name, n, err)
			}
		}
		if n, err := amy.client.Node(t.Context(), "amy"); err != nil || n.ID != amy.peer {
			t.Errorf("Node(amy) = %+v, %v, want amy", n, err)
		}
		began := time.Now()
		if n, err := amy.client.Node(t.Context(), "cal"); err != nil || n.State != NodeSuspect || n.CPUs != 16 || n.Free.CPUs != 0 || n.Running != nil || n.Detail == "" || time.Since(began) != fanWait {
			t.Errorf("Node(cal) = %+v, %v, want a suspect node after fanWait", n, err)
		}
		ben.name = "amy"
		if _, err := amy.client.Node(t.Context(), "amy"); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), string(ben.peer)) {
			t.Errorf("two nodes with one name: got %v, want ErrBad with their IDs", err)
		}
	})
}

func TestFiltersSelectJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		var all []job.ID
		for i := range 10 {
			d := c.daemons[i%2]
			j := d.newJob(uint64(i))
			if i >= 8 {
				j.User = "eve"
			}
			if i == 4 {
				j = running(j, ben)
			}
			all = append([]job.ID{d.put(j).ID}, all...)
		}
		ids := func(f JobFilter) string {
			l, err := amy.client.Jobs(t.Context(), f)
			if err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			var got []job.ID
			for _, j := range l.Items {
				got = append(got, j.ID)
			}
			return fmt.Sprint(got)
		}
		for name, c := range map[string]struct {
			f    JobFilter
			want []job.ID
		}{
			"all":     {JobFilter{}, all},
			"state":   {JobFilter{States: []job.State{job.Running, job.Failed}}, []job.ID{all[5]}},
			"user":    {JobFilter{User: "eve"}, all[:2]},
			"mine":    {JobFilter{Mine: true}, all[2:]},
			"last":    {JobFilter{Last: true}, all[2:3]},
			"last of": {JobFilter{Last: true, User: "eve"}, all[:1]},
			"name":    {JobFilter{Name: "job-[34]"}, []job.ID{all[5], all[6]}},
			"prefix":  {JobFilter{Prefix: string(all[7][:10])}, []job.ID{all[7]}},
			"limit":   {JobFilter{Limit: 3}, all[:3]},
		} {
			if got := ids(c.f); got != fmt.Sprint(c.want) {
				t.Errorf("%s: got %s, want %v", name, got, c.want)
			}
		}
		var paged []job.ID
		for f := (JobFilter{Limit: 3}); ; {
			l, err := amy.client.Jobs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range l.Items {
				paged = append(paged, j.ID)
			}
			if f.Cursor = l.Next; f.Cursor == "" {
				break
			}
		}
		if !slices.Equal(paged, all) {
			t.Errorf("pages: got %v, want %v", paged, all)
		}
	})
}

func TestResolveFindsJobsByIDPrefixAndWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		a := amy.put(amy.newJob(0xabcdef))
		b := ben.put(ben.newJob(0x3_8000_0000_0000))
		over := ended(running(ben.newJob(0x3_9000_0000_0000), ben), job.Exit{State: job.Failed, Code: 1})
		over.Submitted = b.Submitted.Add(time.Hour)
		ben.put(over)
		ctx := t.Context()
		for text, want := range map[string][]job.ID{
			string(a.ID): {a.ID}, string(b.ID): {b.ID}, string(b.ID)[:9]: {b.ID}, string(b.ID)[:2]: {b.ID}, string(a.ID) + ".0": {a.ID}, "last": {over.ID},
			"all": {a.ID, b.ID},
		} {
			jobs, _, err := amy.client.Resolve(ctx, text)
			var got []job.ID
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Resolve(%s) = %v, %v; want %v", text, got, err, want)
			}
		}
		for text, want := range map[string]error{"zzzz": ErrNotFound, "w": ErrBad, string(a.ID) + ".5": ErrNotFound, "IL": ErrNotFound, "IL.3": ErrNotFound, "last.5-1": ErrBad, "": ErrBad} {
			if _, _, err := amy.client.Resolve(ctx, text); !errors.Is(err, want) {
				t.Errorf("Resolve(%q) = %v, want %v", text, err, want)
			}
		}
		close(ben.silent)
		if _, _, err := amy.client.Resolve(ctx, "zzzz"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "ben") {
			t.Errorf("with ben silent: got %v, want ErrNotFound with ben", err)
		}
		start := time.Now()
		jobs, _, err := amy.client.Resolve(ctx, "all")
		if x, ok := errors.AsType[*IncompleteError](err); !ok || !errors.Is(err, ErrUnavailable) || !slices.Equal(x.Silent, []string{"ben"}) {
			t.Errorf("all with ben silent: got %v, want IncompleteError with ben", err)
		}
		if len(jobs) == 0 || slices.ContainsFunc(jobs, func(j Job) bool { return j.Owner != amy.peer }) {
			t.Errorf("all with ben silent: got %d jobs, want those of amy's daemon", len(jobs))
		}
		if d := time.Since(start); d > fanTotal {
			t.Errorf("all with ben silent took %s, want at most %s", d, fanTotal)
		}
	})
}

// The listener for daemons serves them the data of this daemon, and no more than they need.
func TestDaemonsGetOnlyDataOfThisDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.server.auth.operators = []string{"amy"}
		client := &Client{http: amy.server.daemons.http, base: "http://" + string(ben.peer), where: "ben"}
		for _, path := range []string{"/v1/invitations", "/v1/join", "/v1/jobs", "/v1/peers/" + string(amy.peer) + "/revoke"} {
			err := client.callWith(t.Context(), http.MethodPost, path, nil, http.Header{headerUser: {"amy"}}, map[string]any{}, nil)
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("POST %s by a daemon: got %v, want ErrNotFound", path, err)
			}
		}
		err := client.callWith(t.Context(), http.MethodGet, "/v1/jobs", url.Values{}, http.Header{headerUser: {"a:b"}}, nil, nil)
		if !errors.Is(err, ErrBad) {
			t.Errorf("a user's name with a colon: got %v, want ErrBad", err)
		}
		ben.put(ben.newJob(1))
		amy.put(amy.newJob(1))
		l, err := client.Jobs(t.Context(), JobFilter{})
		if err != nil || len(l.Items) != 1 || len(l.Partial) != 0 {
			t.Errorf("the answer to another daemon: got %+v, %v, want one job and nothing partial", l, err)
		}
	})
}
