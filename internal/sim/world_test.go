package sim

// Worlds of tests: made by the test, and watched by the referee.

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu/simgpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/resources"
)

// options are equal for all hosts and owners of a world.
type options struct {
	standing  int     // hosts with which every owner has a session without wanting it; 0: 32
	mute      bool    // nobody gets the announcements of owners
	refusals  float64 // the part of entries that a journal refuses, and of quorum rounds that fail
	keepEnded int     // ended jobs that an owner keeps; 0: the default
	keepWhole int     // of them in memory; less than 0: none, 0: the default
	sampling  time.Duration
	shares    fairshare.Weights // of all daemons; the zero value: usage does not count
	order     contract.OrderBy  // of all owners
	maxWait   time.Duration     // likewise
	maxOffers int               // of one task to one host in a virtual minute; 0: the default
}

// world is a World made by a test, and what its referee knows.
type world struct {
	*World
	t     testing.TB
	seed  uint64
	opt   options
	works []*work
	// offerOf has the job of each offer that was made. foreseen, if set, gets the forecasts of hosts.
	offerOf  map[uint64]*work
	foreseen func(*work, *host, *outlook)
	kept     map[*host]map[job.ID]heldFor // what hosts say that they keep
	// decided is what hosts held when they reserved what attempts need that have not started yet.
	decided map[job.Attempt]decided
	// launchedAt is when the process of each attempt was to be started.
	launchedAt map[job.Attempt]time.Duration
	byID       map[job.ID]*work
	byKey      map[string]*work
	calm       bool // nothing breaks any more, and tasks are short
	poison     bool // poison tasks bring their hosts down

	tables   map[*owner]*state.Table  // the result of all committed records of an owner
	youngest map[*owner]time.Duration // rank of the youngest of its jobs so far, in one look
	lines    map[*host]*standing
	waiting  []*work // reused by each look
	stats    stats
}

// roughCosts are wider than those of one good machine: the properties hold on all machines.
func roughCosts() Costs {
	const us, ms = time.Microsecond, time.Millisecond
	return Costs{
		Commit: Range{1 * ms, 10 * ms}, Sync: Range{500 * us, 4 * ms}, Confirm: Range{500 * us, 8 * ms}, Start: Range{2 * ms, 30 * ms},
		Dial: Range{5 * ms, 400 * ms}, Notice: Range{0, noticeMost},
	}
}

// noticeMost is how long a side may believe in a session that has ended: a ping every 2 s, and silence of 6 s.
const noticeMost = 8 * time.Second

func newTestWorld(t testing.TB, seed uint64, opt options) *world {
	if opt.standing == 0 {
		opt.standing = standingSessions
	}
	if opt.sampling == 0 {
		opt.sampling = 5 * time.Second
	}
	if opt.maxOffers == 0 {
		opt.maxOffers = maxOffers
	}
	clock := &Clock{}
	cfg := Config{
		Seed: seed, Clock: clock, Shares: opt.shares, Contact: Contact{Quiet: opt.mute}, Costs: roughCosts(),
		Network: plain{clock, seed, 100 * time.Microsecond, 50 * time.Millisecond},
	}
	w := &world{
		World: newWorld(cfg), t: t, seed: seed, opt: opt, poison: true,
		offerOf: map[uint64]*work{}, byID: map[job.ID]*work{}, byKey: map[string]*work{},
		kept: map[*host]map[job.ID]heldFor{}, launchedAt: map[job.Attempt]time.Duration{}, decided: map[job.Attempt]decided{}, tables: map[*owner]*state.Table{}, youngest: map[*owner]time.Duration{}, lines: map[*host]*standing{},
	}
	w.durable, w.watch, w.wall, w.refusals = true, w, moment, opt.refusals
	w.tune = w.tuned
	return w
}

// ref returns the world of a test that a World is part of.
func ref(w *World) *world { return w.watch.(*world) }

func (h *host) ref() *world     { return ref(h.w) }
func (j *work) world() *world   { return ref(j.w) }
func (h *host) line() *standing { return h.ref().lines[h] }
func (p *proc) work() *work     { return p.h.ref().works[p.j.index] }

// tuned changes the configuration of an owner.
func (w *world) tuned(cfg *step.Config) {
	usual := step.DefaultConfig()
	cfg.KeepEnded, cfg.KeepWhole, cfg.SaveEvery, cfg.MaxJobs = usual.KeepEnded, usual.KeepWhole, 0, usual.MaxJobs
	cfg.Order, cfg.MaxWait = w.opt.order, w.opt.maxWait
	if w.opt.keepEnded > 0 {
		cfg.KeepEnded = w.opt.keepEnded
	}
	if w.opt.keepWhole != 0 {
		cfg.KeepWhole = max(w.opt.keepWhole, 0)
	}
}

// hostSpec is what a host has.
type hostSpec struct {
	gpus   string // as "8xH100"; none if empty
	real   bool   // after a task, the memory of its devices is waited for
	cpus   int
	labels map[string]string
	limits resources.Limits
	ppm    int64
}

// addHost adds a daemon with a worker. It runs from the start.
func (w *world) addHost(s hostSpec) *host {
	n := len(w.hosts)
	p := contract.Profile{
		Peer: job.Peer(fmt.Sprintf("host-%04d", n)), Name: fmt.Sprintf("n%04d", n), CPUs: s.cpus, Memory: 512 << 30, Labels: s.labels,
		Drivers: []string{contract.DriverExec}, Worker: true,
	}
	if s.gpus != "" {
		d, err := simgpu.Parse("sim:"+s.gpus, string(p.Peer))
		if err != nil {
			w.t.Fatal(err)
		}
		devices, err := d.List(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range devices {
			devices[i].Simulated = !s.real
			if len(devices[i].Links) > 8 { // how they are linked does not matter here, and costs time
				devices[i].Links = devices[i].Links[:8]
			}
		}
		p.GPUs = devices
	}
	h := w.World.addHost(p)
	h.cfg.Limits, h.clock.ppm, h.real = s.limits, s.ppm, s.real && s.gpus != ""
	w.lines[h] = &standing{}
	return h
}

// addOwner adds a scheduler: to the daemon of a host, or to a daemon without a worker.
func (w *world) addOwner(local *host) *owner {
	o := w.World.addOwner(local)
	w.tables[o] = state.NewTable(o.group)
	return o
}

// start links all daemons and starts them.
func (w *world) start() {
	beginNews(w.World)
	for _, o := range w.owners {
		for _, h := range w.hosts {
			w.link(o, h).standing = h.index < w.opt.standing
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

// run lets time pass up to a moment, and returns false if a property did not hold.
func (w *world) run(until time.Duration) bool {
	for len(w.defects) == 0 {
		if !w.next(until) {
			w.now = max(w.now, until)
			return true
		}
	}
	return false
}

// runUntil lets time pass until something holds, and reports whether it did before the given moment.
func (w *world) runUntil(most time.Duration, so func() bool) bool {
	for !so() {
		if w.now >= most || !w.run(min(w.now+time.Second, most)) {
			return so()
		}
	}
	return true
}

// report tells the test which properties did not hold.
func (w *world) report() {
	for _, text := range w.defects {
		w.t.Error(text)
	}
}

// heal repairs all that is broken, for good.
func (w *world) heal() {
	w.calm, w.steady, w.poison = true, true, false
	w.refusals = 0
	for _, j := range w.works {
		j.runs = min(j.runs, calmRun)
	}
	for _, h := range w.hosts {
		if h.gone {
			continue
		}
		h.diskBadUntil = 0
		if h.draining.On {
			h.drain(worker.Drain{})
		}
		h.stalledUntil = 0
		for _, l := range h.order {
			l.cutUntil = min(l.cutUntil, w.now)
			l.badUntil = min(l.badUntil, w.now+2*time.Second)
		}
		if !h.power {
			h.powerOn(false)
		} else if !h.up {
			h.boot()
		}
		for _, p := range h.running() {
			p.stint.pace()
		}
	}
	for _, o := range w.owners {
		o.stalledUntil = 0
		if !o.up {
			o.boot(0)
		}
	}
	for _, h := range w.hosts {
		for _, l := range h.order {
			l.tend()
		}
	}
}

// calmRun is how long a task runs at most once the world is calm.
const calmRun = 20 * time.Second

// done reports whether every job has been accepted and has ended, or is held by the system with a reason.
func (w *world) done() bool {
	return !slices.ContainsFunc(w.works, func(j *work) bool { return !j.settled() })
}

// usable returns for how long the two could have reached each other by now: both daemons up, the path between them
// open.
func (l *link) usable() time.Duration {
	if !l.o.up || !l.h.up || !l.o.leads || l.w.now < l.badUntil {
		return 0
	}
	return l.w.now - max(l.badUntil, l.o.leadAt, l.h.upAt, l.o.stalledUntil, l.h.stalledUntil, 0)
}

// clientWait is an upper bound of the time within which a scheduler answers.
const clientWait = 45 * time.Second

// asked checks that the owner answers.
func (w *world) asked(o *owner, tok step.Token) {
	life := o.life
	w.after(clientWait, func() {
		if _, open := o.asks[tok]; open && o.life == life && o.up {
			w.fail("%s has not answered a request within %v", o.peer, clientWait)
		}
	})
}

// refused handles the answer to a job that was not accepted.
func (w *world) refused(s *submission, err error) bool {
	j := w.works[s.index]
	if _, noMatch := errors.AsType[*step.NoMatchError](err); !noMatch {
		w.fail("P7: %s was refused: %v", j, err)
		return false
	}
	if h := j.reachableHost(); h != nil {
		w.fail("P7: %s was refused, though %s can run it: %v", j, h.peer, err)
	}
	return true
}

// stepped counts what schedulers do.
func (w *world) stepped(fx *step.Effects) {
	w.stats.steps++
	w.stats.effects += len(fx.Propose) + len(fx.Send) + len(fx.Find) + len(fx.Want) + len(fx.Unwant) + len(fx.Rows) + len(fx.Gone) + len(fx.Reply)
	w.stats.rounds, w.stats.messages, w.stats.finds = w.counts.Rounds, w.counts.Messages+w.counts.Local, w.counts.Finds
}

// launched handles the start of a process.
func (w *world) launched(p *proc) {
	w.checkProc(p)
	w.checkGang(p)
	if p.j == nil || p.h.procs[p.attempt] != nil {
		return
	}
	w.launchedAt[p.attempt] = w.now
	w.passes(p)
	j := p.work()
	j.tries = append(j.tries, p)
	j.stores[p] = p.h.store
	w.better(p)
	j.starts++
	w.stats.starts++
	if j.starts == 1 {
		j.startAt = w.now
		w.stats.started(j)
	}
}

// finishes returns how the work of a process ends: some jobs fail at first, some save their state, some bring their
// host down.
func (w *world) finishes(p *proc) (job.State, int, bool) {
	j, h := p.work(), p.h
	nth := slices.Index(j.tries, p) + 1
	switch {
	case j.poison && w.poison:
		w.logf("%s takes %s down", p.attempt, h.peer)
		h.powerOff()
		w.after(j.poisonFor, func() { h.powerOn(false) })
		return "", 0, false
	case nth <= j.fails, j.failsAt == h:
		return job.Failed, 1, true
	case nth <= j.fails+j.saves:
		return job.Failed, j.spec.CheckpointExitCode, true
	}
	return job.Succeeded, 0, true
}
