package worker

// The state of a worker and the course of a turn.

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Core decides what this host gives away and to whom. It is driven in turns of two calls:
//
//	Step(now, events...) Writes   takes all events that are there, and returns what must be on disk;
//	Saved(now, err) Effects       takes the outcome of that write, and returns what is to be done.
//
// A turn has two calls because of R3: the ledger is on disk before anything is sent or started that depends on it,
// and the core does no I/O. Each Step is followed by one Saved, also when there is nothing to write.
//
// A Core is used by one goroutine; the same calls with the same arguments give the same answers.
type Core struct {
	cfg    Config
	chance *rand.Rand
	timers timers
	room   capacity

	peers    []job.Peer // with a session, sorted
	seeker   seeker
	groups   map[job.Group]*group
	attempts map[job.Attempt]*attempt

	offers   map[offerKey]*offer
	queue    []*offer         // by rank; offers that are answered stay until the next arbitration
	queued   int              // offers that wait
	perPeer  map[job.Peer]int // of them, by scheduler
	lapsed   map[job.Attempt]*offer
	declines []refusal
	look     bool // offers or what is free have changed since the last arbitration
	devices  map[string]*device
	holders  map[string]int           // attempts that hold a device
	awaiting map[job.Attempt]*attempt // until the memory of their devices is back
	polling  bool                     // a timer asks for a device status
	draining Drain
	deadline *timer // of the drain

	mps    string // where NVIDIA's multi-process service listens; empty: it does not run
	limits Limits
	usage  map[string]usage // by user

	refusals refusals                         // for quota
	eased    map[job.Peer]map[string]struct{} // users of refusals that may hold more, not told yet

	breaker     breaker
	broken      string   // why the host takes nothing for a while
	brokenUntil BootTime // of broken
	asideNew    bool     // what is set aside has changed, and the disk does not know
	restored    Moment   // the wall clock of what was set aside before the restart

	// What changed and is not on disk.
	dirty  []*attempt
	gone   map[job.Attempt]struct{}
	epochs []*group
	batch  batch
	failed error // of the last save; nil while the disk works
	retry  BootTime

	out      Effects       // of this round, not held back by anything
	unsaid   int           // log lines beyond the bound
	renewals []lease.Renew // sent after events
	gated    Effects       // waits until a newer epoch is on disk

	free      lease.Free // what is left
	stale     bool       // free has to be counted again
	changed   bool       // something about it, since it was last told
	announced BootTime
	waiting   bool // for the timer that tells it
	seq       uint64
}

// batch is what is being saved between Step and Saved.
type batch struct {
	attempts []*attempt
	gone     []job.Attempt
	groups   []*group
	open     bool
}

// NewCore returns a worker that holds nothing and knows nobody.
func NewCore(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Core{
		cfg:      cfg,
		chance:   rand.New(rand.NewPCG(cfg.Seed, 0x6d7573746572)),
		seeker:   newSeeker(),
		groups:   map[job.Group]*group{},
		attempts: map[job.Attempt]*attempt{},
		offers:   map[offerKey]*offer{},
		perPeer:  map[job.Peer]int{},
		lapsed:   map[job.Attempt]*offer{},
		devices:  map[string]*device{},
		holders:  map[string]int{},
		gone:     map[job.Attempt]struct{}{},
		awaiting: map[job.Attempt]*attempt{},
		draining: cfg.Draining,
		limits:   cfg.Limits,
		usage:    map[string]usage{},
		refusals: newRefusals(),
		eased:    map[job.Peer]map[string]struct{}{},
	}
	var err error
	if c.room, err = newCapacity(cfg.Profile); err != nil {
		return nil, err
	}
	c.learnDevices()
	c.stale = true
	return c, nil
}

// Step begins a turn: it takes the events in order, ends the waits that are over, decides on the offers, and returns
// what must be on disk before anything is done about it. Without events it does what Wake asked for.
func (c *Core) Step(now Moment, events ...Event) Writes {
	for _, ev := range events {
		c.take(now, ev)
	}
	c.timers.fire(now)
	c.arbitrate(now)
	c.sendDeclines()
	return c.writes(now)
}

// take takes one event.
func (c *Core) take(now Moment, ev Event) {
	switch e := ev.(type) {
	case Up:
		c.up(now, e.Peer)
	case Down:
		c.down(e.Peer)
	case Message:
		c.message(now, e.From, e.Msg)
	case DriverEvent:
		c.driver(now, e)
	case Adopted:
		c.adopted(now, e.Found)
	case Admitted:
		c.admitted(now, e)
	case StopFailed:
		c.stopFailed(now, e.Attempt)
	case DeviceStatus:
		c.mps = e.MPS
		c.deviceStatus(now, e.Devices)
	case DeviceFault:
		c.deviceFault(now, e.Fault)
	case DeviceRestored:
		c.deviceRestored(e.UUID)
	case ProfileChanged:
		c.profileChanged(e.Profile)
	case Drain:
		c.drain(now, e)
	case LimitsChanged:
		c.setLimits(e.Limits)
	default:
		panic(fmt.Sprintf("worker: unknown event %T", ev))
	}
}

func (c *Core) message(now Moment, from job.Peer, msg lease.ToWorker) {
	switch m := msg.(type) {
	case lease.Owns:
		c.owns(now, from, m)
	case lease.Offer:
		c.offer(now, from, m)
	case lease.Release:
		c.release(from, m)
	case lease.Start:
		c.start(now, from, m)
	case lease.Query:
		c.query(now, from, m)
	case lease.Signal:
		c.signal(now, from, m)
	case lease.Cancel:
		c.cancel(now, from, m)
	case lease.Ack:
		c.ack(from, m)
	case lease.Renewed:
		c.renewed(now, from, m)
	default:
		panic(fmt.Sprintf("worker: unknown message %T", msg))
	}
}

// writes returns what must be on disk now. A start whose lease ran out before it could be written is refused instead.
func (c *Core) writes(now Moment) Writes {
	c.dirty = slices.DeleteFunc(c.dirty, func(a *attempt) bool { return !a.dirty })
	for _, a := range c.dirty {
		if a.rec.Phase == lease.PhaseStarted && !a.launched && !a.group.holds(now) {
			c.refuse(a, "the lease ran out while the ledger could not be written")
		}
	}
	if c.failed != nil && now.Boot < c.retry {
		return Writes{}
	}
	if len(c.dirty)+len(c.gone)+len(c.epochs) == 0 {
		return Writes{}
	}
	var w Writes
	w.Sync = len(c.epochs) > 0
	for _, a := range c.dirty {
		w.Put = append(w.Put, a.rec)
		w.Sync = w.Sync || a.lasting()
	}
	c.batch = batch{attempts: c.dirty, groups: c.epochs, open: true}
	c.dirty, c.epochs = nil, nil
	for _, g := range c.batch.groups {
		w.Epochs = append(w.Epochs, lease.GroupEpoch{Group: g.id, Epoch: g.epoch})
	}
	for a := range c.gone {
		c.batch.gone = append(c.batch.gone, a)
	}
	slices.SortFunc(c.batch.gone, compareAttempts)
	w.Gone = c.batch.gone
	return w
}

// Saved ends a turn: err is what became of the Writes that Step returned, nil if there was nothing to write. It returns
// what is to be done now. After an error nothing is done that had to be on disk first.
func (c *Core) Saved(now Moment, err error) Effects {
	b := c.batch
	c.batch = batch{}
	switch {
	case !b.open:
	case err == nil:
		c.saved(now, b)
	default:
		c.notSaved(now, b, err)
	}
	for _, r := range c.renewals {
		if g := c.groups[r.Group]; g != nil && c.connected(g.owner) {
			c.send(g.owner, r)
		}
	}
	c.renewals = nil
	c.sendDeclines()
	c.announce(now)
	if c.unsaid > 0 {
		c.out.Log = append(c.out.Log, Line{slog.LevelWarn, "log lines left out", []slog.Attr{slog.Int("lines", c.unsaid)}})
		c.unsaid = 0
	}
	c.out.Want, c.out.Unwant = c.seeker.take()
	out := c.out
	c.out = Effects{}
	if c.asideNew {
		kept := c.aside(now)
		out.Keep, c.asideNew = &kept, false
	}
	return out
}

func (c *Core) saved(now Moment, b batch) {
	if c.failed != nil {
		c.say(slog.LevelInfo, "ledger can be written again")
		c.failed, c.changed = nil, true
	}
	for _, g := range b.groups {
		g.unsaved = false
	}
	for _, a := range b.gone {
		delete(c.gone, a)
	}
	for _, a := range b.attempts {
		a.dirty, a.saved = false, true
		switch a.rec.Phase {
		case lease.PhaseReserved:
			if a.asked == nil { // else its commit was sent long ago
				c.sendCommit(now, a)
			}
		case lease.PhaseStarted:
			c.launch(now, a)
			c.tell(a)
		case lease.PhaseDone, lease.PhaseRefused:
			c.tell(a)
		}
	}
	c.out.Signal = append(c.out.Signal, c.gated.Signal...)
	for a, t := range c.gated.Extend {
		c.extend(a, t)
	}
	c.gated = Effects{}
}

// notSaved keeps all that has to be written, and takes back what nobody has
// been told yet: reservations and starts.
func (c *Core) notSaved(now Moment, b batch, err error) {
	if c.failed == nil {
		c.say(slog.LevelError, "ledger cannot be written: no new work is taken", slog.Any("error", err))
		c.changed = true
	}
	c.failed, c.look = err, true
	c.retry = now.Boot.Add(retrySave)
	c.timers.set(c.retry, func(Moment) {})
	c.epochs = b.groups
	c.gated.Signal = nil
	why := "ledger: " + err.Error()
	for _, a := range b.attempts {
		a.dirty, a.saved = false, true // it may be on disk for all we know
		switch o := a.offer; {
		case a.rec.Phase == lease.PhaseReserved && a.asked != nil:
			c.refuse(a, why)
		case a.rec.Phase == lease.PhaseReserved:
			c.unreserve(a)
			c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: clip(why)}, false)
		case a.rec.Phase == lease.PhaseStarted && !a.launched:
			c.refuse(a, why)
		default:
			c.put(a)
		}
	}
}

// Wake returns when the core wants a turn even if nothing happens until then; false if never.
func (c *Core) Wake() (BootTime, bool) {
	if len(c.timers.list) == 0 {
		return 0, false
	}
	return c.timers.list[0].at, true
}

// put marks the record of an attempt as not yet on disk.
func (c *Core) put(a *attempt) {
	delete(c.gone, a.rec.Attempt)
	if !a.dirty {
		a.dirty = true
		c.dirty = append(c.dirty, a)
	}
}

// lasting says that a restart must not find an older record than this one: its
// process is to be started now, or never was and never will be.
func (a *attempt) lasting() bool {
	switch a.rec.Phase {
	case lease.PhaseStarted:
		return !a.launched
	case lease.PhaseRefused:
		return true
	case lease.PhaseDone:
		return !a.rec.Exit.Started // the driver may never have heard of it
	case lease.PhaseReserved:
	}
	return false
}

// drop forgets an attempt, on disk too.
func (c *Core) drop(a *attempt) {
	delete(c.attempts, a.rec.Attempt)
	delete(a.group.running, a.rec.Attempt)
	delete(a.group.kept, a.rec.Attempt)
	c.seek(a.group)
	a.dirty = false
	if a.saved {
		c.gone[a.rec.Attempt] = struct{}{}
	}
}

// say has a line written to the log with the effects of this round.
func (c *Core) say(level slog.Level, msg string, attrs ...slog.Attr) {
	if len(c.out.Log) >= maxLines {
		c.unsaid++
		return
	}
	c.out.Log = append(c.out.Log, Line{level, msg, attrs})
}

// clip bounds a sentence for people.
func clip(s string) string {
	if len(s) <= lease.MaxDetail {
		return s
	}
	return s[:lease.MaxDetail]
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}
