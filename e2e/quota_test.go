//go:build e2e

package e2e

// A host's limits on what one user may hold.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func TestPerUserLimitMakesJobsWait(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "limits:\n  per_user: {gpus: 0, tasks: 3}\n  users:\n    " + me.Username + ": {gpus: 2}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cat := newDaemon(t, "cat", "--config", file, "--gpus", "sim:4xH100-80GB", "--cpus", "8").start()
	g := newGate(t)
	first := cat.ok(append([]string{"submit", "-G", "2", "--"}, g.script("exit 0")...)...)
	cat.untilState(first, "RUNNING")
	second := cat.ok("submit", "-G", "1", "--", "true")
	cat.until(second, "PENDING for the quota", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Quota" })
	want := "user " + me.Username + " holds 2 of at most 2 gpus"
	if out := cat.ok("why", second); !strings.Contains(out, want) {
		t.Errorf("why: want the limit, got\n%s", out)
	}
	free := cat.ok("submit", "--", "true") // it needs no GPU, and the user may run another task
	cat.untilState(free, "SUCCEEDED")
	var users api.Listing[api.User]
	if err := json.Unmarshal([]byte(cat.ok("users", "--json")), &users); err != nil || len(users.Items) != 1 {
		t.Fatalf("users: %v, got %+v, want one", err, users)
	}
	if l := users.Items[0].Limits; len(l) != 1 || *l[0].Tasks != 3 || *l[0].GPUs != 2 || l[0].CPUs != nil || l[0].Memory != nil || l[0].Nodes != 1 {
		t.Errorf("limits: got %+v, want 3 tasks and 2 GPUs", l)
	}
	if out := cat.ok("users"); !strings.Contains(out, "tasks=3 gpus=2 on 1 node") {
		t.Errorf("users: want the limits, got\n%s", out)
	}
	g.open()
	cat.untilState(second, "SUCCEEDED")
	if out := cat.ok("config", "show", "--config", file); !strings.Contains(out, "per_user.tasks=3") {
		t.Errorf("config show: want the limit, got\n%s", out)
	}
}

// TestLimitThatCanNeverBeMetIsARefusal checks that a job that can never start under a limit is refused with the limit's
// name, and that a job that waits when the limit is lowered says so, until the limit is raised again.
func TestLimitThatCanNeverBeMetIsARefusal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	set := func(limits string) {
		t.Helper()
		write(t, file, "limits:\n  per_user: {"+limits+"}\n")
	}
	const usual = "gpus: 4, cpus: 6, memory: 4GiB, pending_jobs: 20"
	set(usual)
	cat := newDaemon(t, "cat", "--config", file, "--gpus", "sim:8xH100-80GB", "--cpus", "8", "--memory", "8GiB").start()
	for limit, args := range map[string][]string{
		"at most 4 gpus there (limits.per_user.gpus), 5 wanted":           {"-G", "5"},
		"at most 4 gpus there (limits.per_user.gpus), 6 wanted":           {"-G", "6", "-a", "0-3"},
		"at most 6 cpus there (limits.per_user.cpus), 7 wanted":           {"-c", "7"},
		"at most 4GiB memory there (limits.per_user.memory), 5GiB wanted": {"--mem", "5GiB"},
		"at most 4 gpus there (limits.per_user.gpus), 8 wanted":           {"--exclusive"},
	} {
		args = append(args, "--", "true")
		words := []string{"nothing in the cluster could ever run this", limit, "ask an operator of a node to raise the limit"}
		for _, verb := range []string{"submit", "run"} {
			if r := cat.fails(3, words, append([]string{verb}, args...)...); strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
				t.Errorf("%s %q: want one line, got\n%s%s", verb, args, r.stderr, r.stdout)
			}
		}
		if r := cat.muster(append([]string{"submit", "--dry-run"}, args...)...); r.code != 3 || !strings.Contains(r.stdout, limit) || strings.Join(strings.Fields(r.stdout)[len(strings.Fields(r.stdout))-3:], " ") != "now no node" {
			t.Errorf("a dry run of %q: got %+v, want 3 with the limit and no node", args, r)
		}
	}
	words := []string{"30 jobs", "20 are the most that may wait (limits.per_user.pending_jobs); split the job"}
	cat.user = ordinary
	cat.fails(3, words, "submit", "-a", "0-1999", "--", "true")
	cat.fails(3, words, "submit", "--dry-run", "-a", "0-1999", "--", "true")
	cat.user = nil

	g := newGate(t)
	first := cat.ok(append([]string{"submit", "-G", "4", "--"}, g.script("exit 0")...)...)
	cat.untilState(first, "RUNNING")
	second := cat.ok("submit", "-G", "4", "--", "true")
	cat.until(second, "PENDING for the quota", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Quota" })
	reload := func(limits string) {
		from := cat.logged()
		set(limits)
		cat.signal(syscall.SIGHUP)
		cat.waitLog(from, "reloaded", "changed=[limits]")
	}
	reload("gpus: 3")
	impossible := func(j api.Job) bool {
		return j.State == "PENDING" && j.Reason == "NoMatch" && strings.Contains(j.ReasonDetail, "at most 3 gpus there (limits.per_user.gpus), 4 wanted")
	}
	cat.until(second, "impossible", impossible)
	if out := cat.ok("why", second); !strings.Contains(out, "limits of user") || strings.Contains(out, "\nnow") {
		t.Errorf("why: want the limit, got\n%s", out)
	}
	g.open()
	cat.untilState(first, "SUCCEEDED")
	cat.stop()
	cat.start()
	cat.until(second, "impossible after a restart", impossible)
	reload(usual)
	cat.untilState(second, "SUCCEEDED")
}

// oneTaskEach writes a configuration that allows each user one task at a time on a host.
func oneTaskEach(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("limits:\n  per_user: {tasks: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// overQuota waits until the jobs wait for their user's quota, and watches them for a while. A job that is offered
// repeatedly would have another state or reason for a moment.
func (d *daemon) overQuota(ids ...string) {
	d.t.Helper()
	look := func() string {
		for _, id := range ids {
			if j := d.show(id); j.State != "PENDING" || j.Reason != "Quota" {
				return fmt.Sprintf("job %s is %s for %s: %s", id, j.State, j.Reason, j.ReasonDetail)
			}
		}
		return ""
	}
	untilRight(d.t, patience, look)
	checkFor(d.t, 4*time.Second, look)
}

// TestJobStartsWhenQuotaAllows checks that a job that waits for its user's quota starts as soon as another job of the
// user ends.
func TestJobStartsWhenQuotaAllows(t *testing.T) {
	amy := newDaemon(t, "amy", "--no-worker").start()
	newDaemon(t, "cat", "--config", oneTaskEach(t), "--gpus", "none", "--cpus", "8").start(amy.invite().flags()...)
	amy.untilNodes(2)
	var ids []string
	var gates []gate
	for i := range 3 {
		g := newGate(t)
		id := amy.ok(append([]string{"submit", "--"}, g.script("exit 0")...)...)
		if i == 0 {
			amy.untilState(id, "RUNNING")
		}
		ids, gates = append(ids, id), append(gates, g)
	}
	amy.overQuota(ids[1:]...)
	for i, id := range ids {
		gates[i].open()
		ended := amy.untilState(id, "SUCCEEDED").Tasks[0].EndedAt
		if i+1 == len(ids) {
			break
		}
		if gap := amy.untilState(ids[i+1], "RUNNING").Tasks[0].StartedAt.Sub(*ended); gap >= time.Second {
			t.Errorf("job %d started %s after the one before it ended, want less than 1 s", i+2, gap)
		}
	}
}

// TestQuotaOnManyHostsCausesFewOffers checks that a task that many hosts refuse for its user's quota is not offered to them
// repeatedly.
func TestQuotaOnManyHostsCausesFewOffers(t *testing.T) {
	c := newCrowd(t, 20, "--config", oneTaskEach(t))
	c.load()
	waits := c.owner.ok("submit", "--", "true")
	c.owner.overQuota(waits)
	c.end()
	c.owner.untilState(waits, "SUCCEEDED")
}

// TestLimitOverTheClusterHoldsAtAllDaemons checks that a user who submits at three daemons at once has the limit once,
// whatever they offer, and that the end of a job at one of them starts a job at another.
func TestLimitOverTheClusterHoldsAtAllDaemons(t *testing.T) {
	asRoot(t)
	limits := []string{"--gpus", "sim:4xH100-80GB", "--cpus", "8", "--limits", "per_user.cluster_gpus=4", "--limits", "per_user.max_time=2h"}
	amy := newDaemon(t, "amy", limits...).start()
	inv := amy.invite("--uses", "2")
	ben := newDaemon(t, "ben", limits...).start(inv.flags()...)
	cat := newDaemon(t, "cat", limits...).start(inv.flags()...)
	all := []*daemon{amy, ben, cat}
	for _, d := range all {
		d.untilNodes(3)
	}
	var ids []string
	var mu sync.Mutex
	var submits sync.WaitGroup
	for _, d := range all {
		for range 4 {
			submits.Go(func() {
				id := d.ok("submit", "-G", "1", "--", "sleep", "1000")
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, id)
			})
		}
	}
	submits.Wait()
	states := func() map[job.State]int {
		n := map[job.State]int{}
		for _, id := range ids {
			n[amy.show(id).State]++
		}
		return n
	}
	untilRight(t, patience, func() string {
		if n := states(); n[job.Running] != 4 || n[job.Pending] != 8 {
			return fmt.Sprintf("states %v, want 4 RUNNING and 8 PENDING", n)
		}
		return ""
	})
	checkFor(t, 5*time.Second, func() string {
		if n := states(); n[job.Running] != 4 || n[job.Pending] != 8 {
			return fmt.Sprintf("states %v, want 4 RUNNING and 8 PENDING", n)
		}
		return ""
	})
	const why = "user root holds 4 of at most 4 gpus in the cluster (limits.per_user.cluster_gpus)"
	untilRight(t, patience, func() string {
		for _, id := range ids {
			if j := amy.show(id); j.State == job.Pending && (j.Reason != "Quota" || !strings.HasPrefix(j.ReasonDetail, why)) {
				return fmt.Sprintf("job %s waits for %s: %s", id, j.Reason, j.ReasonDetail)
			}
		}
		return ""
	})
	for _, d := range all { // each knows what the others have started
		if out := d.ok("submit", "--dry-run", "-G", "1", "--", "true"); !strings.Contains(out, why) {
			t.Errorf("a dry run at %s: want the limit, got\n%s", d.name, out)
		}
	}
	ben.fails(3, []string{"user root may hold at most 4 gpus in the cluster (limits.per_user.cluster_gpus), 6 wanted"}, "submit", "-N", "3", "-G", "6", "--", "true")
	ben.fails(3, []string{"a task of user root may run for 2h at most (limits.per_user.max_time), 3h wanted"}, "submit", "--dry-run", "-t", "3h", "--", "true")
	if out := ben.ok("show", ids[0]); !strings.Contains(out, "at most 2h (the default)") {
		t.Errorf("show: want the default limit, got\n%s", out)
	}
	for _, d := range all {
		if out := d.ok("users", "nobody"); !strings.Contains(out, "max_time=2h on each of 3 nodes, cluster_gpus=4 on all nodes together, as 3 of them say") || strings.Contains(out, "root") {
			t.Errorf("users: want the limits of nobody alone, got\n%s", out)
		}
	}
	for ended := map[string]bool{}; len(ended) < len(ids); { // four by four
		untilRight(t, patience, func() string {
			if n := states(); n[job.Running] != 4 || n[job.Pending] != len(ids)-4-len(ended) {
				return fmt.Sprintf("states %v after the end of %d jobs", n, len(ended))
			}
			return ""
		})
		for _, id := range ids {
			if amy.show(id).State == job.Running {
				ended[id] = true
			}
		}
		for id := range ended {
			if amy.show(id).State == job.Running {
				amy.ok("cancel", id)
				amy.untilState(id, "CANCELLED")
			}
		}
	}
}
