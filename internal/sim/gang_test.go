package sim

// Gangs: what a host is told about those whose members it runs, and worlds in which many of them wait for the same
// hosts.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
)

// checkGang checks the environment of a member of a gang: it is on the host that its rank stands for, and no other gang
// with its rank 0 on this host has its port (P1).
func (w *world) checkGang(p *proc) {
	rank, port, ips := variable(p.task, "NODE_RANK"), variable(p.task, "MASTER_PORT"), strings.Fields(variable(p.task, "MUSTER_NODE_IPS"))
	if port == "" {
		return
	}
	n := 0
	if _, err := fmt.Sscan(rank, &n); err != nil || n >= len(ips) || ips[n] != p.h.address() {
		w.fail("%s runs at %s with rank %q, and the hosts are %v", p.attempt, p.h.address(), rank, ips)
	}
	if n != 0 {
		return
	}
	for _, other := range p.h.procs {
		if !other.over && other.attempt != p.attempt && variable(other.task, "NODE_RANK") == "0" && variable(other.task, "MASTER_PORT") == port {
			w.fail("P1: %s and %s at %s have port %s", p.attempt, other.attempt, p.h.peer, port)
		}
	}
}

// variable returns a variable of a task's environment.
func variable(t driver.Task, name string) string {
	for _, word := range t.Env {
		if v, found := strings.CutPrefix(word, name+"="); found {
			return v
		}
	}
	return ""
}

// takenBack checks that no member runs of a gang that was unassigned as never started.
func (w *world) takenBack(r job.UnassignGangRecord) {
	if j := w.byID[r.Attempt.Job]; j != nil {
		for _, p := range j.tries {
			if p.attempt.N == r.Attempt.N {
				w.fail("R7: %s was taken back, and %s was started at %s", r.Attempt, p.attempt, p.h.peer)
			}
		}
	}
}

// watchGangs checks from time to time whether members of a gang run on although others of it have failed, or were never
// started.
func (w *world) watchGangs() {
	w.after(10*time.Second, w.watchGangs)
	for _, j := range w.works {
		if n := j.spec.Nodes; n > 1 {
			j.watchGang(n)
		}
	}
}

// gangAlone is how long members may run on without the others: until the lease of a lost one has ended, and while
// nobody can reach their hosts.
func (j *work) gangAlone() time.Duration { return 3*j.spec.LeaseOr() + 10*time.Minute }

func (j *work) watchGang(n int) {
	w := j.world()
	newest, started, runs := 0, map[int]bool{}, false
	for _, p := range j.tries {
		if p.attempt.N > newest {
			newest, runs = p.attempt.N, false
			clear(started)
		}
		if p.attempt.N == newest {
			started[p.attempt.Task] = started[p.attempt.Task] || !p.over || p.exit.State == job.Succeeded
			runs = runs || !p.over
		}
	}
	whole := 0
	for _, well := range started {
		if well {
			whole++
		}
	}
	if !runs || whole == n {
		j.torn = 0
		return
	}
	if j.torn == 0 {
		j.torn = w.now
	}
	if w.now-j.torn > j.gangAlone() {
		w.fail("%s: of attempt %d only %d of %d members run or have succeeded, for %v", j, newest, whole, n, w.now-j.torn)
	}
}

// checkGangs checks the ends of gangs: all members of one attempt have run to their end, or the job says otherwise.
func (w *world) checkGangs() {
	for _, j := range w.works {
		n := j.spec.Nodes
		if n < 2 || j.state != job.Succeeded {
			continue
		}
		ok := map[int]int{}
		for _, p := range j.tries {
			if p.over && p.exit.State == job.Succeeded {
				ok[p.attempt.N]++
			}
		}
		if ok[j.attempt] != n {
			w.fail("%s succeeded, and %d of %d members of its attempt %d did", j, ok[j.attempt], n, j.attempt)
		}
	}
}

// manyGangs is a world of ten owners, each with five gangs of two to four nodes, and hosts for one large gang at a
// time.
func manyGangs(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 2))
	w := newTestWorld(t, seed, options{sampling: endless})
	for range 4 {
		w.addHost(hostSpec{cpus: 1})
	}
	for range 10 {
		o := w.addOwner(nil)
		o.wallOff = between(r, -2*time.Minute, 2*time.Minute)
	}
	for range 5 {
		for _, o := range w.owners {
			j := w.newWork(o, "ada", cpus(1), between(r, time.Second, 20*time.Second))
			j.spec.Nodes = 2 + r.IntN(3)
			j.submitAt(between(r, time.Second, time.Minute))
		}
	}
	return w
}

// TestGangsDoNotWaitForEachOther checks that no two gangs wait for each other, and that none waits much longer than it
// takes to run all others one by one.
func TestGangsDoNotWaitForEachOther(t *testing.T) {
	n := uint64(200)
	if testing.Short() {
		n = 20
	}
	var mu sync.Mutex
	var longest, total, slowest time.Duration // slowest: beyond the time that all gangs take one by one
	gangs, offers, revoked := 0, 0, 0
	t.Run("seeds", func(t *testing.T) {
		for seed := uint64(1); seed <= n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := manyGangs(t, seed)
				w.start()
				w.watchGangs()
				var alone time.Duration
				for _, j := range w.works {
					alone += j.runs
				}
				if !w.runUntil(alone+30*time.Minute, w.done) {
					w.failUnsettled()
				}
				w.checkGangs()
				w.report()
				mu.Lock()
				defer mu.Unlock()
				for _, j := range w.works {
					wait := j.startAt - j.acceptAt
					longest = max(longest, wait)
					total += wait
					if j.attempt != 1 {
						revoked += j.attempt - 1
					}
					if over := wait - alone; over > slowest || slowest == 0 {
						slowest = over
					}
					if wait > alone+time.Duration(len(w.works))*5*time.Second {
						t.Errorf("seed %d: %s waited %v, and all gangs one by one take %v, want at most %v", seed, j, wait, alone, alone+time.Duration(len(w.works))*5*time.Second)
					}
				}
				gangs += len(w.works)
				offers += w.stats.offers
			})
		}
	})
	t.Logf("%d gangs: longest wait %v, mean %v; at most %v above one by one; %.1f offers a gang, %d attempts taken back", gangs, longest, total/time.Duration(max(gangs, 1)), slowest, float64(offers)/float64(max(gangs, 1)), revoked)
}

// roughGangs is a random world with gangs and tasks, in which everything breaks.
func roughGangs(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 3))
	m := moods[r.IntN(len(moods))]
	m.mayVanish, m.holds = false, false
	opt := options{refusals: m.refusals, keepEnded: 50, keepWhole: 8, sampling: endless}
	users := []string{"ada"}
	if seed%3 == 0 {
		opt.shares = fairshare.Weights{HalfLife: 20 * time.Minute, Users: map[string]float64{"bob": 3}}
		users = []string{"ada", "ada", "bob", "cyd"}
	}
	w := newTestWorld(t, seed, opt)
	for range 4 + r.IntN(6) {
		h := w.addHost(hostSpec{cpus: 1 + r.IntN(4), ppm: int64(r.IntN(401)) - 200})
		h.wallOff = between(r, -2*time.Minute, 2*time.Minute)
	}
	for i := range 1 + r.IntN(4) {
		var local *host
		if r.IntN(2) == 0 {
			local = w.hosts[i]
		}
		w.addOwner(local).wallOff = between(r, -2*time.Minute, 2*time.Minute)
	}
	for range 30 + r.IntN(40) {
		o := w.owners[r.IntN(len(w.owners))]
		j := w.newWork(o, users[len(w.works)%len(users)], cpus(1), logNormal(r, time.Minute, 1, time.Second, 20*time.Minute))
		if r.IntN(3) > 0 {
			j.spec.Nodes = 2 + r.IntN(3)
			j.spec.KeepOnBadExit = r.IntN(5) == 0
		}
		switch r.IntN(4) {
		case 0:
			j.spec.Lease = job.Duration(30 * time.Second)
		case 1:
			j.spec.Lease = job.Duration(time.Minute)
		}
		if r.IntN(4) == 0 {
			j.spec.Priority = r.IntN(101)
		}
		j.spec.Preemptible = r.IntN(4) == 0
		if r.IntN(8) == 0 {
			j.fails, j.spec.Retries = 1+r.IntN(3), r.IntN(4)
		}
		if r.IntN(12) == 0 {
			j.spec.CheckpointExitCode, j.saves = 85, 1+r.IntN(4)
		}
		if r.IntN(20) == 0 {
			j.spec.Requeue = false
		}
		if r.IntN(10) == 0 {
			w.at(between(r, 0, time.Hour), j.cancel)
		}
		if r.IntN(10) == 0 {
			w.at(between(r, 0, time.Hour), j.requeue)
		}
		j.submitAt(between(r, 0, 45*time.Minute))
	}
	w.trouble(r, &m)
	return w
}

var gangSeed = flag.Uint64("sim.gang", 0, "run this random world of gangs alone, and log all that happens in it")

// TestGangsRunTogetherUnderFaults checks that the members of a gang run together, on different hosts, whatever breaks,
// and that each gang ends once nothing breaks any more.
func TestGangsRunTogetherUnderFaults(t *testing.T) {
	first, n := uint64(1), uint64(150)
	if testing.Short() {
		n = 15
	}
	if *gangSeed != 0 {
		first, n = *gangSeed, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := roughGangs(t, seed)
			if *gangSeed != 0 {
				w.trace = t.Logf
			}
			w.start()
			w.watchGangs()
			if w.run(busyFor) {
				w.heal()
				if !w.runUntil(busyFor+calmFor, w.done) {
					w.failUnsettled()
				}
				w.checkGangs()
			}
			w.report()
		})
	}
}
