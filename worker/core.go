package worker

// The core: it joins the rooms, hands each event to the one that it concerns, and keeps the order of effects.
// See docs/adr, ADR 71.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"

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
//
// Each room has a state of its own, which only its functions change. A room knows those before it in this list.
type Core struct {
	cfg          *Config
	turn         *turn
	account      *account // with the quotas
	health       *health  // with the devices and the breakers
	ledger       *ledger
	sessions     *sessions
	reports      *reports
	queue        *queue
	leases       *leases
	attempts     *attempts
	commands     *commands
	reservations *reservations
	drain        *drainage
	gate         *gate
	offers       *offers
	starts       *starts
}

// NewCore returns a worker that holds nothing and knows nobody. An error says what is wrong with the config.
func NewCore(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Core{
		cfg: &cfg, turn: &turn{timers: newAlarms()}, ledger: &ledger{gone: map[job.Attempt]struct{}{}}, sessions: newSessions(cfg.Profile.Peer),
	}
	var err error
	if c.account, err = newAccount(c.cfg, c.turn); err != nil {
		return nil, err
	}
	c.health = newHealth(c.cfg, c.turn, c.account)
	c.reports = &reports{turn: c.turn}
	c.queue = newQueue(c.turn)
	c.leases = &leases{
		cfg: c.cfg, turn: c.turn, ledger: c.ledger, sessions: c.sessions, reports: c.reports,
		chance: rand.New(rand.NewPCG(cfg.Seed, 0x6d7573746572)), groups: map[job.Group]*group{},
	}
	c.attempts = &attempts{
		cfg: c.cfg, turn: c.turn, account: c.account, health: c.health, ledger: c.ledger, sessions: c.sessions, reports: c.reports,
		queue: c.queue, by: map[job.Attempt]*attempt{}, awaiting: map[job.Attempt]*attempt{},
	}
	c.commands = &commands{cfg: c.cfg, turn: c.turn, reports: c.reports, leases: c.leases, attempts: c.attempts}
	c.reservations = &reservations{
		turn: c.turn, account: c.account, reports: c.reports, queue: c.queue, leases: c.leases, attempts: c.attempts,
	}
	c.drain = &drainage{turn: c.turn, health: c.health, attempts: c.attempts, now: cfg.Draining}
	c.gate = &gate{
		cfg: c.cfg, account: c.account, health: c.health, ledger: c.ledger, attempts: c.attempts, drain: c.drain, reports: c.reports,
	}
	c.offers = &offers{
		cfg: c.cfg, turn: c.turn, account: c.account, sessions: c.sessions, reports: c.reports, queue: c.queue, leases: c.leases,
		attempts: c.attempts, reservations: c.reservations, gate: c.gate,
	}
	c.starts = &starts{
		cfg: c.cfg, turn: c.turn, ledger: c.ledger, sessions: c.sessions, reports: c.reports, queue: c.queue, leases: c.leases,
		attempts: c.attempts, reservations: c.reservations, drain: c.drain, gate: c.gate,
	}
	return c, nil
}

// Step begins a turn: it takes the events in order, ends the waits that are over, decides on the offers, and returns
// what must be on disk before anything is done about it. Without events it does what Wake asked for.
func (c *Core) Step(now Moment, events ...Event) Writes {
	for _, ev := range events {
		c.take(now, ev)
	}
	c.turn.timers.fire(now)
	c.offers.arbitrate(now)
	c.reports.sendDeclines(c.account)
	for _, a := range c.ledger.changed() {
		if a.phase == starting && !a.group.holds(now) {
			c.attempts.refuse(a, "the lease ran out while the ledger could not be written")
		}
	}
	return c.ledger.writes(now)
}

// take hands an event to the room that it concerns.
func (c *Core) take(now Moment, ev Event) {
	switch e := ev.(type) {
	case Up:
		c.up(now, e.Peer)
	case Down:
		c.down(e.Peer)
	case Message:
		c.message(now, e.From, e.Msg)
	case DriverEvent:
		c.attempts.reported(now, e)
	case Adopted:
		c.health.takeUp(now)
		c.attempts.adopted(now, e.Found)
		c.drain.arm(now)
	case Admitted:
		c.starts.admitted(now, e)
	case StopFailed:
		c.attempts.stopFailed(now, e.Attempt)
	case DeviceStatus:
		c.health.devices.mps = e.MPS
		c.attempts.returned(now, c.health.devices.status(now, e.Devices))
	case DeviceFault:
		c.health.devices.reported(now, e.Fault, c.cfg.Profile.GPUs)
	case DeviceRestored:
		c.health.devices.restore(e.UUID)
	case ProfileChanged:
		c.profileChanged(e.Profile)
	case Drain:
		c.drain.set(now, e)
	case LimitsChanged:
		c.account.setLimits(e.Limits)
	default:
		panic(fmt.Sprintf("worker: unknown event %T", ev))
	}
}

func (c *Core) message(now Moment, from job.Peer, msg lease.ToWorker) {
	switch m := msg.(type) {
	case lease.Owns:
		c.leases.owns(now, from, m)
	case lease.Offer:
		c.offers.offer(now, from, m)
	case lease.Release:
		c.reservations.release(from, m)
	case lease.Start:
		c.starts.start(now, from, m)
	case lease.Query:
		c.commands.query(now, from, m)
	case lease.Signal:
		c.commands.signal(now, from, m)
	case lease.Cancel:
		c.commands.cancel(now, from, m)
	case lease.Ack:
		c.commands.ack(from, m)
	case lease.Renewed:
		if g := c.leases.renewed(now, from, m); g != nil {
			c.starts.resume(now, g)
			c.commands.verdicts(now, g, m)
		}
	default:
		panic(fmt.Sprintf("worker: unknown message %T", msg))
	}
}

// Saved ends a turn: err is what became of the Writes that Step returned, nil if there was nothing to write. It returns
// what is to be done now. After an error nothing is done that had to be on disk first.
func (c *Core) Saved(now Moment, err error) Effects {
	failed := c.ledger.failed
	switch b := c.ledger.saved(now, err); {
	case !b.open:
	case err == nil:
		if failed != nil {
			c.turn.log(slog.LevelInfo, "ledger can be written again")
			c.turn.announce = true
		}
		c.saved(now, b)
	default:
		if failed == nil {
			c.turn.log(slog.LevelError, "ledger cannot be written: no new work is taken", slog.Any("error", err))
			c.turn.announce = true
		}
		c.notSaved(b, err)
	}
	c.leases.send()
	c.reports.sendDeclines(c.account)
	if refusals := &c.account.quotas.refusals; c.reports.due(now, refusals) {
		c.reports.announce(now, c.sessions.peers, c.gate.news(), refusals)
	}
	out := c.turn.end()
	out.Want, out.Unwant = c.sessions.take()
	if c.turn.keep {
		kept := c.health.record(now)
		out.Keep, c.turn.keep = &kept, false
	}
	return out
}

// saved does what waited for the batch to be on disk.
func (c *Core) saved(now Moment, b batch) {
	for _, a := range b.attempts {
		switch a.phase {
		case reserving:
			c.reservations.commit(now, a)
		case reserved, asked:
		case starting:
			c.attempts.launch(now, a)
			c.reports.tell(a)
		case launched, completing, done, refused:
			c.reports.tell(a)
		}
	}
	c.leases.saved()
}

// notSaved keeps all that has to be written, and takes back what nobody has been told yet: reservations and starts.
func (c *Core) notSaved(b batch, err error) {
	c.turn.arbitrate = true
	c.turn.timers.set(c.ledger.retry, func(Moment) {})
	c.leases.signals = nil
	why := "ledger: " + err.Error()
	for _, a := range b.attempts {
		switch a.phase {
		case asked, starting:
			c.attempts.refuse(a, why)
		case reserving, reserved:
			c.reservations.undo(a)
			c.reports.decline(a.offer.key.peer, a.offer.msg, job.Reason{Word: job.ReasonResources, Detail: lease.Clip(why)}, false)
		case launched, completing, done, refused:
			c.ledger.put(a)
		}
	}
}

// Wake returns when the core wants a turn even if nothing happens until then; false if never.
func (c *Core) Wake() (BootTime, bool) { return c.turn.timers.next() }

// up opens a session: who this is, then whatever the peer has not acknowledged, then what asks for renewal.
func (c *Core) up(now Moment, p job.Peer) {
	c.down(p)
	c.sessions.open(p)
	c.gate.hello(p)
	for _, g := range c.leases.of(p) {
		c.leases.greet(now, g)
	}
}

func (c *Core) down(p job.Peer) {
	if !c.sessions.close(p) {
		return
	}
	for _, g := range c.leases.of(p) {
		g.greeted = false
	}
	c.account.quotas.refusals.forget(p)
	c.queue.leave(p)
}

func (c *Core) profileChanged(p lease.Profile) {
	if err := c.account.setProfile(p); err != nil {
		c.turn.log(slog.LevelError, "profile of this host is not usable", slog.Any("error", err))
		return
	}
	c.cfg.Profile = p
	c.health.devices.learn(p.GPUs)
	c.offers.declineImpossible()
	for _, to := range c.sessions.peers {
		c.gate.hello(to)
	}
}

// Profile is what this host could ever give.
func (c *Core) Profile() lease.Profile { return c.cfg.Profile }
