// Package scheduler looks after the jobs that this daemon accepted: it derives their tasks, finds hosts, negotiates,
// places, watches and recovers.
//
// Core is a state machine without goroutine, clock or I/O. Step takes the time and what happened, and returns what is to
// be done. What must outlive the daemon follows from committed records alone. The rest comes back by asking: who has a
// session, what is free, which offers are under way, and what a host last said of a task. Package loop has
// the one goroutine around the core.
//
// The core keeps only an index entry of a job that ended long ago. The rest of it is in rows on disk.
//
// Package step has the events and effects, fleet holds what is known of the hosts, place and policy choose the best of the
// hosts that fit, and backlog bounds what waits.
//
// The safety rules R1 to R8 and R10 are kept here, each at the place that names it.
package scheduler

// The core joins the parts.
// See docs/adr, ADR 76.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/shares"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const forgetWorker = 24 * time.Hour

// Core is the scheduler of one daemon's jobs as a state machine. The same saved rows, seed and steps give the same
// effects.
//
// Each part has its own state, and only its functions change that state. A part uses only the parts before it in this
// list.
type Core struct {
	turn       *step.Turn
	search     *search.Search
	entries    *entries
	history    *history
	hosts      *hosts
	assigned   *assigned
	contact    *contact
	pending    *pending
	placement  *placement
	attempts   *attempts
	offers     *offers
	dispatches *dispatches
	plan       *planner
	reports    *reports
	explain    *explainer
	views      *views
	renewals   *renewals
	requests   *requests
	deaths     *deaths
	records    *records
}

// NewCore makes a core of the saved jobs. The configuration must be valid.
func NewCore(cfg step.Config, saved Saved, now time.Time) *Core {
	t := &step.Turn{
		Config: cfg, Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Group))), Now: now,
		Timers: timers.New[time.Time, func()](time.Time.Compare), Totals: step.NewTotals(),
	}
	c := &Core{turn: t}
	c.search = search.New(t)
	c.entries = &entries{
		Turn: t, table: state.NewTable(cfg.Group), applied: saved.Applied, byID: map[job.ID]*entry{}, started: now, holders: holders{},
	}
	c.history = &history{Turn: t, entries: c.entries, rows: saved.Applied, purging: map[uint64]bool{}}
	c.hosts = &hosts{Turn: t, workers: map[job.Peer]*worker{}, fleet: fleet.NewTable()}
	c.assigned = &assigned{byNode: map[job.Peer]map[*task]bool{}}
	sh := shares.New(t, cfg.Shares, c.hosts.delivers)
	c.contact = &contact{
		Turn: t, hosts: c.hosts, assigned: c.assigned, sessions: map[job.Peer]uint64{}, wanted: map[job.Peer]*want{},
		paths: map[job.Peer]contract.Path{}, distances: map[job.Peer]fleet.Distance{},
	}
	c.pending = &pending{
		Turn: t, hosts: c.hosts, search: c.search, shares: sh, shapes: map[string]*shape{}, begins: timers.New[time.Time, *entry](time.Time.Compare),
		parents: &parents{Turn: t, entries: c.entries, followed: map[job.ID]*parent{}, inLine: map[job.ID]bool{}, under: map[job.ID]int{}},
	}
	ps := newPolicies(&cfg)
	c.placement = &placement{
		Turn: t, policies: ps, hosts: c.hosts, pending: c.pending, placer: newPlacer(&cfg, c.hosts, ps), leftOut: &leftOut{by: map[*entry]*tallies{}},
	}
	c.attempts = &attempts{Turn: t, entries: c.entries, hosts: c.hosts, contact: c.contact, renewed: renewed{}}
	c.offers = &offers{Turn: t, hosts: c.hosts, byID: map[uint64]*offer{}, kept: map[*worker]int{}}
	stood := &setAsides{Turn: t, hosts: c.hosts, pending: c.pending, offers: c.offers}
	c.dispatches = &dispatches{
		Turn: t, entries: c.entries, hosts: c.hosts, contact: c.contact, pending: c.pending, placement: c.placement,
		attempts: c.attempts, offers: c.offers, setAsides: stood,
		elections: &elections{Turn: t, hosts: c.hosts, offers: c.offers, setAsides: stood},
	}
	c.pending.hurry = func(t *task) { hurry(c.dispatches, t) }
	gathering := newGangs(c)
	c.plan = &planner{
		Turn: t, hosts: c.hosts, search: c.search, pending: c.pending, placement: c.placement, dispatches: c.dispatches,
		gangs: gathering, allotments: newAllotments(t, c.entries, c.hosts, c.pending),
	}
	c.reports = &reports{
		Turn: t, entries: c.entries, hosts: c.hosts, attempts: c.attempts, dispatches: c.dispatches, acks: map[job.Attempt]ack{},
	}
	c.explain = &explainer{Turn: t, policies: ps, hosts: c.hosts}
	c.views = &views{
		Turn: t, entries: c.entries, hosts: c.hosts, pending: c.pending, attempts: c.attempts, explain: c.explain,
		placement: c.placement, allot: c.plan.allotments,
	}
	c.renewals = &renewals{
		Turn: t, entries: c.entries, assigned: c.assigned, contact: c.contact, attempts: c.attempts, dispatches: c.dispatches,
	}
	c.requests = &requests{
		Turn: t, entries: c.entries, history: c.history, hosts: c.hosts, search: c.search, explain: c.explain, views: c.views,
	}
	c.requests.clear()
	c.deaths = &deaths{
		Turn: t, hosts: c.hosts, assigned: c.assigned, attempts: c.attempts, dispatches: c.dispatches, requests: c.requests,
		byHost: map[job.Peer]*death{},
	}
	c.records = &records{
		Turn: t, policies: ps, entries: c.entries, history: c.history, assigned: c.assigned, contact: c.contact, pending: c.pending,
		attempts: c.attempts, dispatches: c.dispatches, leftOut: c.placement.leftOut, gangStarts: gathering.starts, reports: c.reports, requests: c.requests, deaths: c.deaths,
		reset: &backoffReset{Turn: t, entries: c.entries, search: c.search, pending: c.pending, views: c.views, requests: c.requests},
	}
	joinFiles(c)
	c.restore(saved)
	armTimers(c)
	t.Effects = step.Effects{}
	return c
}

// armTimers arms the timers that forget what is old, and the timer that looks for tasks that have waited for long. Each
// arms itself again.
func armTimers(c *Core) {
	(&overdue{Turn: c.turn, entries: c.entries, pending: c.pending}).begin()
	c.turn.After(forgetWorker/4, c.forgetWorkers)
	c.turn.After(giveUpEvery, c.contact.giveUpIdle)
	c.turn.After(unrenewedEvery, (&unrenewed{Turn: c.turn, assigned: c.assigned, attempts: c.attempts, dispatches: c.dispatches}).look)
	c.turn.After(purgeEvery, c.history.purgeOld)
}

// newGangs makes the parts of the core for gangs. The parts for single tasks exist already.
func newGangs(c *Core) *gangs {
	return &gangs{
		Turn: c.turn, entries: c.entries, hosts: c.hosts, pending: c.pending, placement: c.placement, offers: c.offers,
		dispatches: c.dispatches,
		seats: &seats{
			Turn: c.turn, entries: c.entries, hosts: c.hosts, contact: c.contact, offers: c.offers, dispatches: c.dispatches,
		},
		starts: &gangStarts{
			Turn: c.turn, entries: c.entries, contact: c.contact, pending: c.pending, attempts: c.attempts, offers: c.offers,
			dispatches: c.dispatches,
		},
		neighbours: &neighbours{
			Turn: c.turn, hosts: c.hosts, search: c.search, placement: c.placement, pending: c.pending, sought: map[string]time.Time{},
		},
	}
}

// restore loads the jobs of an earlier life of the daemon, the oldest first.
func (c *Core) restore(saved Saved) {
	for _, x := range saved.final {
		ended := x.Ended()
		if ended.IsZero() {
			ended = c.turn.Now
		}
		c.entries.table.LoadArchived(x)
		c.history.ended = append(c.history.ended, ending{x.Number(), ended.UnixNano()})
	}
	slices.SortFunc(saved.whole, func(a, b *state.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, j := range saved.whole {
		c.entries.wrote(j.Queued)
		c.entries.wrote(j.ClosedAt())
		c.entries.table.Load(j)
	}
	for _, j := range c.entries.table.Jobs() {
		c.records.settleAll(c.records.add(j), nil)
	}
	slices.SortFunc(c.history.ended, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
	})
}

// forgetOne forgets the host whose session ended longest ago. It returns false if no host may be forgotten.
func (c *Core) forgetOne() bool {
	oldest := c.hosts.fleet.LongestAway(c.assigned.busy)
	if oldest != nil {
		c.pending.forgetHost(c.hosts.workers[oldest.Peer])
	}
	return oldest != nil
}

// forgetWorkers forgets the hosts that have had no session for long. It arms its own timer again.
func (c *Core) forgetWorkers() {
	for _, h := range c.hosts.fleet.AwaySince(c.turn.Now.Add(-forgetWorker)) {
		if !c.assigned.busy(h.Peer) {
			c.pending.forgetHost(c.hosts.workers[h.Peer])
		}
	}
	c.attempts.renewed.forget(c.turn.Now.Add(-forgetWorker - job.MaxLease))
	c.turn.After(forgetWorker/4, c.forgetWorkers)
}

// joinFiles makes the part of the core that reads job files, and the backlog.
func joinFiles(c *Core) {
	c.entries.backlog = backlog.New(c.turn.Config.Backlog)
	fs := &files{Turn: c.turn, entries: c.entries}
	fs.ready = func(e *entry) { fileReady(c.dispatches, c.plan.gangs.starts, e) }
	fs.failed = func(e *entry, err error) { unreadableFile(c.dispatches, e, err) }
	c.dispatches.files, c.history.files = fs, fs
}

// hurry makes a task wait again, so that it gets the level that is due now. A task that a host has already committed to
// goes on. hurry then tries again after a minute, in case it does not start.
func hurry(ds *dispatches, t *task) {
	d := t.dispatch
	switch {
	case t.queued:
		ds.pending.dequeue(t)
		ds.pending.requeue(t)
	case d != nil && t.phase == offering && d.winner == nil && (d.gang == nil || d.seats()[seated] < d.gang.size):
		ds.abandon(d)
	case d != nil:
		t.lined.timer = ds.After(time.Minute, func() { hurry(ds, t) })
	}
}
