package worker

// The core: it joins the parts of the worker, passes each event to the part that handles it, and orders the effects.
// See docs/adr, ADR 71.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
	"github.com/musterhq/muster/worker/useraccounts"
)

// Core decides which tasks get the resources of this host. A turn consists of two calls:
//
//	Step(now, events...) Writes   handles all waiting events, and returns what must be written to disk;
//	Saved(now, err) Effects       takes the result of that write, and returns what to do now.
//
// A turn needs two calls because the ledger must be on disk before anything that depends on it is sent or started (W2,
// W3, R2, R6), and because the core does no I/O. Saved is called once after each Step, even if there is nothing to write.
//
// A Core is used by one goroutine. It is deterministic: the same calls return the same results.
//
// Each part has its own state, which only its functions change. A part uses only the parts before it in this list.
//
// Log lines, and questions to the host's policy, are effects too. So a turn depends on its arguments alone, and a test or a
// simulation can replay it.
type Core struct {
	cfg          *Config
	turn         *step.Turn
	account      *resources.Account // including the quotas
	health       *health.Health     // including the devices and the breakers
	ledger       *ledger
	sessions     *sessions
	reports      *reports
	queue        *admission.Queue
	leases       *leases
	attempts     *attempts
	commands     *commands
	reservations *reservations
	wounds       *wounds
	preemption   *preemption
	drain        *drainState
	availability *availability
	offers       *offers
	starts       *starts
}

// NewCore returns a worker without attempts and sessions. It returns an error if the config is not valid.
func NewCore(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Core{
		cfg: &cfg, turn: step.New(), ledger: &ledger{gone: map[job.Attempt]struct{}{}}, sessions: newSessions(cfg.Profile.Peer),
	}
	c.cfg.Profile.Limits = cfg.Limits.Announced(cfg.Priorities)
	var err error
	if c.account, err = resources.NewAccount(c.cfg.Profile, cfg.Limits, cfg.Shares, cfg.Usage, c.turn); err != nil {
		return nil, err
	}
	c.health = health.New(cfg.Boot, cfg.Profile.GPUs, cfg.Quarantine, c.turn, c.account)
	c.reports = &reports{turn: c.turn, ledger: c.ledger, keeping: admission.NewKeeping(c.turn)}
	c.queue = admission.NewQueue(c.turn, c.account.Meter)
	c.leases = &leases{
		cfg: c.cfg, turn: c.turn, ledger: c.ledger, sessions: c.sessions, reports: c.reports,
		random: rand.New(rand.NewPCG(cfg.Seed, 0x6d7573746572)), claims: newClaims(c.turn, c.ledger, c.sessions),
	}
	c.attempts = &attempts{
		refusals: refusals{claims: c.leases.claims},
		cfg:      c.cfg, turn: c.turn, account: c.account, health: c.health, ledger: c.ledger, sessions: c.sessions, reports: c.reports,
		queue: c.queue, ports: newPorts(c.cfg, c.turn), by: map[job.Attempt]*attempt{}, awaiting: map[job.Attempt]*attempt{},
	}
	c.commands = &commands{cfg: c.cfg, turn: c.turn, reports: c.reports, leases: c.leases, attempts: c.attempts}
	c.reservations = &reservations{
		lapses: lapses{},
		turn:   c.turn, account: c.account, sessions: c.sessions, reports: c.reports, queue: c.queue, leases: c.leases, attempts: c.attempts,
	}
	c.wounds = &wounds{account: c.account, queue: c.queue, attempts: c.attempts, reservations: c.reservations}
	c.preemption = &preemption{account: c.account, queue: c.queue, attempts: c.attempts, reservations: c.reservations, wounds: c.wounds}
	c.drain = &drainState{turn: c.turn, health: c.health, attempts: c.attempts, now: cfg.Draining}
	c.availability = &availability{
		cfg: c.cfg, account: c.account, health: c.health, ledger: c.ledger, attempts: c.attempts, drain: c.drain, reports: c.reports,
	}
	c.offers = &offers{
		cfg: c.cfg, turn: c.turn, account: c.account, sessions: c.sessions, reports: c.reports, queue: c.queue, leases: c.leases,
		attempts: c.attempts, reservations: c.reservations, wounds: c.wounds, preemption: c.preemption, availability: c.availability,
		residents: useraccounts.New(cfg.LookUp, c.turn),
	}
	c.starts = &starts{
		cfg: c.cfg, turn: c.turn, ledger: c.ledger, sessions: c.sessions, reports: c.reports, queue: c.queue, leases: c.leases,
		attempts: c.attempts, reservations: c.reservations, drain: c.drain, availability: c.availability,
	}
	return c, nil
}

// Step begins a turn. It handles the events in order, fires the timers that are due, decides on the offers, and returns
// what must be written to disk. A turn without events is for the timers; see Wake.
func (c *Core) Step(now leaseclock.Moment, events ...Event) Writes {
	c.turn.Begin(now.Boot)
	for _, ev := range events {
		c.take(now, ev)
	}
	c.turn.Timers.Fire(now)
	c.offers.arbitrate(now)
	c.reports.sendDeclines(c.account)
	for _, a := range c.ledger.changed() {
		if a.phase == starting && !a.group.holds(now) {
			c.attempts.refuse(a, "the lease ran out while the ledger could not be written")
		}
	}
	return c.ledger.writes(now)
}

// take passes an event to the part that handles it.
func (c *Core) take(now leaseclock.Moment, ev Event) {
	switch e := ev.(type) {
	case Up:
		c.up(now, e)
	case Down:
		c.down(e.Peer)
	case Message:
		c.message(now, e.From, e.Msg)
	case driver.Event:
		c.attempts.reported(now, e)
	case Adopted:
		c.health.Load(now)
		c.account.Meter.Load(now, c.cfg.Boot, c.attempts.holding(), e.Found)
		c.attempts.adopted(now, e)
		c.leases.claims.begin(now)
		c.attempts.begin(now)
		c.drain.arm(now)
	case Admitted:
		c.starts.admitted(now, e)
	case PortFound:
		c.reservations.portFound(now, e)
	case LookedUp:
		c.offers.lookedUp(now, e)
	case StopFailed:
		c.attempts.stopFailed(now, e.Attempt)
	case DeviceStatus:
		c.attempts.returned(now, c.health.Status(now, e.Devices, e.Tasks))
	case DeviceFault:
		c.health.Reported(now, e.Fault)
	case DeviceRestored:
		c.health.ResetDevice(e.UUID)
	case ProfileChanged:
		c.profileChanged(now, e.Profile)
	case Drain:
		c.drain.set(now, e)
	case RoomChanged:
		c.availability.roomChanged(e.Why)
	case LimitsChanged:
		c.limitsChanged(e)
	case ForgetClaim:
		c.leases.claims.forget(e.Group)
	case SharesChanged:
		c.sharesChanged(e)
	default:
		panic(fmt.Sprintf("worker: unknown event %T", ev))
	}
}

func (c *Core) message(now leaseclock.Moment, from job.Peer, msg contract.ToWorker) {
	switch m := msg.(type) {
	case contract.Owns:
		c.leases.owns(now, from, m)
	case contract.Offer:
		c.offers.offer(now, from, m)
	case contract.Release:
		c.offers.residents.Drop(from, m.Offer)
		c.reservations.release(from, m)
	case contract.Start:
		c.starts.start(now, from, m)
	case contract.Query:
		c.commands.query(now, from, m)
	case contract.Signal:
		c.commands.signal(now, from, m)
	case contract.Cancel:
		c.commands.cancel(now, from, m)
	case contract.Ack:
		c.commands.ack(from, m)
	case contract.Renewed:
		if g := c.leases.renewed(now, from, m); g != nil {
			c.starts.resume(now, g)
			c.commands.verdicts(now, g, m)
		}
	default:
		panic(fmt.Sprintf("worker: unknown message %T", msg))
	}
}

// Saved ends a turn and returns what to do now. The error is that of writing what Step returned; it is nil if there was
// nothing to write. After an error, Saved returns nothing that depends on the write.
func (c *Core) Saved(now leaseclock.Moment, err error) Effects {
	c.turn.Begin(now.Boot)
	failed := c.ledger.failed
	switch b := c.ledger.saved(now, err); {
	case !b.open:
	case err == nil:
		if failed != nil {
			c.turn.Log(slog.LevelInfo, "ledger can be written again")
			c.turn.Announce()
		}
		c.saved(now, b)
	default:
		if failed == nil {
			c.turn.Log(slog.LevelError, "ledger cannot be written: no new work is taken", slog.Any("error", err))
			c.turn.Announce()
		}
		c.notSaved(b, err)
	}
	c.leases.send()
	c.reports.sendDeclines(c.account)
	if refusals := &c.account.Quotas.Refusals; c.reports.due(now, refusals) {
		c.reports.announce(now, c.sessions.peers, c.availability.message(), refusals)
	}
	if c.account.Meter.IsDue() {
		c.availability.tellUsage(c.sessions.peers)
	}
	c.drain.settle()
	out := Effects{Effects: c.turn.End()}
	out.Want, out.Unwant = c.sessions.take()
	out.Keep = c.health.TakeUnsaved(now)
	out.KeepUsage = c.account.Meter.Record(now, c.cfg.Boot)
	return out
}

// saved does what had to wait until the batch was on disk.
func (c *Core) saved(now leaseclock.Moment, b batch) {
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

// notSaved handles a failed write. It undoes the reservations and starts that were not announced yet. Everything else
// in the batch is written again later. The owners are told at once what has happened: they record it themselves, and what
// this host reads from disk after a crash starts no task again.
func (c *Core) notSaved(b batch, err error) {
	c.turn.Arbitrate()
	c.turn.Timers.Set(c.ledger.retry, func(leaseclock.Moment) {})
	c.leases.signals = nil
	why := "ledger: " + err.Error()
	for _, a := range b.attempts {
		switch a.phase {
		case asked, starting:
			c.attempts.refuse(a, why)
			c.reports.tell(a)
		case reserving, reserved:
			c.reservations.undo(a)
			c.reports.decline(a.offer.Key.Peer, a.offer.Msg, job.Reason{Word: job.ReasonResources, Detail: contract.Clip(why)}, false)
		case launched, completing, done, refused:
			c.ledger.put(a)
			c.reports.tell(a)
		}
	}
}

// Wake returns when the next timer is due; false if there is none. The core then needs a turn even without events.
func (c *Core) Wake() (leaseclock.BootTime, bool) { return c.turn.Timers.Next() }

// up handles a new session. It sends Hello, then the events that the peer has not acknowledged, then requests renewals.
func (c *Core) up(now leaseclock.Moment, e Up) {
	p := e.Peer
	c.down(p)
	c.sessions.open(p, e.Path)
	c.availability.sendHello(p)
	for _, g := range c.leases.of(p) {
		c.leases.resync(now, g)
	}
}

func (c *Core) down(p job.Peer) {
	if !c.sessions.close(p) {
		return
	}
	delete(c.leases.claims.ignored, p)
	for _, g := range c.leases.of(p) {
		g.resynced = false
	}
	c.account.Quotas.Refusals.Forget(p)
	c.reports.forecasts.Forget(p)
	c.offers.residents.Drop(p, 0)
	c.queue.DropPeer(p)
	c.reservations.disconnected(p)
}

func (c *Core) profileChanged(now leaseclock.Moment, p contract.Profile) {
	if err := c.account.SetProfile(p); err != nil {
		c.turn.Log(slog.LevelError, "profile of this host is not usable", slog.Any("error", err))
		return
	}
	p.Limits = c.cfg.Profile.Limits
	c.cfg.Profile = p
	c.health.List(now, p.GPUs)
	c.offers.declineImpossible()
	c.helloAll()
}

// helloAll sends Hello again to all schedulers, because the profile, or what this host refuses for good, has changed.
func (c *Core) helloAll() {
	for _, to := range c.sessions.peers {
		c.availability.sendHello(to)
	}
}

// sharesChanged replaces the weights of the shares, by which the queue is sorted.
func (c *Core) sharesChanged(e SharesChanged) {
	c.account.Meter.SetWeights(e.Weights)
	c.queue.Resort()
}

// limitsChanged replaces the limits. If that changes what schedulers were told of them, all schedulers get Hello again:
// the host may now accept what it has refused for good before.
func (c *Core) limitsChanged(e LimitsChanged) {
	c.account.SetLimits(e.Limits)
	told := e.Limits.Announced(e.Priorities)
	if c.cfg.Priorities.Equal(e.Priorities) && c.cfg.Profile.Limits.Equal(told) {
		return
	}
	c.cfg.Priorities, c.cfg.Profile.Limits = e.Priorities, told
	c.offers.declineImpossible()
	c.helloAll()
}

// Usage returns what users and projects have used of this host.
func (c *Core) Usage(now leaseclock.Moment) resources.UsageView {
	return c.account.Usage(now, c.cfg.Priorities)
}

// Profile returns the profile of this host.
func (c *Core) Profile() contract.Profile { return c.cfg.Profile }
