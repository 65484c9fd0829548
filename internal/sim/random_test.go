package sim

// Random worlds: hosts, owners, users and their jobs, and all that fails within an hour, from a seed.

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/resources"
)

// mood is how much fails in a random world.
type mood struct {
	breaks    float64 // of the session of a pair, in an hour
	restarts  float64 // of the daemon of a host
	deaths    float64 // of a host
	kills     float64 // of an owner
	drains    float64 // of a host
	jumps     float64 // of a wall clock, of any daemon
	stalls    float64 // of a daemon
	badDisk   float64 // of a host
	refusals  float64
	mayVanish bool    // a host may come back with an empty disk, or never
	holds     bool    // some jobs outlive any loss of contact
	limits    float64 // the part of jobs with a time limit that they keep
}

var moods = []mood{
	{}, // nothing fails
	{breaks: 1, restarts: 0.2, jumps: 0.2},
	{breaks: 4, restarts: 1, deaths: 0.3, kills: 1, drains: 0.3, jumps: 0.5, stalls: 1, badDisk: 0.2, refusals: 0.005, mayVanish: true},
	{breaks: 1, restarts: 3, deaths: 0.2, kills: 3, jumps: 1, stalls: 0.5, refusals: 0.01, holds: true},
	{breaks: 0.5, deaths: 1, kills: 0.3, drains: 1, jumps: 0.3, mayVanish: true},
}

// The kinds of hosts.
var hostKinds = []hostSpec{
	{cpus: 8},
	{cpus: 32},
	{gpus: "1xT4", cpus: 4},
	{gpus: "2xH100", cpus: 16},
	{gpus: "4xA100", cpus: 32},
	{gpus: "8xH100", cpus: 64},
	{gpus: "4xH100", cpus: 32, real: true},
	{gpus: "2xA100", cpus: 8, real: true},
}

// The placement policies.
var policies = step.Policies()

// leveled is added to the seed of a world for the same world with another order than that of age.
const leveled = 1 << 32

// worldSeeds returns the seeds of n worlds by age, and of a fifth as many by the other orders.
func worldSeeds(n int) []uint64 {
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, uint64(i+1))
		if i%5 == 0 {
			seeds = append(seeds, leveled+uint64(i+1))
		}
	}
	return seeds
}

func randomWorld(t testing.TB, seed uint64) *world {
	order := contract.ByAge
	if seed > leveled {
		seed -= leveled
		order = contract.ByAttained + contract.OrderBy(seed/5%2)
	}
	r := rand.New(rand.NewPCG(seed, 1)) // for what the world is; its events use another one
	m := moods[r.IntN(len(moods))]
	opt := options{refusals: m.refusals, keepEnded: 20, keepWhole: 4, order: order}
	if seed%3 == 0 { // not drawn, so that the other worlds stay as they were
		opt.shares = fairshare.Weights{HalfLife: 20 * time.Minute, Users: map[string]float64{"ada": 3}, Projects: map[string]float64{"p1": 2}}
	}
	if seed%4 == 1 { // likewise
		opt.maxWait = []time.Duration{2 * time.Minute, 10 * time.Minute, 20 * time.Minute}[seed/4%3]
	}
	if r.IntN(4) == 0 {
		opt.standing, opt.mute = 2, r.IntN(2) == 0
	}
	w := newTestWorld(t, seed, opt)
	m.limits = max(0, r.Float64()*1.5-0.5)
	setAside := []time.Duration{10 * time.Second, time.Minute, worker.DefaultSetAside}[r.IntN(3)]
	for range 3 + r.IntN(10) {
		s := hostKinds[r.IntN(len(hostKinds))]
		s.labels = map[string]string{"rack": [...]string{"r0", "r1", "r2"}[r.IntN(3)]}
		s.ppm = int64(r.IntN(401)) - 200
		if r.IntN(5) == 0 {
			s.limits = resources.Limits{PerUser: contract.Limit{contract.LimitTasks: int64(1 + r.IntN(4))}}
		}
		h := w.addHost(s)
		h.cfg.SetAside = setAside
		h.wallOff = between(r, -2*time.Minute, 2*time.Minute)
	}
	for i := range 1 + r.IntN(3) {
		var local *host
		if r.IntN(2) == 0 {
			local = w.hosts[i]
		}
		o := w.addOwner(local)
		o.wallOff = between(r, -2*time.Minute, 2*time.Minute)
		o.policy = policies[r.IntN(len(policies))]
	}
	w.load(r, &m)
	w.trouble(r, &m)
	return w
}

// load draws the jobs. Their number follows from what the hosts could do within the hour.
func (w *world) load(r *rand.Rand, m *mood) {
	users := []string{"ada", "bob", "cyd", "dan"}
	most, rich := 0, 0 // GPUs of one host
	for _, h := range w.hosts {
		most = max(most, len(h.cfg.Profile.GPUs))
		rich += len(h.cfg.Profile.GPUs) + h.cfg.Profile.CPUs/8
	}
	n := 50 + r.IntN(151)
	// Enough work for half to four thirds of the cluster.
	median := time.Duration((0.5 + 0.8*r.Float64()) * float64(rich) * float64(40*time.Minute) / float64(n) / 6)
	for range n {
		o := w.owners[r.IntN(len(w.owners))]
		need := job.Resources{CPUs: 1 + r.IntN(4)}
		if most > 0 && r.IntN(4) > 0 {
			need.CPUs = 1
			switch k := r.IntN(10); {
			case k < 5:
				need.GPUs = 1
			case k < 6 && r.IntN(2) == 0:
				need.GPUShare = 0.5
			case k < 8:
				need.GPUs = min(2, most)
			case k < 9:
				need.GPUs = min(4, most)
			default:
				need.GPUs = most
			}
		}
		j := w.newWork(o, users[min(r.IntN(len(users)), r.IntN(len(users)))], need, logNormal(r, median, 1.3, time.Second, 2*time.Hour))
		w.decorate(r, m, j)
		if w.opt.order != contract.ByAge { // most are preemptible, and some run long enough for that
			j.spec.Preemptible = r.IntN(4) > 0
			j.runs *= time.Duration(1 + r.IntN(3)*r.IntN(3))
		}
		if w.opt.shares.On() {
			j.spec.Project = [...]string{"", "p1", "p2"}[r.IntN(3)]
		}
		j.submitAt(between(r, 0, 45*time.Minute))
	}
}

// decorate gives some jobs further properties.
func (w *world) decorate(r *rand.Rand, m *mood, j *work) {
	if r.IntN(4) == 0 {
		j.spec.Priority = r.IntN(101)
	}
	switch r.IntN(8) {
	case 0:
		j.spec.Lease = job.Duration(30 * time.Second)
	case 1:
		j.spec.Lease = job.Duration(time.Minute)
	}
	if r.IntN(8) == 0 {
		j.label = [2]string{"rack", "r1"}
		if j.reachableEver() {
			j.spec.Constraint = "rack=r1"
		} else {
			j.label = [2]string{}
		}
	}
	if r.IntN(12) == 0 {
		j.fails = 1 + r.IntN(3)
		j.spec.Retries = r.IntN(4)
		j.runs = min(j.runs, time.Minute)
	}
	if m.limits > 0 && r.Float64() < m.limits {
		j.spec.TimeLimit = job.Duration(min(j.runs*time.Duration(100+r.IntN(200))/100+time.Second, 24*time.Hour))
	}
	if r.IntN(12) == 0 {
		j.spec.TimeLimit = job.Duration(between(r, time.Second, 10*time.Minute))
	}
	if m.holds && r.IntN(10) == 0 {
		j.spec.Partition = "hold"
	}
	if r.IntN(20) == 0 {
		j.spec.Requeue = false
	}
	if r.IntN(15) == 0 && j.spec.Resources.GPUShare == 0 {
		j.spec.Exclusive = true
		j.runs = min(j.runs, 5*time.Minute)
	}
	if r.IntN(15) == 0 {
		at := time.Unix(firstDay, 0).Add(between(r, 0, busyFor)).UTC()
		j.spec.Begin = &at
	}
	if r.IntN(8) == 0 {
		j.spec.Prefer = [...]string{"rack=r1", "rack=r2:3,nvlink", "gpu.count>0|cpus>=32"}[r.IntN(3)]
	}
	if m.deaths > 0 && r.IntN(300) == 0 {
		j.poison, j.runs = true, 2*time.Second
		j.poisonFor = between(r, 20*time.Second, 2*time.Minute)
	}
	if r.IntN(12) == 0 {
		w.at(between(r, 0, time.Hour), j.cancel)
	}
	if r.IntN(12) == 0 {
		j.spec.CheckpointExitCode, j.saves = 85, 1+r.IntN(5)
		j.runs = min(j.runs, time.Minute)
	}
	if r.IntN(3) == 0 {
		j.spec.Policy = policies[r.IntN(len(policies))]
	}
	for range r.IntN(12) / 10 * (1 + r.IntN(3)) {
		w.at(between(r, 0, time.Hour), j.requeue)
	}
	if r.IntN(20) == 0 {
		at := between(r, 0, 40*time.Minute)
		until := at + between(r, 0, 15*time.Minute)
		w.at(at, func() { j.hold(until) })
	}
}

// reachableEver reports whether any host could ever run the job.
func (j *work) reachableEver() bool {
	return slices.ContainsFunc(j.world().hosts, j.could)
}

// each calls do so many times an hour on average, at random moments.
func (w *world) each(r *rand.Rand, rate float64, do func()) {
	if rate <= 0 {
		return
	}
	for at := r.ExpFloat64() / rate; at < 1; at += r.ExpFloat64() / rate {
		w.at(time.Duration(at*float64(busyFor)), do)
	}
}

// trouble draws the faults.
func (w *world) trouble(r *rand.Rand, m *mood) {
	for _, h := range w.hosts {
		w.hostTrouble(r, m, h)
		for _, o := range w.owners {
			w.each(r, m.breaks, func() {
				cut := between(r, 0, 5*time.Second)
				switch k := r.IntN(20); {
				case k == 0:
					cut = between(r, time.Minute, 12*time.Minute)
				case k < 6:
					cut = between(r, 5*time.Second, time.Minute)
				}
				o.links[h.peer].sever(w.cfg.Costs.Notice, cut)
			})
		}
	}
	for _, o := range w.owners {
		w.each(r, m.kills, func() { o.restart(between(r, 300*time.Millisecond, time.Minute)) })
		w.each(r, m.stalls, func() { o.stalledUntil = w.now + between(r, 0, 5*time.Second) })
		w.each(r, m.jumps, func() {
			o.wallOff = between(r, -2*time.Hour, 2*time.Hour)
			if o.local != nil {
				o.local.wallOff = o.wallOff
			}
		})
	}
}

func (w *world) hostTrouble(r *rand.Rand, m *mood, h *host) {
	w.each(r, m.restarts, func() {
		pause := between(r, 300*time.Millisecond, 20*time.Second)
		if r.IntN(8) == 0 {
			pause = between(r, 20*time.Second, 8*time.Minute)
		}
		h.restart(pause)
	})
	w.each(r, m.deaths, func() { h.die(r, m) })
	w.each(r, m.stalls, func() { h.stalledUntil = w.now + between(r, 0, 5*time.Second) })
	w.each(r, m.badDisk, func() { h.diskBadUntil = w.now + between(r, time.Second, 20*time.Second) })
	w.each(r, m.jumps, func() {
		if h.local == nil {
			h.wallOff = between(r, -2*time.Hour, 2*time.Hour)
		}
	})
	w.each(r, m.drains, func() {
		d := worker.Drain{On: true, Reason: "new disks"}
		if r.IntN(2) == 0 {
			d.Deadline = h.now().Wall.Add(between(r, 0, 5*time.Minute)).Round(0)
		}
		h.drain(d)
		w.after(between(r, time.Minute, 10*time.Minute), func() { h.drain(worker.Drain{}) })
	})
}

// die is a power cut. Then the host returns, perhaps with an empty disk, or never.
func (h *host) die(r *rand.Rand, m *mood) {
	w := h.ref()
	if !h.power || h.gone {
		return
	}
	h.powerOff()
	back, k := between(r, 20*time.Second, 12*time.Minute), r.IntN(8)
	if !m.mayVanish || h.local != nil {
		k = 7
	}
	if k == 0 && w.spare(h) && !h.unfenced {
		h.gone = true
		return
	}
	w.after(back, func() {
		if !w.calm {
			h.powerOn(k == 1)
		}
	})
}

// spare reports whether all jobs could be run without the host.
func (w *world) spare(without *host) bool {
	for _, j := range w.works {
		able := false
		for _, h := range w.hosts {
			able = able || h != without && j.could(h)
		}
		if !able {
			return false
		}
	}
	return true
}
