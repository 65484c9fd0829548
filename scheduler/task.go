package scheduler

// What is known of a job, a task, a host, an offer and a dispatch beyond the journal. The parts in other files change them.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
)

// entry is a job and what is known of it beyond the journal.
type entry struct {
	job      *jobs.Job // durable
	priority int       // of the job
	born     time.Time // orders jobs by age, whatever has become of the wall clock since
	tasks    []*task   // that have not ended, by index
	ended    time.Time // when this daemon learnt of the end
	final    bool      // in history.final, or was
	saving   bool      // in entries.unsaved
	tailed   bool      // in history.tailed
	showing  bool      // in Effects.Changed
	// changedAt is the entry of the journal that its row must reflect.
	changedAt uint64
}

// task is the soft half of a task.
type task struct {
	e     *entry
	index int
	shape *shape // of equal requests; nil until it first waits
	node  job.Peer

	queued   bool // in the queue of its shape
	waiting  bool // counted by its class
	pause    pause
	avoid    place.Avoidances
	declines int

	dispatch *dispatch // offers under way
	proposed int       // attempt whose Assign is under way, 0 if none
	givenUp  int       // attempt whose Unassign was proposed: never started or kept again (R7)
	started  int       // attempt whose Start was sent

	reported   bool // the worker has spoken of the attempt in this session
	cancelSent bool // in this session
	seen       job.State
	report     *timer // armed while nothing was heard of the attempt since its Start
	process    process
	checkAt    time.Time
}

// pause keeps a task from being placed for a while.
type pause struct {
	until time.Time
	armed time.Time // a timer is set for this until
	why   string    // for people
}

// process is what the host tells of the task's process, for people.
type process struct {
	detail    string // what the task waits for while STARTING
	pid       int
	isolation string
	devices   []string
	since     time.Time // it began
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

// sameStore says whether the host still has the data directory that was given
// the task's attempt: only that one may speak of it (R6).
func (t *task) sameStore(w *worker) bool {
	return w.Profile.Store == t.durable().Store
}

// current says whether the attempt is the one that the host was given and that
// may be running.
func (e *entry) current(w *worker, a job.Attempt) bool {
	if !e.job.Has(a.Task) {
		return false
	}
	d := e.job.Brief(a.Task)
	return d.Assigned && d.Attempt == a.N && d.Node == w.Peer && d.Store == w.Profile.Store
}

// rank orders tasks: priority, then age, then name. No two tasks are equal.
func rank(a, b *task) int {
	x, y := a.e, b.e
	if n := cmp.Or(cmp.Compare(y.priority, x.priority), x.born.Compare(y.born)); n != 0 {
		return n
	}
	return cmp.Or(cmp.Compare(x.job.ID, y.job.ID), cmp.Compare(a.index, b.index))
}

// shape is a request of one user, and the user's tasks that wait with this very request.
type shape struct {
	fleet.Shape
	key   string
	class *class
	queue queue[*task]
	ready bool // in pending.ready
	at    int  // there
	tasks int  // that have not ended

	// parked is the task that stands for the shape in pending.parked; nil if none does.
	parked *task

	outlook   *fleet.Outlook // for people; true of the step outlookAt
	outlookAt uint64
	noMatch   string // why nobody can, for people
	noMatchAt uint64
}

// placeOf is where the task stands among all.
func placeOf(t *task) fleet.Rank {
	return fleet.Rank{Priority: t.e.priority, Born: t.e.born, Job: t.e.job.ID, Task: t.index}
}

// worker is a known host, and what of this scheduler's work waits for it.
type worker struct {
	*fleet.Host
	renewing    int               // its renewals that wait for a round
	waiting     []*dispatch       // committed there once, and waiting until the host has a lease
	askAt       time.Time         // when a timer compares the waiting tasks with the host
	quotaTimers map[string]*timer // by user: each opens or forgets the user's quota

	freed  bool   // in hosts.freed
	again  bool   // something was freed since resume began
	resume resume // of the first of hosts.freed
}

// resume is where a search of the waiting tasks goes on that one step did not finish.
type resume struct{ parked, queued *fleet.Rank }

// dispatch is one attempt on its way to a host: one offer to a host with room, or several that queue at full hosts. Of
// these the first to be committed wins.
type dispatch struct {
	task    *task
	n       int // attempt number
	since   time.Time
	why     string // the task goes there, for people
	offers  []*offer
	phase   phase
	target  job.Peer // the host that is to have it
	winner  *offer   // has committed
	devices []string
	session lease.Session
}

// move changes the phase. A move that is not in the table is a defect, of which a notice tells.
func (d *dispatch) move(t *turn, to phase) {
	if !slices.Contains(moves[d.phase], to) {
		t.notify(Notice{
			Kind: IllegalMove, Attempt: job.Attempt{Job: d.task.e.job.ID, Task: d.task.index, N: d.n}, Peer: d.target,
			Detail: d.phase.String() + " to " + to.String(),
		})
	}
	d.phase = to
}

// lose notes that the host which has committed holds the task no longer.
func (d *dispatch) lose(t *turn) {
	d.winner = nil
	switch d.phase {
	case held:
		d.move(t, offering)
	case confirming:
		d.move(t, proposing)
	case offering, proposing, recorded, started, abandoned:
	}
}

// offer is one offer that was sent and is neither declined, nor taken back, nor started.
type offer struct {
	id       uint64
	dispatch *dispatch
	worker   *worker
	leases   uint64      // answered renewals of the host when the offer was sent
	claim    fleet.Claim // on the host; its id is the offer's
	timer    *timer      // for its answer, then for its Assign
}

// queued says whether the offer waits at a full host.
func (o *offer) queued() bool { return o.claim.State == fleet.Queued }

// request is what the task asks for, in the fleet's words. The task has a shape.
func (t *task) request() fleet.Request { return fleet.Request{Shape: &t.shape.Shape, Rank: placeOf(t)} }

// at says whether the task is offered to the host.
func (d *dispatch) at(h *fleet.Host) bool {
	return slices.ContainsFunc(d.offers, func(o *offer) bool { return o.worker.Host == h })
}
