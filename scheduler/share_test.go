package scheduler

// The past use of users decides between equal tasks: its cost, and how far a host can falsify it.

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/shares"
	"github.com/musterhq/muster/scheduler/step"
)

// newSharing is newBench with weights of fair share.
func newSharing(b testing.TB, workers, cpus int, w fairshare.Weights) *bench {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed, cfg.Shares = "w0", 7, 1, w
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart, index: 1}
	x.step(step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	x.addHosts(workers, cpus)
	if b, ok := b.(*testing.B); ok {
		b.ReportAllocs()
	}
	return x
}

// submitFor submits a job for a user that needs this many CPUs.
func (x *bench) submitFor(user string, cpus int) {
	x.tok++
	s := job.DefaultSpec()
	s.Command, s.Resources.CPUs = []string{"true"}, cpus
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: user, Spec: s}})
}

// uses has a host report what users have used.
func (x *bench) uses(host int, cpus int, used map[string]float64) {
	u := &contract.Usage{}
	for i := range len(used) {
		name := fmt.Sprintf("user%05d", i)
		u.Entries = append(u.Entries, fairshare.Entry{Account: fairshare.Account{User: name}, Used: fairshare.Use{CPU: used[name]}})
	}
	x.step(step.FromWorker{Peer: job.Peer(fmt.Sprintf("w%d", host)), Msg: contract.Availability{Seq: uint64(x.tok), Free: contract.Free{CPUs: cpus, Memory: benchMemory}, Usage: u}})
}

// A host that lies is believed only up to what it could have delivered.
func TestReportedUseIsLimitedToWhatAHostCanDeliver(t *testing.T) {
	w := fairshare.Weights{HalfLife: time.Hour}
	x := newSharing(t, 2, 8, w)
	x.uses(0, 0, map[string]float64{"user00000": contract.MaxUsed, "user00001": contract.MaxUsed})
	x.uses(1, 0, map[string]float64{"user00000": 100})
	most := 8 * fairshare.Forever(w.HalfLife)
	total := 0.0
	for _, user := range []string{"user00000", "user00001"} {
		total += x.core.pending.shares.Used(fairshare.Account{User: user}).CPU
	}
	if total > 1.001*most+101 || total < most {
		t.Errorf("%.0f CPU-seconds are believed, of at most %.0f, want at most %v and at least %v", total, most, 1.001*most+101, most)
	}
	for i := range 1000 { // each report replaces the one before, and decays
		x.now = x.now.Add(20 * time.Hour)
		x.uses(0, 0, map[string]float64{"user00000": float64(i)})
	}
	s := x.core.pending.shares
	if accounts, hosts := s.Size(); accounts != 1 || hosts != 2 {
		t.Errorf("%d accounts of %d hosts, want 1 and 2", accounts, hosts)
	}
	s.Refresh(func() {})
	if got := s.Used(fairshare.Account{User: "user00000"}).CPU; got < 990 || got > 1010 {
		t.Errorf("999 CPU-seconds were told, %.1f are counted, want at least 990 and at most 1010", got)
	}
}

// The number of accounts is bounded, whatever hosts report.
func TestAccountsAreBounded(t *testing.T) {
	x := newSharing(t, 300, 8, fairshare.Weights{HalfLife: time.Hour})
	for h := range 300 {
		u := &contract.Usage{}
		for i := range contract.MaxUsage {
			u.Entries = append(u.Entries, fairshare.Entry{Account: fairshare.Account{User: fmt.Sprint(h, "-", i)}, Used: fairshare.Use{CPU: 1}})
		}
		x.step(step.FromWorker{Peer: job.Peer(fmt.Sprintf("w%d", h)), Msg: contract.Availability{Seq: 1, Usage: u}})
	}
	if n, _ := x.core.pending.shares.Size(); n != shares.MaxAccounts {
		t.Errorf("%d accounts, want %d", n, shares.MaxAccounts)
	}
}

// The order of users changes only with a snapshot, and the one who has used least is first then. A task that queues at
// hosts keeps its place.
func TestOrderOfUsersChangesWithASnapshotOnly(t *testing.T) {
	x := newSharing(t, 1, 8, fairshare.Weights{HalfLife: 24 * time.Hour})
	x.uses(0, 0, map[string]float64{"user00000": 5000, "user00001": 10})
	for range 20 {
		x.submitFor("user00000", 8)
	}
	x.submitFor("user00001", 8)
	first := func() string {
		at, _ := x.core.pending.parked.next(nil, limits{queues: true, most: fleet.Footprint{CPUs: 1 << 20, Memory: 1 << 60}}, new(1000), func(*task) bool { return true })
		if at == nil {
			return ""
		}
		return at.e.job.User
	}
	if len(x.core.pending.shapes) != 2 {
		t.Fatal("tasks of two users share a shape, want 2 shapes")
	}
	// The second user has found a place beside the eight tasks of the first.
	queued := map[string]int{}
	for _, c := range x.core.pending.queued.chunks {
		for _, w := range c.waits {
			queued[w.task.e.job.User]++
		}
	}
	if queued["user00001"] != 1 || queued["user00000"] != 8 {
		t.Errorf(`queued: %v, want ["user00001"] 1 and ["user00000"] 8`, queued)
	}
	for range 3 {
		x.submitFor("user00001", 8)
	}
	if got := first(); got != "user00001" {
		t.Errorf(`%q is first, want "user00001"`, got)
	}
	x.now = x.now.Add(time.Second)
	x.uses(0, 0, map[string]float64{"user00000": 5000, "user00001": 10000})
	if got := first(); got != "user00001" {
		t.Errorf(`%q is first although the snapshot is not old, want "user00001"`, got)
	}
	x.now = x.now.Add(time.Minute)
	x.step()
	if got := first(); got != "user00000" {
		t.Errorf(`%q is first after the snapshot, want "user00000"`, got)
	}
	for _, g := range x.core.pending.shapes {
		if g.account.User == "user00001" {
			why := x.core.views.waitReason(g.queue.first())
			if want := "behind users who have used less of their share: user00000; see muster users"; why.Word != job.ReasonPriority || why.Detail != want {
				t.Errorf("%s, want Word %v and Detail %v", why, job.ReasonPriority, want)
			}
		}
	}
}

// A user who has used less fills the places of one kind. Another user has an older task of that kind and a younger task
// of another kind. The older one is offered first, whenever a place is free. Otherwise the younger ones of the other
// kind would run one after the other, and the use of this user would never be the least.
func TestOlderTaskOfAUserIsOfferedFirst(t *testing.T) {
	const heavy, light = "user00000", "user00001"
	x := newSharing(t, 1, 8, fairshare.Weights{HalfLife: 24 * time.Hour})
	x.uses(0, 0, map[string]float64{heavy: 5000, light: 10})
	for range 2 * fleet.MaxQueued {
		x.submitFor(light, 1)
	}
	for range 100 {
		x.submitFor(heavy, 1)
		x.submitFor(heavy, 2)
		x.submitFor(light, 1)
	}
	starts := 0
	for range 20 { // each time the host takes the oldest known task of the heavy user
		var oldest *offer
		for _, o := range x.core.offers.byID {
			if o.dispatch.task.e.job.User == heavy && (oldest == nil || rank(o.dispatch.task, oldest.dispatch.task) < 0) {
				oldest = o
			}
		}
		if oldest == nil {
			t.Fatal("no task of the user is offered")
		}
		took := oldest.dispatch.task
		for _, e := range x.core.entries.byID {
			if task := e.task(0); e.job.User == heavy && task.phase <= offering && task != took && task.e.born.Before(took.e.born) {
				t.Fatalf("after %d starts a task that needs %d CPUs goes before an older task of its user that needs %d",
					starts, took.shape.Need.CPUs, task.shape.Need.CPUs)
			}
		}
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: oldest.id, Attempt: job.Attempt{Job: took.e.job.ID, N: 1}, Group: 7, Session: 1}})
		starts++
	}
}

// newCrowdedCluster makes a core with so many users with ten waiting jobs each, and full hosts with full queues.
func newCrowdedCluster(b *testing.B, users int) (*bench, map[string]float64) {
	x := newSharing(b, 100, 0, fairshare.Weights{HalfLife: 24 * time.Hour})
	for h := range 100 {
		x.step(step.FromWorker{Peer: job.Peer(fmt.Sprintf("w%d", h)), Msg: contract.Hello{
			Profile: contract.Profile{Name: fmt.Sprint(h), Store: "s", CPUs: 64, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true},
		}})
	}
	used := map[string]float64{}
	for i := range min(users, contract.MaxUsage) {
		used[fmt.Sprintf("user%05d", i)] = float64(i * 7919 % 1000)
	}
	for i := range 10 * users {
		x.submitFor(fmt.Sprintf("user%05d", i%users), 1)
	}
	x.sent = nil
	return x, used
}

// BenchmarkSnapshot takes a new snapshot of what users have used, and sorts all waiting tasks again. This happens at
// most every 30 s.
func BenchmarkSnapshot(b *testing.B) {
	for _, users := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			x, used := newCrowdedCluster(b, users)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			n := 0
			for b.Loop() {
				n++
				x.now = x.now.Add(31 * time.Second)
				for name := range used {
					used[name] = float64((int(used[name]) + 331*n) % 1000)
				}
				x.uses(n%100, 0, used)
				x.sent = nil
			}
			b.ReportMetric(float64(m.HeapAlloc)/float64(10*users), "heap-B/job")
		})
	}
}

// BenchmarkFreedAmongUsers gives a host capacity for one task while tasks of all users wait.
func BenchmarkFreedAmongUsers(b *testing.B) {
	for _, users := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			x, used := newCrowdedCluster(b, users)
			x.uses(0, 0, used)
			n := 0
			for b.Loop() {
				n++
				x.step(step.FromWorker{Peer: job.Peer(fmt.Sprintf("w%d", n%100)), Msg: contract.Availability{Seq: uint64(n + 1e6), Free: contract.Free{CPUs: n / 100 % 2, Memory: benchMemory}}})
				x.sent = nil
			}
		})
	}
}
