package scheduler

// The soft state: what is known of jobs, tasks, hosts, offers and dispatches beyond the journal. A restart loses it.
// The parts in other files change it.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// entry is a job with its soft state.
type entry struct {
	job      *state.Job // durable
	priority int        // of the job
	born     time.Time  // orders jobs by age; a change of the wall clock does not change it
	order    uint64     // orders gangs of all owners by age; those of this owner as born does
	tasks    []*task    // by index: those that are assigned, offered, paused or queued
	front    *task      // the last one that pending.follow put into the queue
	next     int        // pending.follow goes on here
	barred   []*task    // tasks with soft state that may not be placed for now, by index; see pending.bar
	layout   job.Layout // of its tasks
	parents  waiting    // for other jobs
	atOnce   int        // how many of its tasks may be active at once; 0: all
	begin    *begin     // set until its begin is reached
	active   int        // tasks that are offered or assigned, or may be; see task.Count
	ended    time.Time  // when this daemon learnt of the end
	marks
	fileState
	milestones
	shows
	holder *holder // of its user
	// changedAt is the index of the journal entry that its rows must reflect.
	changedAt uint64
}

// begin is the begin of a job, by the wall clock. Nothing of the job is placed before.
type begin = timers.Timer[time.Time, *entry]

// milestones says when parts of a job's life began, as this life of the daemon knows them.
type milestones struct {
	eligible time.Time // when a task of it could first have been placed, had there been room
	began    time.Time // when the first process began that a host has reported
	placed   bool      // a task of it was sent to a host, in this life of the daemon or an earlier one
}

// marks says in which lists a job is.
type marks struct {
	final   bool // it is in history.final, or was
	saving  bool // it is in entries.unsaved
	tailed  bool // it is in history.tailed
	showing bool // it is in Effects.Changed
}

// shows corrects the counts of a job for people.
type shows struct {
	shown   job.Counts // a correction of job.Counts: assigned tasks count in the states that their hosts have reported
	touched []*task    // tasks for which it may have changed; see views.Counts
}

// fileState is the job file of a job, and what the job costs while it waits.
type fileState struct {
	file    *job.File      // of its tasks, once one was started; not kept for a job of one task, nor if the file is on disk
	opened  *opened        // what was read from disk
	opening bool           // it is being read, or is in files.line
	least   backlog.Amount // what it costs at least while it waits
	costs   backlog.Amount // that the backlog counts
	// avoidedHosts are the hosts from which Starts with its file are kept back; all its tasks avoid them. shunned tells people
	// why, for the last of these hosts.
	avoidedHosts place.Avoidances
	avoidedWhy   string
}

// opened is a job file that was read from disk.
type opened struct {
	file  *job.File
	lines []string
}

// task is the soft state of a task.
type task struct {
	e     *entry
	index int
	shape *shape   // the shape of its request; nil until it waits for the first time
	node  job.Peer // the host that it is assigned to; empty if none

	queueing
	waiting int  // as how many tasks its class counts it; 0: it does not
	barred  bool // it is in entry.barred
	countedAs
	pause    pause
	avoid    place.Avoidances
	declines int // by hosts or the journal, since the last Start

	phase     phase       // of the newest attempt
	dispatch  *dispatch   // of that attempt, while the phase has one
	heard     uint64      // the session in which the host last reported the attempt; 0 if it must report it again
	cancelled uint64      // the session in which the host was told to cancel the attempt
	report    *step.Timer // armed with the Start, until the host reports a state
	checkAt   time.Time   // when the attempt is checked next; zero if no check is planned

	// Only shown to people.
	process process
	tally   tally
}

// countedAs says what is counted for a task.
type countedAs struct {
	offered bool          // it is offered, or about to be
	active  bool          // entry.active counts it
	holds   contract.Held // that its holder counts for it
}

// queueing is the place of a task among those that wait.
type queueing struct {
	queued  bool          // it is in the queue of its shape
	level   int           // among tasks of its priority; see pending.rate
	work    contract.Work // by which the level of its next attempt changes
	lined   waitingSince
	share   fairshare.Standing // its standing when it last left the queue
	able    time.Time          // since when it lacks only room; zero: since its job does, see waiting.able
	overdue bool               // it is to go first; see overdue
	raised  int                // its priority, if overdue or long waits have raised it; 0: that of its job
	step.Counting
}

// waitingSince says since when a task waits.
type waitingSince struct {
	after int // the newest attempt that ran
	known bool
	since time.Time
	timer *step.Timer // when it goes to the first level
}

// precedence returns the first criterion in the order of tasks: the priority and the level.
func (t *task) precedence() int { return contract.Precedence(t.priority(), t.level) }

// priority returns the priority of its job, or a higher one for a task that has waited for too long.
func (t *task) priority() int { return max(t.raised, t.e.priority) }

// tally is how entry.shown counts the task.
type tally struct {
	gone  bool      // the task has ended; if it is requeued, another object stands for it
	state job.State // the state in which it counts; empty: it is not assigned
	due   bool      // it is in entry.touched
}

// pause keeps a task from being placed for a while.
type pause struct {
	until time.Time
	armed time.Time // the value of until that a timer is set for
	why   string    // shown to people
	// placed says that the task pauses because it avoids every host that it could have, and not because an attempt has
	// just failed.
	placed bool
}

// process is what the host reports of the task's process. It is only shown to people.
type process struct {
	state     job.State // that the host last reported
	detail    string    // what the task waits for while it is STARTING
	pid       int
	isolation string
	devices   []string
	since     time.Time // when the process began
}

func (t *task) durable() state.Brief { return t.e.job.Brief(t.index) }

// task returns the soft state of a task, and makes it if there is none.
func (e *entry) task(index int) *task {
	i, there := e.find(index)
	if !there {
		e.tasks = slices.Insert(e.tasks, i, &task{e: e, index: index})
	}
	return e.tasks[i]
}

// markChanged notes that the task may have to be shown in another state.
func (t *task) markChanged() {
	if t.tally.due || t.tally.gone {
		return
	}
	t.tally.due = true
	e := t.e
	if len(e.touched) > 2*len(e.tasks)+64 { // nobody looks at the job
		e.touched = slices.DeleteFunc(e.touched, func(t *task) bool {
			i, there := e.find(t.index)
			return !there || e.tasks[i] != t
		})
	}
	e.touched = append(e.touched, t)
}

// updateShown counts an assigned task in the state in which it is shown; empty: it is not assigned.
func (t *task) updateShown(s job.State) {
	if s == t.tally.state {
		return
	}
	if t.tally.state != "" {
		t.e.shown.Add(t.tally.state, -1)
		t.e.shown.Add(job.Reserved, 1)
	}
	if s != "" {
		t.e.shown.Add(job.Reserved, -1) // that is the state of assigned tasks in the journal
		t.e.shown.Add(s, 1)
	}
	t.tally.state = s
}

// setHeard notes the session in which the host has reported the attempt; 0: it must report it again.
func (t *task) setHeard(session uint64) {
	t.heard = session
	t.markChanged()
}

// setReported notes the state that the host has reported.
func (t *task) setReported(s job.State) {
	t.process.state = s
	t.markChanged()
}

// drop deletes the soft state of a task that has ended.
func (e *entry) drop(t *task) {
	if i, there := e.find(t.index); there {
		e.tasks = slices.Delete(e.tasks, i, i+1)
	}
	t.updateShown("")
	t.tally.gone = true
}

// taskFile returns the job file that the hosts of the tasks get; files.has must have reported true. It is nil if the
// spec cannot be encoded, and no session carries a nil file. This should not happen: the spec was encoded when the job
// was submitted.
func (e *entry) taskFile() *job.File {
	switch {
	case e.file != nil:
		return e.file
	case e.opened != nil:
		return e.opened.file
	}
	f, err := e.job.Spec.TaskFile()
	if err != nil {
		return nil
	}
	if e.job.Len() > 1 {
		e.file = f
	}
	return f
}

// element returns what distinguishes the task from the others of its job.
func (e *entry) element(index int, preempted bool) contract.Element {
	x := contract.Element{Preempted: preempted, Rank: index % e.job.Gang()}
	if !e.layout.IsArray() {
		return x
	}
	x.Array, x.Index = true, e.layout.Index(index)
	lines := e.job.Spec.EachLine
	if e.opened != nil {
		lines = e.opened.lines
	}
	if index/e.job.Gang() < len(lines) {
		x.Entry = lines[index/e.job.Gang()]
	}
	return x
}

// leads reports whether the task stands for its element before it is assigned: it is the only task of the element, or
// rank 0 of a gang.
func (t *task) leads() bool { return t.index%t.e.job.Gang() == 0 }

// leader returns the task that stands for the element of a task, and makes its soft state if there is none.
func (t *task) leader() *task {
	if t.leads() {
		return t
	}
	return t.e.task(t.e.job.Element(t.index).First)
}

// pendingTasks returns how many tasks of the job wait and may be active together.
func (e *entry) pendingTasks() int {
	counts := e.job.Counts()
	n := counts.Of(job.Pending)
	if e.parents.ready != nil {
		n = min(n, e.parents.ready.Len()+1)
	}
	if e.atOnce > 0 {
		n = min(n, (e.atOnce-e.active)*e.job.Gang())
	}
	return n
}

// waiting is how a job waits for others, beyond what the table of jobs tells.
type waiting struct {
	ready  *ready    // tasks that pending.follow has not looked at yet; nil: those from entry.Next on
	due    time.Time // when the delay after the start of others is over, by the wall clock; zero without a delay
	until  time.Time // the same by the clock of this life of the daemon
	barred bool      // pending.follow last found that its next task waits for more than room
	able   time.Time // since when that is not so; zero: since the job was born
}

// ready holds the tasks of a job that wait no longer for those of another array, and that pending.follow has not looked
// at yet. Tasks become ready in any order.
type ready struct {
	state.Set
	low int // no task before it is in the set
}

func (r *ready) add(index int) {
	r.Add(index)
	r.low = min(r.low, index)
}

// upcoming returns the first task that pending.follow has not looked at yet.
func (e *entry) upcoming() (index int, more bool) {
	if e.parents.ready == nil {
		e.next = e.job.NextPending(e.next)
		return e.next, e.next < e.job.Len()
	}
	e.parents.ready.low, more = e.parents.ready.Next(e.parents.ready.low)
	return e.parents.ready.low, more
}

// pass notes that pending.follow has looked at a task.
func (e *entry) pass(index int) {
	if e.parents.ready == nil {
		e.next = index + 1
	} else {
		e.parents.ready.Remove(index)
	}
}

// updateActive updates entry.active. A task counts from the moment at which it is offered until the journal says that it is not
// assigned: an Assign under way may still be committed, even if its offer was taken back.
//
// A gang counts once, with its rank 0.
func (t *task) updateActive() {
	if !t.leads() {
		i, there := t.e.find(t.e.job.Element(t.index).First)
		if !there {
			return
		}
		t = t.e.tasks[i]
	}
	d := t.durable()
	active := t.offered || d.Assigned || t.e.job.Gang() > 1 && state.ElementAssigned(t.e.job, t.index) || t.phase == withdrawn && d.State == job.Pending
	switch {
	case active && !t.active:
		t.e.active++
	case !active && t.active:
		t.e.active--
	}
	t.active = active
}

// updateCounts updates what is counted for the task, for its job and its user.
func updateCounts(t *task) {
	t.updateActive()
	t.updateHeld()
}

// find returns the place of a task in tasks, and whether it is there.
func (e *entry) find(index int) (int, bool) {
	return slices.BinarySearchFunc(e.tasks, index, func(t *task, index int) int { return cmp.Compare(t.index, index) })
}

// in returns the tasks of these ranges that have soft state; no ranges means all.
func (e *entry) in(ranges []job.Range) []*task {
	if len(ranges) == 0 {
		return slices.Clone(e.tasks)
	}
	var out []*task
	for _, r := range ranges {
		first, _ := e.find(r.First)
		end, _ := e.find(r.Last + 1)
		out = append(out, e.tasks[first:end]...)
	}
	return out
}

// attempt names the newest attempt that the journal has.
func (t *task) attempt() job.Attempt {
	return job.Attempt{Job: t.e.job.ID, Task: t.index, N: t.durable().Attempt}
}

// move changes the phase. A move that is not in the table is a defect, and a notice reports it.
func (t *task) move(tn *step.Turn, to phase) {
	if !t.phase.canMove(to) {
		tn.Notify(step.Notice{
			Kind: step.IllegalMove, Attempt: t.attempt(), Peer: t.node, Detail: t.phase.String() + " to " + to.String(),
		})
	}
	t.phase = to
	t.updateHeld()
	t.markChanged()
}

// updateHeld counts for the user what the task holds at hosts, or is about to get: from the moment at which it is offered
// until the journal says that it is not assigned. Rank 0 of a gang stands for all members until they are assigned.
func (t *task) updateHeld() {
	n, e := 0, t.e
	switch d := t.durable(); {
	case d.Assigned:
		n = 1
	case t.leads() && (t.offered || t.phase.proposed() && d.State == job.Pending || t.phase == held):
		n = e.job.Gang()
	}
	exclusive := n > 0 && e.job.Spec.Exclusive // it holds all of its host
	if n == t.holds.Tasks && !exclusive {
		return
	}
	host := (*fleet.Host)(nil)
	if exclusive {
		if host = largestOf(t); host == nil && n == t.holds.Tasks {
			return
		}
	}
	var now contract.Held
	now.Add(wholeOf(host, e.job.Spec.Need()), n)
	e.holder.change(t.holds, now)
	t.holds = now
}

// largestOf returns the host with the most GPUs to which the task is offered; nil if it is offered to none.
func largestOf(t *task) (host *fleet.Host) {
	if t.dispatch == nil {
		return nil
	}
	for _, o := range t.dispatch.offers {
		if h := o.worker.Host; host == nil || len(h.Profile.GPUs) > len(host.Profile.GPUs) {
			host = h
		}
	}
	return host
}

// proposes reports whether the Assign of attempt n is under way.
func (t *task) proposes(n int) bool { return t.phase.proposed() && n == t.durable().Attempt+1 }

// unpropose notes that the Assign is no longer under way: the journal refused it, or this daemon stopped being the
// owner.
func (t *task) unpropose(tn *step.Turn) {
	if to, proposed := unproposed[t.phase]; proposed {
		t.move(tn, to)
		t.updateActive()
	}
}

// endDispatch ends the dispatch of an attempt whose Start was not sent.
func (t *task) endDispatch(tn *step.Turn) {
	t.endGang()
	t.dispatch, t.offered = nil, false
	switch {
	case t.phase == recorded:
		t.move(tn, unknown)
	case t.phase.proposed():
		t.move(tn, withdrawn)
	default:
		t.move(tn, idle)
	}
	updateCounts(t)
}

// sameStore reports whether the host still has the data directory that the attempt was assigned to. Only that data
// directory may answer for the attempt (R6).
func (t *task) sameStore(w *worker) bool {
	return w.Profile.Store == t.durable().Store
}

// current reports whether this is the attempt that is assigned to the host and may be running there.
func (e *entry) current(w *worker, a job.Attempt) bool {
	if !e.job.Has(a.Task) {
		return false
	}
	d := e.job.Brief(a.Task)
	return d.Assigned && d.Attempt == a.N && d.Node == w.Peer && d.Store == w.Profile.Store
}

// rank orders tasks by precedence, then by standing, then by age, then by job id and index. No two tasks are equal.
func rank(a, b *task) int {
	x, y := a.e, b.e
	if n := cmp.Or(cmp.Compare(b.precedence(), a.precedence()), a.standing().Compare(b.standing()), x.born.Compare(y.born)); n != 0 {
		return n
	}
	return cmp.Or(cmp.Compare(x.job.ID, y.job.ID), cmp.Compare(a.index, b.index))
}

// standing returns what the task's account has used of its share. While the task is in the queue of its shape, that is
// from the latest snapshot. Once the task has left that queue to be offered, it keeps the standing that it had, and so
// its place.
func (t *task) standing() fairshare.Standing {
	if t.queued {
		return t.shape.standing
	}
	return t.share
}

// shape is one kind of request of one user and project, and the tasks of that user that wait with exactly this request.
type shape struct {
	fleet.Shape
	key      string
	class    *search.Class
	account  fairshare.Account
	standing fairshare.Standing // by the latest snapshot
	queue    queue[*task]
	ready    bool // it is in pending.ready
	capped   bool // it waits for an allotment, and is in neither list
	at       int  // its place in pending.ready
	tasks    int  // how many tasks have this shape and have not ended

	// parked is the task that stands for the shape in pending.parked; nil if none does.
	parked *task

	// Only shown to people.
	outlook   *fleet.Outlook // as it was in the step outlookAt
	outlookAt uint64
	noMatch   string // why no host can run it, by the profiles of noMatchAt
	noMatchAt uint64
	passed    passedOver
}

// passedOver is why tasks of a shape wait though they fit at a host.
type passedOver struct {
	why   job.Reason
	limit time.Duration // of the task for which it was computed
	at    uint64        // the step
}

// placeOf returns the rank of the task, in the terms of package fleet.
func placeOf(t *task) fleet.Rank {
	return fleet.Rank{Priority: t.priority(), Level: t.level, Share: t.standing(), Born: t.e.born, Job: t.e.job.ID, Task: t.index}
}

// worker is a known host, and what waits there for it.
type worker struct {
	*fleet.Host
	renewing        int                    // how many of its renewals wait for a quorum round
	renewAllowance  time.Time              // the allowance of requests is used up to this time: each one costs renewGap; see mayRenew
	uselessRenewals uint64                 // answers to its renewals that had no effect: the host had no lease after them
	waiting         []*dispatch            // that the host committed to without a lease; they wait until it has one
	askAt           time.Time              // when a timer compares the waiting tasks with the host
	quotaTimers     map[string]*step.Timer // by user; each opens or forgets the quota of the user

	changes   uint64    // of what is free, when setAsides.findIdle looked last
	changedAt time.Time // when it found that something else was free

	freed      bool   // it is in hosts.freed
	freedAgain bool   // something was freed after resume began
	resume     resume // for the first of hosts.freed
}

// resume is where a search of the waiting tasks goes on in the next step.
type resume struct{ parked, queued *fleet.Rank }

// dispatch is one attempt on its way to a host. It has one offer to a host with room, or several offers that queue at
// full hosts. The first host to commit gets the task. The dispatch of rank 0 of a gang is that of all members, each of
// which needs a host that commits.
type dispatch struct {
	task    *task
	n       int // number of the attempt
	since   time.Time
	why     string // the task goes there, for people
	offers  []*offer
	target  job.Peer    // the host in the newest Assign; empty before one was proposed
	winner  *offer      // the offer that its host has committed to
	preempt *fleet.Host // where preemptible tasks are to make room; nil: nowhere
	devices []string
	session contract.Session
	gang    *gang // of which the task is rank 0; nil: none

	election election
	news     bool // it is in offers.news
}

// election holds the hosts at which a waiting task is booked: one host, or for a gang one for each member that lacks a
// place.
type election struct {
	booked []*offer // to the hosts that keep what the task needs; none: nothing shows when it starts
	agreed bool     // they have said that they do, so the other hosts need not
	far    bool     // the task starts so late that hosts which show no start go on keeping what is free
	flapping
}

// silences reports whether a host that has shown no start need not keep anything for the task.
func (e *election) silences() bool { return e.agreed && !e.far }

// endGang undoes what the gathering of a gang has changed in the view of its job.
func (t *task) endGang() {
	if t.dispatch != nil && t.dispatch.gang != nil {
		t.e.showSeated(t.dispatch.gang, 0)
	}
}

// showSeated shows n members of a gathering gang as RESERVED. In the journal they are PENDING.
func (e *entry) showSeated(g *gang, n int) {
	e.shown.Add(job.Pending, g.shown-n)
	e.shown.Add(job.Reserved, n-g.shown)
	g.shown = n
}

// lose notes that the host that had committed no longer holds a place for the task.
func (d *dispatch) lose(tn *step.Turn) {
	d.winner = nil
	t := d.task
	switch {
	case t.dispatch != d: // the dispatch is over
	case t.phase == held:
		t.move(tn, offering)
	case t.phase == confirming:
		t.move(tn, proposing)
	}
}

// offer is an offer that was sent. It goes when it is declined or taken back, or when the task is started.
type offer struct {
	id       uint64
	dispatch *dispatch
	worker   *worker
	leases   uint64      // how many renewals of the host had been answered when the offer was sent
	claim    fleet.Claim // on the host, with the id of the offer
	keeps    bool        // the host keeps what is free for it, while it queues there; see setAsides
	from     time.Time   // when it may begin to do so
	// elsewhere says that other hosts keep what the task needs; see elections.
	elsewhere  bool
	due        time.Time   // when the task should have started, by its host's word, with a margin; zero: it was never elected
	dueTimes   int         // how often due was set
	showsStart bool        // the host has shown when it starts there, at least when it last kept something for it
	timer      *step.Timer // for the answer of the host, then for the Assign; of a queued offer or one of a gang for its renewal
	seat       *seat       // of a member of a gang; nil: none
	expected   expectation // of the host, while the offer queues there
	counted    bool        // in Totals
}

// expectation is what a host expects of an offer, and when it said so.
type expectation struct {
	contract.Forecast
	heard time.Time
}

// start returns when the task of the offer starts at the latest; zero if that is not known.
func (x *expectation) start() time.Time {
	if x.Start <= 0 {
		return time.Time{}
	}
	return x.heard.Add(x.Start)
}

// queued reports whether the offer queues at a full host.
func (o *offer) queued() bool { return o.claim.State == fleet.Queued }

// device returns the device that a share of a GPU should get. The host itself chooses whole devices.
func (o *offer) device() string {
	if o.claim.Need.GPUShare > 0 && len(o.claim.Devices) == 1 {
		return o.claim.Devices[0]
	}
	return ""
}
