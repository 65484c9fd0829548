package joint

// An owner: the loop around the scheduler's core, its journal and its rows, and
// the lives and deaths of its daemon.

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/jobstest"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler"
)

type owner struct {
	youngest time.Duration // rank of the youngest of its jobs so far, in one look
	w        *world
	index    int
	peer     job.Peer
	group    job.Group
	policy   string // of jobs that name none; empty: the default
	local    *host
	links    map[job.Peer]*link
	order    []*link

	wallOff time.Duration
	up      bool
	leads   bool
	leadAt  time.Duration
	term    uint64

	core     *scheduler.Core
	life     int
	inbox    []scheduler.Event
	spare    []scheduler.Event
	keptRows []scheduler.Event // for the next step
	turning  bool
	stepped  time.Time // the time of the last step
	turnFn   func()
	alarm    alarm // for the turn that the core wants next

	stalledUntil time.Duration

	// The journal: entries under way, and those that the rows may not reflect.
	queue    []entry
	commitAt time.Duration
	index64  uint64
	log      []job.Committed
	rows     jobstest.Disk
	undo     []unsavedRow
	saves    int
	flushed  uint64 // the rows that outlive a crash reflect the entries up to it
	applied  uint64
	table    *jobs.Table // what all committed records together lead to

	finding map[string]bool
	wants   []scheduler.Want
	calls   int // of wants
	tokens  scheduler.Token
	asks    map[scheduler.Token]func(scheduler.Reply)
}

// entry is what is proposed together.
type entry struct{ records []job.Record }

// unsavedRow is a row as it was before a write that a crash may lose.
type unsavedRow struct {
	id     job.ID
	before map[string][]byte // nil: there was none
}

// flushEvery is how many writes of rows a crash may lose.
const flushEvery = 16

var errJournal = errors.New("the journal is busy")

func (o *owner) now() time.Time { return moment(o.w.now, o.wallOff) }

// boot starts a life of the daemon from the rows and the journal.
func (o *owner) boot(after time.Duration) {
	w := o.w
	o.life++
	life := o.life
	o.up, o.leads = true, false
	o.term++
	cfg := scheduler.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = o.peer, o.group, w.chance.Uint64()|1
	cfg.Shares = w.opt.shares
	cfg.Policy = o.policy
	if w.opt.keepEnded > 0 {
		cfg.KeepEnded = w.opt.keepEnded
	}
	if w.opt.keepWhole != 0 {
		cfg.KeepWhole = max(w.opt.keepWhole, 0)
	}
	saved := scheduler.Saved{Applied: o.flushed}
	for _, r := range o.rows.All() {
		if err := saved.Add(r); err != nil {
			w.fail("%s: %v", o.peer, err)
		}
	}
	if err := saved.End(); err != nil {
		w.fail("%s: %v", o.peer, err)
	}
	o.stepped = o.now()
	o.core = scheduler.NewCore(cfg, saved, o.stepped)
	o.inbox, o.keptRows, o.turning, o.alarm.at = o.inbox[:0], nil, false, 0
	o.asks, o.commitAt = map[scheduler.Token]func(scheduler.Reply){}, w.now
	clear(o.finding)
	o.wants = nil
	w.logf("%s begins, with %d rows up to %d and a log up to %d", o.peer, len(o.rows), o.flushed, o.index64)
	for _, e := range o.log {
		e.Lead = false
		o.tell(scheduler.Committed{Committed: e})
	}
	w.after(after+between(w.chance, 10*time.Millisecond, 1500*time.Millisecond), func() {
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
	w := o.w
	w.logf("%s is killed", o.peer)
	o.up, o.leads, o.core = false, false, nil
	for _, l := range o.order {
		l.died(false)
	}
	if n := len(o.queue); n > 0 {
		for _, e := range o.queue[:w.chance.IntN(n+1)] {
			o.append(job.Committed{Records: e.records})
		}
	}
	o.queue = nil
	for _, u := range slices.Backward(o.undo) {
		if u.before != nil {
			o.rows[u.id] = u.before
		} else {
			delete(o.rows, u.id)
		}
	}
	o.undo = nil
}

// restart kills the daemon, with its worker if it has one, and starts it again.
func (o *owner) restart(after time.Duration) {
	if o.local != nil {
		o.local.restart(after)
		return
	}
	o.kill()
	life := o.life
	o.w.after(after, func() {
		if o.life == life && !o.up {
			o.boot(0)
		}
	})
}

func (o *owner) tell(e scheduler.Event) {
	if o.up {
		o.inbox = append(o.inbox, e)
		o.turn()
	}
}

func (o *owner) turn() {
	if !o.turning && o.up {
		o.turning = true
		o.w.at(max(o.w.now+o.w.late(o.w.opt.slow.step), o.stalledUntil), o.turnFn)
	}
}

// run is one step of the loop around the core.
func (o *owner) run() {
	if !o.up || !o.turning {
		return
	}
	o.turning = false
	events, err := scheduler.AddRows(o.core, append(o.inbox, o.keptRows...), func(id job.ID) ([]job.Row, error) { return o.rows.Rows(id, "", ""), nil })
	if err != nil {
		o.w.fail("%s: %v", o.peer, err)
	}
	o.inbox = o.spare[:0]
	o.keptRows = o.keptRows[:0]
	o.stepped = o.now()
	o.w.stats.steps++
	var fx scheduler.Effects
	o.w.timed(func() { fx = o.core.Step(o.stepped, events...) })
	clear(events)
	o.spare = events
	o.carry(fx)
	if o.up {
		o.arm()
	}
}

// arm sets the alarm for the step that the core wants next.
func (o *owner) arm() {
	wake := o.core.Wake()
	if wake.IsZero() {
		return
	}
	now := o.w.now
	when := now + wake.Sub(o.now())
	o.alarm.set(when)
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

// proposeBatch bounds the records of one entry, as in the loop.
const proposeBatch = 64

// proposeAll proposes what ends work apart from what begins it, as the loop does.
func (o *owner) proposeAll(records []job.Record) {
	if len(records) == 0 {
		return
	}
	var begin, end []job.Record
	for _, r := range records {
		if job.BeginsWork(r) {
			begin = append(begin, written(r))
		} else {
			end = append(end, written(r))
		}
	}
	o.propose(end)
	o.propose(begin)
}

func (o *owner) propose(records []job.Record) {
	w := o.w
	for len(records) > 0 {
		batch := records[:min(len(records), proposeBatch)]
		records = records[len(batch):]
		if w.opt.refusals > 0 && w.chance.Float64() < w.opt.refusals {
			o.tell(scheduler.NotProposed{Records: batch, Err: errJournal})
			continue
		}
		o.queue = append(o.queue, entry{batch})
		o.commitAt = max(o.commitAt, w.now+between(w.chance, time.Millisecond, 10*time.Millisecond))
		if slow := w.opt.slow.journal; slow > 0 {
			o.commitAt = max(o.commitAt, w.now+between(w.chance, slow/10, slow))
		}
		life := o.life
		w.at(o.commitAt, func() {
			if o.life == life && o.up {
				e := o.queue[0]
				o.queue = o.queue[1:]
				o.append(job.Committed{Records: e.records})
			}
		})
	}
}

// append commits an entry and tells of it.
func (o *owner) append(e job.Committed) {
	o.index64++
	e.Index, e.Epoch = o.index64, job.Epoch{Generation: 1, Term: o.term}
	o.log = append(o.log, e)
	for i, r := range e.Records {
		o.w.committed(o, r, e.Index<<12|uint64(i), e.Epoch)
	}
	o.tell(scheduler.Committed{Committed: e})
}

func (o *owner) readIndex(tok scheduler.Token) {
	w, life := o.w, o.life
	var err error
	if w.opt.refusals > 0 && w.chance.Float64() < w.opt.refusals {
		err = errJournal
	}
	epoch := job.Epoch{Generation: 1, Term: o.term}
	w.after(between(w.chance, 500*time.Microsecond, 8*time.Millisecond)+w.late(w.opt.slow.journal), func() {
		if o.life == life {
			o.tell(scheduler.ReadDone{Token: tok, Epoch: epoch, Err: err})
		}
	})
}

// save keeps rows. What is written between two flushes a crash may lose.
func (o *owner) save(rows []job.Row, gone []job.ID) {
	if len(rows) == 0 && len(gone) == 0 {
		return
	}
	note := func(id job.ID) { o.undo = append(o.undo, unsavedRow{id, maps.Clone(o.rows[id])}) }
	last := job.ID("")
	for _, r := range rows {
		if r.Job == last {
			continue
		}
		last = r.Job
		note(r.Job)
		if j, ok := o.core.Durable(r.Job); ok {
			o.w.looks(r.Job, &j)
		}
	}
	for _, id := range gone {
		note(id)
	}
	o.rows.Save(rows, gone)
	o.applied = o.core.Applied()
	o.keptRows = append(o.keptRows[:0], scheduler.RowsKept{Applied: o.applied})
	if o.saves++; o.saves%flushEvery == 0 {
		o.undo, o.flushed = o.undo[:0], o.applied
		if n := len(o.log); n > 256 { // the rest is in the rows
			i := slices.IndexFunc(o.log, func(e job.Committed) bool { return e.Index > o.flushed })
			if i < 0 {
				i = n
			}
			o.log = slices.Clone(o.log[i:])
		}
	}
}

// checkStart holds a Start against the journal (R1, R7).
func (o *owner) checkStart(to job.Peer, s lease.Start) {
	j := o.w.byID[s.Attempt.Job]
	if j != nil && j.spec.Nodes > 1 {
		if b := o.table.Job(j.id).Brief(s.Attempt.Task); !b.Assigned || b.Attempt != s.Attempt.N || b.Node != to {
			o.w.fail("R1: %s sends a Start of %s to %s, of which its journal says otherwise", o.peer, s.Attempt, to)
		}
		return
	}
	if j == nil || !j.assigned || j.attempt != s.Attempt.N || j.node != to {
		o.w.fail("R1: %s sends a Start of %s to %s, of which its journal says otherwise", o.peer, s.Attempt, to)
	}
}
