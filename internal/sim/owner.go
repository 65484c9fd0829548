package sim

// An owner: the loop around the scheduler's core, and the lives and deaths of its daemon.

import (
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

type owner struct {
	w      *World
	index  int
	at     int // index of its machine
	peer   job.Peer
	group  job.Group
	proof  job.Founding // that the daemon has founded the group
	policy string       // of jobs that name none; empty: the default
	local  *host        // of the same daemon; nil in tests: it runs no tasks
	links  map[job.Peer]*link
	order  []*link // the same, in the order in which they were made

	wallOff      time.Duration // error of the wall clock; in tests
	stalledUntil time.Duration // in tests

	up     bool
	leads  bool
	leadAt time.Duration
	term   uint64

	ownerLoop
	journal
	finder
}

// ownerLoop is the loop around the core of a scheduler.
type ownerLoop struct {
	core     *scheduler.Core
	life     int
	inbox    []step.Event
	spare    []step.Event
	keptRows []step.Event // for the next step
	turning  bool
	turnFn   func()
	alarm    alarm // for the next step that the core asks for
	tokens   step.Token
	asks     map[step.Token]request
}

// finder is how an owner looks for hosts.
type finder struct {
	beliefs []belief // by the index of a host
	finding map[string]bool
	wants   []step.Want
	calls   int           // number of the newest announcement
	called  []*link       // links to hosts that have answered an announcement
	callAt  time.Duration // time of the last announcement
}

// addOwner adds a scheduler: to the daemon of a host, or to one without a worker.
func (w *World) addOwner(local *host) *owner {
	n := len(w.owners)
	o := &owner{
		w: w, index: n, at: -1 - n, peer: job.Peer(fmt.Sprintf("owner-%d", n)), local: local, policy: w.cfg.Policy, links: map[job.Peer]*link{},
	}
	o.rows, o.finding = rows{}, map[string]bool{}
	if local != nil {
		o.at, o.peer, local.local = local.index, local.peer, o
	}
	o.proof, o.group = found(o.peer)
	o.turnFn = o.run
	o.alarm = alarm{w: w, peer: o.peer, turn: o.turn, ring: o.awake}
	w.owners = append(w.owners, o)
	w.ownerOf[o.peer] = o
	return o
}

func (o *owner) now() time.Time { return o.w.wall(o.w.now, o.wallOff) }

// foundings holds the founding of each peer that has been an owner in this process: each takes a tenth of a second to find,
// and the owners of all worlds have the same few names.
var foundings sync.Map // of job.Founding, by job.Peer

// found founds the group of a daemon. A daemon of the same name founds the same group in all worlds.
func found(p job.Peer) (job.Founding, job.Group) {
	if f, ok := foundings.Load(p); ok {
		f := f.(job.Founding)
		return f, f.Group(p)
	}
	f, g := job.FoundFrom(p, job.Founding{})
	foundings.Store(p, f)
	return f, g
}

// configOf returns the configuration of the core.
func configOf(o *owner) step.Config {
	w := o.w
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Founding, cfg.Seed = o.peer, o.group, o.proof, w.chance.Uint64()|1
	cfg.Shares, cfg.Candidates = w.cfg.Shares, w.cfg.Candidates
	cfg.Order, cfg.MaxWait = w.cfg.Order, w.cfg.MaxWait
	cfg.KeepEnded, cfg.KeepWhole, cfg.SaveEvery = keepEnded, keepWhole, saveEvery
	cfg.MaxJobs = max(cfg.MaxJobs, len(w.works)+cfg.KeepEnded)
	if o.policy != "" {
		cfg.Policy = o.policy
	}
	if w.tune != nil {
		w.tune(&cfg)
	}
	return cfg
}

// Few ended jobs are kept, because nobody asks for them.
const (
	keepEnded = 256
	keepWhole = 16
	saveEvery = 100 * time.Millisecond // as in the daemon
)

// boot starts a life of the daemon from the rows and the journal.
func (o *owner) boot(after time.Duration) {
	w := o.w
	o.life++
	life := o.life
	o.up, o.leads = true, false
	o.term++
	saved := scheduler.Saved{Applied: o.flushed}
	for _, r := range o.rows.all() {
		if err := saved.Add(r); err != nil {
			w.fail("%s: %v", o.peer, err)
		}
	}
	if err := saved.End(); err != nil {
		w.fail("%s: %v", o.peer, err)
	}
	o.core = scheduler.NewCore(configOf(o), saved, o.now())
	o.inbox, o.keptRows, o.turning, o.alarm.at = o.inbox[:0], nil, false, 0
	o.asks, o.commitAt = map[step.Token]request{}, w.now
	clear(o.finding)
	o.wants = nil
	if o.life > 1 {
		if o.local == nil {
			setUp(w, o.at, true)
		}
		recall(o)
	}
	w.logf("%s begins, with %d rows up to %d and a log up to %d", o.peer, len(o.rows), o.flushed, o.index64)
	for _, e := range o.log {
		e.Lead = false
		o.tell(step.Committed{Committed: e})
	}
	w.after(after+w.draw(w.cfg.Costs.Lead), func() {
		if o.life != life || !o.up {
			return
		}
		o.leads, o.leadAt = true, w.now
		o.append(job.Committed{Lead: true})
	})
	for _, l := range o.order {
		l.tend()
	}
}

// kill ends the daemon. Of the entries under way some have reached the disk.
func (o *owner) kill() {
	if !o.up {
		return
	}
	o.w.logf("%s is killed", o.peer)
	o.up, o.leads, o.core = false, false, nil
	if o.local == nil {
		setUp(o.w, o.at, false)
	}
	for _, l := range o.order {
		l.died(false)
	}
	o.called = nil
	crash(o)
	askAgain(o)
}

// restart kills the daemon, with its worker if it has one, and starts it again.
func (o *owner) restart(after time.Duration) {
	if o.local != nil {
		o.local.restart(after)
		return
	}
	o.kill()
	life := o.life
	o.w.appoint(o.w.now+after, func() {
		if o.life == life && !o.up {
			o.boot(0)
		}
	})
}

func (o *owner) tell(e step.Event) {
	if o.up {
		o.inbox = append(o.inbox, e)
		o.turn()
	}
}

func (o *owner) turn() {
	if !o.turning && o.up {
		o.turning = true
		o.w.at(max(o.w.now, o.stalledUntil), o.turnFn)
	}
}

// run runs one step of the loop around the core.
func (o *owner) run() {
	if !o.up || !o.turning {
		return
	}
	o.turning = false
	events, err := scheduler.AddRows(o.core, append(o.inbox, o.keptRows...), func(id job.ID) ([]job.Row, error) { return o.rows.of(id), nil })
	if err != nil {
		o.w.fail("%s: %v", o.peer, err)
	}
	o.inbox = o.spare[:0]
	o.keptRows = o.keptRows[:0]
	o.w.counts.Steps++
	fx := o.core.Step(o.now(), events...)
	clear(events)
	o.spare = events
	o.carry(fx)
	o.w.flush()
	if o.up {
		o.arm()
	}
}

// arm sets the alarm for the next step that the core asks for.
func (o *owner) arm() {
	wake := o.core.Wake()
	if wake.IsZero() {
		return
	}
	o.alarm.set(o.w.now + wake.Sub(o.now()))
}

func (o *owner) awake() {
	if !o.up || !o.alarm.rang() {
		return
	}
	if wake := o.core.Wake(); !wake.IsZero() && wake.Sub(o.now()) <= 0 {
		o.turn()
	} else {
		o.arm()
	}
}
