package scheduler

// The core: its state, the step, and what a committed record sets off.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
	"github.com/musterhq/muster/timers"
)

// Core is the scheduler of one daemon's jobs as a state machine: same saved
// rows, same seed, same steps, same effects.
type Core struct {
	cfg    Config
	rng    *rand.Rand
	policy policy.Policy
	now    time.Time
	fx     Effects

	// Durable: a function of the committed records.
	table   *jobs.Table
	applied uint64
	steps   uint64 // taken

	// Ownership (R10): nothing is done before lead.
	lead   bool
	epoch  job.Epoch
	leadAt time.Time

	// Soft: forgotten with the daemon.
	jobs       map[job.ID]*entry   // all but the archived ones
	sessions   map[job.Peer]uint64 // and which of this daemon's life each is
	sessionSeq uint64
	wanted     wanted // sessions that this scheduler asked for
	workers    map[job.Peer]*worker
	fleet      fleet.Table                 // the same, as a table to search
	byNode     map[job.Peer]map[*task]bool // assigned tasks
	groups     map[string]*group
	classes    map[string]*class
	offers     map[uint64]*offer
	started    time.Time            // the first step's time: with it the wall clock of this life is steady
	youngest   time.Time            // born of the newest job
	newest     time.Time            // that a row or a record tells, by the wall clock of whoever wrote it
	renewed    map[string]time.Time // by store: when a renewal was last answered (R4)
	acks       map[job.Attempt]ack  // events to acknowledge once their record is applied
	ready      groupHeap            // requests to look at
	parked     waitlist             // the first task of each request without room when last looked at
	queued     waitlist             // tasks whose offers queue at full hosts
	freedHosts []*worker            // may take more than when the waiting tasks were last compared with them
	profiles   uint64               // rises when the known hosts change
	outgoing   int                  // records proposed and not yet applied
	again      bool                 // the plan stopped at a bound
	asks       asks
	deaths     map[job.Peer]*death // hosts whose attempts are being given up
	renewals   renewals
	rows       uint64          // entries up to this one are in the rows on disk
	ended      []ending        // jobs that ended, oldest first
	purging    map[uint64]bool // numbers of those whose Purge is under way
	final      []*entry        // jobs to archive, oldest end first
	unsaved    []*entry        // whose rows this step has changed
	tailed     []*entry        // whose tails may leave memory once their rows are on disk
	announce   bool            // wants may have changed
	wants      []Want          // announced last
	timers     *timers.Heap[time.Time, func()]
}

// entry is a job and what is known of it beyond the journal.
type entry struct {
	job      *jobs.Job // durable
	priority int       // of the job
	born     time.Time // orders jobs by age, whatever has become of the wall clock since
	tasks    []*task   // that have not ended, by index
	ended    time.Time // when this daemon learnt of the end
	final    bool      // in Core.final, or was
	saving   bool      // in Core.unsaved
	tailed   bool      // in Core.tailed
	showing  bool      // in fx.Changed
	// changedAt is the entry of the journal that its row must reflect.
	changedAt uint64
}

// task is the soft half of a task.
type task struct {
	e     *entry
	index int
	group *group // of equal requests; nil until it first waits
	node  job.Peer

	queued    bool // in its group's line
	waiting   bool // counted by its class
	notBefore time.Time
	armed     time.Time // a timer is set for this notBefore
	why       string    // of notBefore, for people
	avoid     []avoidance
	declines  int

	flight   *flight // offers under way
	proposed int     // attempt whose Assign is under way, 0 if none
	givenUp  int     // attempt whose Unassign was proposed: never started or kept again (R7)
	started  int     // attempt whose Start was sent

	reported   bool // the worker has spoken of the attempt in this session
	cancelSent bool // in this session
	seen       job.State
	report     *timer // armed while nothing was heard of the attempt since its Start
	detail     string // what it waits for while STARTING
	pid        int
	isolation  string
	devices    []string
	since      time.Time // its process began, for people
	checkAt    time.Time
}

func (t *task) durable() jobs.Brief { return t.e.job.Brief(t.index) }

// task is the soft half of one of the job's tasks.
func (e *entry) task(index int) *task {
	i, there := slices.BinarySearchFunc(e.tasks, index, func(t *task, index int) int { return cmp.Compare(t.index, index) })
	if !there {
		e.tasks = slices.Insert(e.tasks, i, &task{e: e, index: index})
	}
	return e.tasks[i]
}

// drop forgets the soft half of a task that has ended.
func (e *entry) drop(t *task) {
	if i := slices.Index(e.tasks, t); i >= 0 {
		e.tasks = slices.Delete(e.tasks, i, i+1)
	}
}

// attempt names the task's newest attempt.
func (t *task) attempt() job.Attempt {
	return job.Attempt{Job: t.e.job.ID, Task: t.index, N: t.durable().Attempt}
}

// NewCore restores the saved jobs. The configuration is valid.
func NewCore(cfg Config, saved Saved, now time.Time) *Core {
	c := &Core{
		cfg: cfg, policy: policy.Simple{}, now: now, started: now,
		rng:      rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Group))),
		jobs:     map[job.ID]*entry{},
		table:    jobs.NewTable(cfg.Group),
		applied:  saved.Applied,
		rows:     saved.Applied,
		timers:   timers.New[time.Time, func()](time.Time.Compare),
		purging:  map[uint64]bool{},
		sessions: map[job.Peer]uint64{},
		wanted:   newWanted(),
		fleet:    fleet.NewTable(),
		workers:  map[job.Peer]*worker{},
		byNode:   map[job.Peer]map[*task]bool{},
		groups:   map[string]*group{},
		classes:  map[string]*class{},
		offers:   map[uint64]*offer{},
		renewed:  map[string]time.Time{},
		acks:     map[job.Attempt]ack{},
		asks:     newAsks(),
		deaths:   map[job.Peer]*death{},
	}
	c.restore(saved)
	c.after(forgetWorker/4, c.forgetWorkers)
	c.after(giveUpEvery, c.giveUpIdle)
	c.after(purgeEvery, c.purgeOld)
	c.fx = Effects{}
	return c
}

// Step takes the time and what happened, in order, and returns what is to be
// done about it. A Step with no event is a tick.
func (c *Core) Step(now time.Time, events ...Event) Effects {
	if now.After(c.now) {
		c.now = now
	}
	c.steps++
	c.runTimers()
	for _, e := range events {
		c.handle(e)
	}
	c.plan()
	c.announceWants()
	c.retire()
	c.takeRows()
	for _, id := range c.fx.Changed {
		if e := c.jobs[id]; e != nil {
			e.showing = false
		}
	}
	fx := c.fx
	c.fx = Effects{}
	return fx
}

// Wake is when the next Step is due if nothing happens before; zero for never.
func (c *Core) Wake() time.Time {
	if c.again {
		return c.now
	}
	next, _ := c.timers.Next()
	return next
}

// Applied is the index of the last entry that the rows in Effects reflect.
func (c *Core) Applied() uint64 { return c.applied }

func (c *Core) handle(e Event) {
	switch e := e.(type) {
	case SubmitAsk:
		c.ask(e.Token, func() { c.submit(e) })
	case CancelAsk:
		c.ask(e.Token, func() { c.cancel(e) })
	case HoldAsk:
		c.ask(e.Token, func() { c.hold(e) })
	case DeclareDeadAsk:
		c.ask(e.Token, func() { c.declareDead(e) })
	case Committed:
		c.committed(e.Committed)
	case Deposed:
		c.deposed(e.Epoch)
	case NotProposed:
		for _, r := range e.Records {
			c.notProposed(r, e.Err)
		}
	case SessionUp:
		c.sessionUp(e.Peer)
	case SessionDown:
		c.sessionDown(e.Peer)
	case FromWorker:
		c.fromWorker(e.Peer, e.Msg)
	case NotSent:
		c.notSent(e)
	case Found:
		c.found(e)
	case ReadDone:
		c.readDone(e)
	case RowsKept:
		c.rowsKept(e.Applied)
	case Tick:
	}
}

func (c *Core) fromWorker(p job.Peer, msg lease.ToScheduler) {
	if h, ok := msg.(lease.Hello); ok {
		c.hello(p, h)
		return
	}
	w := c.workers[p]
	if w == nil || !w.Up {
		return // a message of no session: what it told will be asked for
	}
	w.Heard(c.now)
	switch m := msg.(type) {
	case lease.Availability:
		c.availability(w, m)
	case lease.Commit:
		c.commit(w, m)
	case lease.Decline:
		c.decline(w, m)
	case lease.Event:
		c.taskEvent(w, m)
	case lease.Renew:
		c.renew(w, m)
	case lease.Stale:
		if m.Group == c.cfg.Group && c.epoch.Less(m.Epoch) {
			c.tell(Told{Kind: NewerOwner, Peer: p, Node: w.Name(), Detail: m.Epoch.String()})
		}
	}
}

// timer carries what to do at its moment.
type timer = timers.Timer[time.Time, func()]

// at sets a timer. A timer whose reason nearly always goes first is stopped then; the other ones look, when they
// fire, whether their reason is still there.
func (c *Core) at(when time.Time, do func()) *timer {
	t := &timer{Value: do}
	c.timers.Set(t, when)
	return t
}

func (c *Core) after(d time.Duration, do func()) *timer { return c.at(c.now.Add(d), do) }

func (c *Core) stop(t *timer) { c.timers.Stop(t) }

func (c *Core) runTimers() {
	for do, ok := c.timers.Take(c.now); ok; do, ok = c.timers.Take(c.now) {
		do()
	}
}

func (c *Core) send(to job.Peer, m lease.ToWorker) {
	c.fx.Send = append(c.fx.Send, Outgoing{To: to, Msg: m})
}

func (c *Core) propose(r job.Record) {
	c.outgoing++
	c.fx.Propose = append(c.fx.Propose, r)
}

func (c *Core) tell(t Told) { c.fx.Told = append(c.fx.Told, t) }

// changed marks a job for watchers.
func (c *Core) changed(e *entry) {
	if !e.showing {
		e.showing = true
		c.fx.Changed = append(c.fx.Changed, e.job.ID)
	}
}

// save has the rows that a record changed saved with this step.
func (c *Core) save(e *entry) {
	e.changedAt = c.applied
	if !e.saving {
		e.saving = true
		c.unsaved = append(c.unsaved, e)
	}
	c.changed(e)
}

// takeRows hands out the rows of the jobs that this step has changed.
func (c *Core) takeRows() {
	for _, e := range c.unsaved {
		e.saving = false
		if c.jobs[e.job.ID] != e {
			continue
		}
		rows, err := e.job.TakeRows()
		if err != nil {
			c.tell(Told{Kind: RowDefect, Attempt: job.Attempt{Job: e.job.ID}, Detail: err.Error()})
		}
		c.fx.Rows = append(c.fx.Rows, rows...)
		if !e.tailed && e.job.Len() > 1 {
			e.tailed = true
			c.tailed = append(c.tailed, e)
		}
	}
	clear(c.unsaved)
	c.unsaved = c.unsaved[:0]
}

// draw is a number that is not in use as an offer's id.
func (c *Core) drawOffer() uint64 {
	for {
		if id := c.rng.Uint64(); id != 0 && c.offers[id] == nil {
			return id
		}
	}
}

// jitter is d, give or take a quarter.
func (c *Core) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(c.rng.Int64N(int64(d)/2+1))
}
