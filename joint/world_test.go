package joint

// The world: hosts, owners, the links between them, and time.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu/simgpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/jobstest"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/share"
	"github.com/musterhq/muster/worker"
)

// options are what is the same for all hosts and owners of a world.
type options struct {
	standing  int     // hosts with which every owner has a session without wanting it; 0: 32
	mute      bool    // nobody hears what owners announce
	refusals  float64 // the part of entries that a journal does not take, and of quorum rounds that fail
	keepEnded int     // ended jobs that an owner keeps; 0: the default
	keepWhole int     // of them in memory; less than 0: none, 0: the default
	sampling  time.Duration
	shares    share.Weights // of all daemons; the zero value: usage does not count
	maxOffers int           // of one task to one host in a virtual minute; 0: the default
	slow      slowness
}

// slowness is what a loaded machine adds, at most and by chance. Messages of a session stay in order, and so do the
// entries of a journal.
type slowness struct {
	message time.Duration // to each message, also between the parts of one daemon
	step    time.Duration // before each step of a core
	journal time.Duration // to each entry; at least a tenth of it
	disk    time.Duration // to each write of a host's ledger
	start   time.Duration // to the start of a process
}

// late draws a delay up to the most.
func (w *world) late(most time.Duration) time.Duration {
	if most == 0 {
		return 0 // nothing is drawn, so that the other worlds are what they were
	}
	return between(w.chance, 0, most)
}

// standingSessions is how many sessions a daemon keeps without need.
const standingSessions = 32

type world struct {
	t testing.TB
	clock
	seed   uint64
	opt    options
	chance *rand.Rand // of what is drawn while the world runs
	hosts  []*host
	owners []*owner
	links  map[[2]job.Peer]*link // owner, host
	works  []*work
	// offerOf has the job of each offer that was made. foreseen, if set, sees what hosts tell of their starts.
	offerOf  map[uint64]*work
	foreseen func(*work, *host, *outlook)
	byID     map[job.ID]*work
	byKey    map[string]*work
	calm     bool // nothing breaks any more, and tasks are short
	poison   bool // poison tasks take their hosts down
	pids     int

	waiting []*work // reused by each look
	bad     []string
	trace   func(format string, args ...any)
	watch   func() time.Duration // in benchmarks: real time
	spent   time.Duration        // by the cores, as watch tells
	stats   stats
}

func newWorld(t testing.TB, seed uint64, opt options) *world {
	if opt.standing == 0 {
		opt.standing = standingSessions
	}
	if opt.sampling == 0 {
		opt.sampling = 5 * time.Second
	}
	if opt.maxOffers == 0 {
		opt.maxOffers = maxOffers
	}
	return &world{
		t: t, seed: seed, opt: opt, chance: rand.New(rand.NewPCG(seed, 0)), poison: true,
		offerOf: map[uint64]*work{}, links: map[[2]job.Peer]*link{}, byID: map[job.ID]*work{}, byKey: map[string]*work{},
	}
}

// timed notes how long a core takes, where somebody wants to know.
func (w *world) timed(core func()) {
	if w.watch == nil {
		core()
		return
	}
	began := w.watch()
	core()
	w.spent += w.watch() - began
}

// logf writes into the log of a replay.
func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace("%v %s", w.now, fmt.Sprintf(format, args...))
	}
}

// maxBad bounds what is told of one world; the first tells most.
const maxBad = 8

// fail notes that a property does not hold.
func (w *world) fail(format string, args ...any) {
	if len(w.bad) < maxBad {
		w.bad = append(w.bad, fmt.Sprintf("seed %d at %v: ", w.seed, w.now)+fmt.Sprintf(format, args...))
		w.logf("FAILED: "+format, args...)
	}
}

// hostSpec is what a host has.
type hostSpec struct {
	gpus   string // as "8xH100"; none if empty
	real   bool   // the memory of its devices is waited for after a task
	cpus   int
	labels map[string]string
	limits worker.Limits
	ppm    int64
}

// addHost adds a daemon with a worker. It runs from the beginning.
func (w *world) addHost(s hostSpec) *host {
	n := len(w.hosts)
	h := &host{
		w: w, index: n, peer: job.Peer(fmt.Sprintf("host-%04d", n)), power: true,
		clock: hostClock{bootAt: -between(w.chance, time.Minute, 100*time.Hour), ppm: s.ppm},
		disk:  newDisk(), procs: map[job.Attempt]*proc{}, store: fmt.Sprintf("store-%d-0", n),
	}
	h.cfg = worker.DefaultConfig()
	h.cfg.Limits, h.cfg.Shares = s.limits, w.opt.shares
	h.cfg.Profile = lease.Profile{
		Peer: h.peer, Name: fmt.Sprintf("n%04d", n), CPUs: s.cpus, Memory: 512 << 30, Labels: s.labels,
		Drivers: []string{lease.DriverExec}, Worker: true,
	}
	if s.gpus != "" {
		d, err := simgpu.Parse("sim:"+s.gpus, string(h.peer))
		if err != nil {
			w.t.Fatal(err)
		}
		devices, err := d.List(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range devices {
			devices[i].Simulated = !s.real
			if len(devices[i].Links) > 8 { // what is linked how is no concern here, and costs time
				devices[i].Links = devices[i].Links[:8]
			}
		}
		h.cfg.Profile.GPUs = devices
		h.real = s.real
	}
	h.classes = lease.Classes(h.cfg.Profile)
	h.turnFn = h.run
	h.alarm = alarm{w: w, peer: h.peer, turn: h.turn, ring: h.awake}
	w.hosts = append(w.hosts, h)
	return h
}

// addOwner adds a scheduler: to the daemon of a host, or to one without a worker.
func (w *world) addOwner(local *host) *owner {
	n := len(w.owners)
	o := &owner{
		w: w, index: n, peer: job.Peer(fmt.Sprintf("owner-%d", n)), group: job.Group(n + 1), local: local,
		rows: jobstest.Disk{}, table: jobs.NewTable(job.Group(n + 1)), finding: map[string]bool{}, links: map[job.Peer]*link{},
	}
	if local != nil {
		o.peer, local.local = local.peer, o
	}
	o.turnFn = o.run
	o.alarm = alarm{w: w, peer: o.peer, turn: o.turn, ring: o.awake}
	w.owners = append(w.owners, o)
	return o
}

// start links all daemons and lets them begin.
func (w *world) start() {
	for _, o := range w.owners {
		for _, h := range w.hosts {
			l := newLink(o, h, h.index < w.opt.standing)
			if !l.local {
				l.latency = time.Duration(float64(100*time.Microsecond) * math.Pow(500, w.chance.Float64()))
			}
			w.links[[2]job.Peer{o.peer, h.peer}] = l
			o.links[h.peer] = l
			o.order = append(o.order, l)
			h.links = append(h.links, l)
		}
	}
	for _, h := range w.hosts {
		h.boot()
	}
	for _, o := range w.owners {
		o.boot(0)
	}
	w.after(w.opt.sampling, w.sample)
}

// run lets time go by until then; false if a property did not hold.
func (w *world) run(until time.Duration) bool {
	for len(w.bad) == 0 {
		if !w.next(until) {
			w.now = max(w.now, until)
			return true
		}
	}
	return false
}

// runUntil lets time go by until something is so, and says whether it came to
// be before the moment given.
func (w *world) runUntil(most time.Duration, so func() bool) bool {
	for !so() {
		if w.now >= most || !w.run(min(w.now+time.Second, most)) {
			return so()
		}
	}
	return true
}

// report tells the test what did not hold.
func (w *world) report() {
	for _, text := range w.bad {
		w.t.Error(text)
	}
}

// heal ends all that is broken, for good.
func (w *world) heal() {
	w.calm, w.poison = true, false
	w.opt.refusals = 0
	for _, h := range w.hosts {
		if h.gone {
			continue
		}
		h.diskBadUntil = 0
		if h.draining.On {
			h.drain(worker.Drain{})
		}
		h.stalledUntil = 0
		for _, l := range h.links {
			l.cutUntil = min(l.cutUntil, w.now)
			l.badUntil = min(l.badUntil, w.now+2*time.Second)
		}
		if !h.power {
			h.powerOn(false)
		} else if !h.up {
			h.boot()
		}
		h.shorten()
	}
	for _, o := range w.owners {
		o.stalledUntil = 0
		if !o.up {
			o.boot(0)
		}
	}
	for _, h := range w.hosts {
		for _, l := range h.links {
			l.tend()
		}
	}
}

// done says whether every job has been accepted and has ended, or is held by the
// system with a reason.
func (w *world) done() bool {
	return !slices.ContainsFunc(w.works, func(j *work) bool { return !j.settled() })
}
