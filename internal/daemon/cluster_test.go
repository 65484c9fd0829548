package daemon

// Clusters on a simulated network and a virtual clock. Hosts, DHT, gossip, sessions, schedulers and workers are the
// real ones, connected as in a daemon. Only the disk and the processes are fakes.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/gpu/simgpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/p2ptest"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/scheduler"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/loop"
)

// virtual is one daemon of a simulated cluster.
type virtual struct {
	host   *p2p.Host
	table  *dht.Table
	router *router
	sched  *schedulerloop.Loop
	work   *loop.Loop
	found  finder // the scheduler's finder
}

// shape is the configuration of a simulated cluster.
type shape struct {
	gpus      func(i int) string // spec of host i's simulated GPUs, or empty
	noGossip  bool               // no announcements
	noDHT     bool               // every query finds nothing
	neighbour int                // neighbours of each daemon: the first members that it meets
}

// memoryJournal is a fake journal that commits at once.
type memoryJournal struct {
	mu      sync.Mutex
	index   uint64
	rows    statetest.Disk
	deliver func(job.Committed)
}

var memoryEpoch = job.Epoch{Generation: 1, Term: 2}

func (m *memoryJournal) lead() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index++
	m.deliver(job.Committed{Index: m.index, Epoch: memoryEpoch, Lead: true})
}

func (m *memoryJournal) Propose(records ...job.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index++
	m.deliver(job.Committed{Index: m.index, Epoch: memoryEpoch, Records: records})
	return nil
}

func (m *memoryJournal) Raise(job.Epoch) {}

func (m *memoryJournal) ReadIndex(done func(job.Epoch, error)) { done(memoryEpoch, nil) }

func (m *memoryJournal) Save(_ uint64, rows []job.Row, gone []job.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows.Save(rows, gone)
	return nil
}

func (m *memoryJournal) Rows(id job.ID, from, to string) ([]job.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows.Rows(id, from, to), nil
}

func (m *memoryJournal) File(id job.ID) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows.File(id), nil
}

// memoryLedger keeps nothing. When it is read, it has the owners of these groups, so that they need no proof, which
// takes a tenth of a second to compute.
type memoryLedger map[job.Group]job.Peer

func (memoryLedger) Save([]contract.Record, []job.Attempt, []contract.Claim, bool) error { return nil }

func (l memoryLedger) Load() (_ []contract.Record, claims []contract.Claim, _ error) {
	for g, p := range l {
		claims = append(claims, contract.Claim{Group: g, Owner: p})
	}
	return nil, claims, nil
}

// instant is a driver whose tasks succeed after a second.
type instant struct{ tell func(driver.Event) }

func (d *instant) Start(t driver.Task) error {
	time.AfterFunc(time.Millisecond, func() {
		d.tell(driver.Event{Attempt: t.Attempt, Kind: driver.Started, PID: 1})
		time.AfterFunc(time.Second, func() {
			now := time.Now()
			d.tell(driver.Event{Attempt: t.Attempt, Kind: driver.Exited, Exit: job.Exit{State: job.Succeeded, Started: true, Began: now, Ended: now}})
		})
	})
	return nil
}
func (d *instant) Stop(job.Attempt, time.Duration, string) error    { return nil }
func (d *instant) Signal(job.Attempt, int) error                    { return nil }
func (d *instant) Extend(map[job.Attempt]leaseclock.BootTime) error { return nil }
func (d *instant) Forget(job.Attempt) error                         { return nil }
func (d *instant) NeverBegun(job.Attempt) bool                      { return false }

func (d *instant) Adopt(context.Context) ([]driver.Event, error) { return nil, nil }

// empty finds and keeps nothing.
type empty struct{}

func (empty) Find(context.Context, string, int) <-chan job.Peer {
	c := make(chan job.Peer)
	close(c)
	return c
}
func (empty) Announce([]step.Want)     {}
func (empty) Put(string, []byte) error { return nil }
func (empty) Delete(string) error      { return nil }
func (empty) Founding(context.Context, job.Peer, job.Group) (job.Founding, error) {
	return job.Founding{}, nil
}
func (empty) Scan(string) (map[string][]byte, error) { return nil, nil }

// unfiltered finds hosts whatever their roles are.
type unfiltered struct {
	finder
	host *p2p.Host
}

func (u unfiltered) Members() []job.Peer {
	return holding{host: u.host, role: p2p.RoleWorker}.Members()
}

// start connects the parts of host i as Node does, and runs them until the test ends.
func start(t *testing.T, nw *p2ptest.Net, i int, s shape) *virtual {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	v := &virtual{host: nw.Hosts[i]}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	profile := contract.Profile{
		Peer: v.host.Peer(), Name: fmt.Sprintf("host%d", i), Version: "test", Store: fmt.Sprintf("%032x", i), CPUs: 8, Memory: 64 << 30,
		Drivers: []string{"exec"}, Worker: true,
	}
	if spec := s.gpus(i); spec != "" {
		d, err := simgpu.Parse(spec, profile.Name)
		must(err)
		profile.GPUs, err = d.List(t.Context())
		must(err)
	}
	tc := dht.DefaultConfig()
	tc.Cluster = v.host.Cluster()
	var err error
	v.table, err = dht.New(tc, v.host.Libp2p(), log)
	must(err)
	v.found = v.table
	if s.noDHT {
		v.found = empty{}
	}
	group := job.Group(i + 1)
	groups, err := newDirectory(v.host.Peer(), homes{{Group: group}}, empty{}, v.found, empty{}, log)
	must(err)
	v.router = &router{
		self: v.host.Peer(), groups: groups, signed: v.host.Grants.Labels, may: v.host.Grants.MayHave,
		onSession: func(job.Peer) {}, departed: newDeparted(), defects: newDefects(log), log: log,
	}
	v.router.sessions, err = session.New(session.DefaultConfig(), guarded{v.host.Libp2p(), v.host}, v.router, log)
	must(err)
	v.router.wants = newWantedSessions(v.host.Peer(), v.router.sessions, log)
	parts := []part{{"dht", v.table.Run}, {"sessions", v.router.sessions.Run}}
	var announce schedulerloop.Announcer = empty{}
	if !s.noGossip {
		called := newCallers(profile, v.router.wants.of(forCallers), func() int { return len(v.host.Members()) })
		gc := gossip.DefaultConfig()
		gc.Cluster = v.host.Cluster()
		topic, err := gossip.New(gc, v.host.Libp2p(), grants{v.host}, called.hear, log)
		must(err)
		announce = newAnnouncements(topic).of(group)
		parts = append(parts, part{"callers", called.run}, part{"gossip", topic.Run})
	}
	driver := &instant{tell: func(e driver.Event) { v.work.Driven(e) }}
	wc := worker.DefaultConfig()
	wc.Profile, wc.Boot, wc.Seed = profile, "boot", uint64(i+1)
	owned := memoryLedger{}
	for i := range nw.Hosts {
		owned[job.Group(i+1)] = nw.Peer(i)
	}
	v.work, err = loop.New(wc, loop.Parts{
		Ledger: owned, Sender: toSchedulers{v.router}, Driver: driver, Adopter: driver,
		Clocks: func() leaseclock.Moment {
			now := time.Now()
			return leaseclock.Moment{Boot: leaseclock.BootTime(now.UnixNano()), Wall: now}
		},
	}, log)
	must(err)
	v.router.work = v.work
	sc := step.DefaultConfig()
	sc.Self, sc.Group, sc.Seed = v.host.Peer(), group, uint64(i+1)
	journal := &memoryJournal{rows: statetest.Disk{}, deliver: func(c job.Committed) { v.sched.Deliver(c) }}
	v.sched, err = schedulerloop.New(sc, scheduler.Saved{}, schedulerloop.Needs{
		Journal: journal, Sessions: toWorkers{v.router, forScheduler}, Finder: unfiltered{v.found, v.host}, Announcer: announce, Parents: newParents(), Allotter: newAllotter(v.host.Peer(), func() []job.Peer { return nil }, log),
	}, log)
	must(err)
	v.router.owners.add(group, &owner{Loop: v.sched})
	parts = append(parts, part{"worker", v.work.Run}, part{"scheduler", v.sched.Run})
	runParts(t, parts)
	journal.lead()
	v.router.openLocal()
	v.table.Advertise(append([]string{groupClass(group)}, contract.Classes(profile)...))
	return v
}

// runParts runs parts of a daemon until the test ends.
func runParts(t *testing.T, parts []part) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- runAll(ctx, time.Minute, slog.New(slog.DiscardHandler), parts) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// cluster starts n daemons. Each knows host 0, and learns of the other hosts through it.
func cluster(t *testing.T, n int, s shape) (*p2ptest.Net, []*virtual) {
	t.Helper()
	nw := p2ptest.New(t, n, p2ptest.Options{})
	var all []*virtual
	for i := range n {
		all = append(all, start(t, nw, i, s))
	}
	for i := 1; i < n; i++ {
		nw.Connect(i, 0)
	}
	for i, v := range all {
		for k := 1; k <= s.neighbour; k++ {
			v.router.wants.want(nw.Peer((i+k)%n), forNeighbours)
		}
	}
	return nw, all
}

func pass(d time.Duration) {
	<-time.NewTimer(d).C // on the virtual clock
	synctest.Wait()
}

func gpuJob(model string, n int) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"true"}
	s.Resources.GPUModel, s.Resources.GPUs = model, n
	return s
}

// runs submits a job at v and returns how long it took to its end, and the host where it ran.
func runs(t *testing.T, v *virtual, spec job.Spec, within time.Duration) (time.Duration, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	spec.Hold = false
	j, err := v.sched.Submit(ctx, job.Submission{User: "u", Spec: spec})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	changes, err := v.sched.Watch(ctx, job.Query{IDs: []job.ID{j.ID}})
	if err != nil {
		t.Fatal(err)
	}
	for j = range changes {
		if j.State() == job.Succeeded {
			return time.Since(began), j.Tasks[0].NodeName
		}
	}
	t.Fatalf("after %s the job is %s: got %s, want SUCCEEDED", within, j.State(), j.Tasks[0].Reason)
	return 0, ""
}

func onLast(n int, spec string) func(int) string {
	return func(i int) string {
		if i >= n {
			return spec
		}
		return ""
	}
}

// Without gossip a scheduler finds workers through the DHT.
func TestJobsFindWorkersWithoutGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := cluster(t, 10, shape{gpus: onLast(8, "sim:4xH100-80GB"), noGossip: true})
		pass(10 * time.Second)
		took, where := runs(t, all[3], gpuJob("h100", 2), time.Minute)
		if where != "host8" && where != "host9" {
			t.Errorf("ran on %s, want host8 or host9", where)
		}
		t.Logf("found a worker and ran in %s", took)
	})
}

// With an empty DHT a scheduler finds workers through gossip.
func TestJobsFindWorkersWithEmptyDHT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := cluster(t, 20, shape{gpus: onLast(18, "sim:4xH100-80GB"), noDHT: true})
		pass(10 * time.Second)
		spec := gpuJob("h100", 2)
		spec.Hold = true // no host that could run it is known yet, so a submission without hold would be refused
		j, err := all[3].sched.Submit(t.Context(), job.Submission{User: "u", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := all[3].sched.Hold(t.Context(), j.ID, nil, true, ""); err != nil {
			t.Fatal(err)
		}
		pass(15 * time.Second)
		if j, err = all[3].sched.Job(t.Context(), j.ID); err != nil || j.State() != job.Succeeded {
			t.Errorf("after 15 s the job is %s (%s), %v, want SUCCEEDED", j.State(), j.Tasks[0].Reason, err)
		}
		if _, where := runs(t, all[3], gpuJob("h100", 2), time.Minute); where != "host18" && where != "host19" {
			t.Errorf("ran on %s, want host18 or host19", where)
		}
	})
}

// 20 daemons lose a tenth of their packets, are then partitioned into two halves, and then connected again. Jobs run on
// each side.
func TestJobsRunDespiteLossAndPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, all := cluster(t, 20, shape{gpus: func(i int) string {
			if i%10 == 5 {
				return "sim:4xH100-80GB"
			}
			return ""
		}, neighbour: 10})
		pass(10 * time.Second)
		nw.SetLoss(0.1)
		runs(t, all[2], gpuJob("h100", 4), 2*time.Minute)
		nw.Partition(10)
		pass(10 * time.Second)
		if _, where := runs(t, all[2], gpuJob("h100", 4), 2*time.Minute); where != "host5" {
			t.Errorf("on the first side ran on %s, want host5", where)
		}
		if _, where := runs(t, all[12], gpuJob("h100", 4), 2*time.Minute); where != "host15" {
			t.Errorf("on the second side ran on %s, want host15", where)
		}
		nw.Cut(nil)
		nw.SetLoss(0)
		pass(30 * time.Second)
		runs(t, all[2], gpuJob("h100", 4), time.Minute)
	})
}

// daemons is the size of the large cluster. It must be several times the 20 hosts of a bucket of the DHT, so that no
// host knows all others and a query takes several hops. Time and memory grow with its square.
var daemons = flag.Int("node.daemons", 100, "daemons in TestQueriesFindAllHostsAmongManyDaemons")

// Many daemons without gossip. A query for a class finds all hosts that have it, and a job finds a worker in less than
// ten seconds, even when 30 % of the hosts are silent.
//
// 100 daemons are five times the 20 hosts of a bucket of the DHT, so that no daemon knows all others and a query takes
// several hops. Nearly every pair connects, so the cost grows with the square of their number: 70 s of processor time
// and 1.6 GB for 100, 257 s and 5 GB for 200. `make soak` runs 200.
func TestQueriesFindAllHostsAmongManyDaemons(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of processor time")
	}
	n := *daemons
	first := n - n/5 // the hosts from this one on have a GPU
	synctest.Test(t, func(t *testing.T) {
		nw, all := cluster(t, n, shape{gpus: onLast(first, "sim:1xH100-80GB"), noGossip: true})
		pass(20 * time.Second)
		class := contract.ClassOf(job.Resources{GPUs: 1, GPUModel: "h100"})
		var found []job.Peer
		for p := range all[7].table.Find(t.Context(), class, 0) {
			found = append(found, p)
		}
		for i := first; i < n; i++ {
			if !slices.Contains(found, nw.Peer(i)) {
				t.Errorf("a query for class %s did not find host %d", class, i)
			}
		}
		took, where := runs(t, all[11], gpuJob("h100", 1), 10*time.Second)
		t.Logf("found and ran on %s in %s", where, took)
		for i := 1; i < n; i++ {
			if i%10 < 3 {
				nw.Blackhole(i, true)
			}
		}
		pass(time.Second)
		took, where = runs(t, all[14], gpuJob("h100", 1), 10*time.Second)
		t.Logf("with 30 %% of the hosts silent: found and ran on %s in %s", where, took)
	})
}
