package state

// The tasks of a job in memory, and the number of tasks in each state.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

// tasks holds the tasks of one job.
type tasks struct {
	chunked
	common
	assigned int  // number of tasks with an attempt that may be running
	ends     ends // of a job with several tasks
	history  history
}

// dirty lists the parts of a job that have changed since TakeRows was last called.
type dirty struct {
	header bool
	waits  bool     // the outcomes of dependencies without aftercorr
	hosts  int      // hosts from this index on
	chunks []uint32 // indexes of chunks
	notes  []uint32 // indexes of tasks
	tails  []uint32 // indexes of tasks
	usage  []uint32 // indexes of tasks
	taken  []uint32 // indexes of tasks whose tails or usage TakeRows has returned, for DropTails
}

func newTasks(n int, first value) tasks {
	ts := tasks{
		chunked: chunked{n: n, values: newValues(first, n), chunks: make([]chunk, (n+chunkTasks-1)/chunkTasks)},
		common:  newCommon(),
	}
	ts.history = newHistory(n, ts.hosts)
	for k := range ts.chunks {
		ts.chunks[k].count(stateOf(first.state), ts.size(k))
	}
	ts.counts.Add(stateOf(first.state), n)
	return ts
}

func (ts *tasks) get(index int) job.Task {
	c := &ts.chunks[index/chunkTasks]
	if x := c.cell(index % chunkTasks); x != nil {
		return x.task(index, &ts.common)
	}
	return ts.values.list[c.valueAt(index%chunkTasks)].task(index)
}

func (ts *tasks) set(index int, t job.Task, d *dirty) {
	k, i := index/chunkTasks, index%chunkTasks
	c := &ts.chunks[k]
	d.chunk(c, k)
	x := c.cell(i)
	if x == nil {
		if v, plain := valueOf(&t); plain {
			ts.setValue(c, i, ts.size(k), ts.values.of(v))
			return
		}
		ts.move(c, stateOf(ts.stateAt(c, i)), t.State, 1)
		x = ts.giveCell(c, i, ts.size(k))
	} else {
		ts.move(c, stateOf(x.state), t.State, 1)
		ts.assigned -= count(x.flags&flagAssigned != 0)
		if stateOf(x.state).Ended() {
			before := x.task(index, &ts.common)
			ts.countEnd(&before, -1)
			ts.ends.stale = true
		}
	}
	ts.assigned += count(t.Assigned)
	ts.countEnd(&t, 1)
	was := *x
	n := x.fill(&t, &ts.common)
	ts.setNote(x, n, index, was.flags&flagExit != 0 && !was.sameExit(x), d)
}

// setNote sets the note of a cell, and marks the changed parts as dirty. replaced is true if the cell has a new exit,
// so that the tail and the usage on disk are no longer valid.
func (ts *tasks) setNote(x *cell, n *note, index int, replaced bool, d *dirty) {
	old := x.note
	if old == nil {
		old = &note{}
	}
	if (n.tail != old.tail || replaced && ts.n > 1) && x.flags&flagTail == 0 {
		x.flags |= flagTail
		d.tails = append(d.tails, uint32(index))
	}
	if (n.usage != old.usage || replaced) && x.flags&flagUsage == 0 {
		x.flags |= flagUsage
		d.usage = append(d.usage, uint32(index))
	}
	if !n.sameButTexts(old) && x.flags&flagNote == 0 {
		x.flags |= flagNote
		d.notes = append(d.notes, uint32(index))
	}
	ts.held -= x.note.bytes()
	if x.note = n; n.empty() {
		x.note = nil
	}
	ts.held += x.note.bytes()
}

// countEnd counts the end of a task n times more.
func (ts *tasks) countEnd(t *job.Task, n int) {
	if ts.n > 1 { // a single task is looked at when its end is asked for
		ts.ends.count(t, n)
	}
}

// sum sums up how the tasks ended.
func (ts *tasks) sum() job.Ends {
	if ts.n == 1 {
		return job.EndsOf([]job.Task{ts.get(0)})
	}
	return ts.ends.sum(&ts.chunked)
}

// each changes the tasks of the ranges that are in one of the states. No ranges means all tasks. Tasks that have the same
// value are changed as one.
func (ts *tasks) each(ranges []job.Range, states []job.State, d *dirty, change func(*job.Task)) {
	if len(ranges) == 0 {
		ranges = []job.Range{{First: 0, Last: ts.n - 1}}
	}
	e := eacher{ts: ts, states: states, d: d, change: change}
	for _, r := range ranges {
		e.run(max(0, r.First), min(r.Last, ts.n-1))
	}
}

// eacher changes tasks that are in some states.
type eacher struct {
	ts     *tasks
	states []job.State
	d      *dirty
	change func(*job.Task)
	next   [maxIDs]int16 // what becomes of each value: the number of the new value plus 1, differs or single; 0: not known yet
}

const (
	maxIDs  = ownCell
	differs = -1 // tasks with this value are not in one of the states
	single  = -2 // tasks with this value are changed one by one, and get cells
)

// run changes tasks from index first to last.
func (e *eacher) run(first, last int) {
	ts := e.ts
	for ; first <= last; first = (first/chunkTasks + 1) * chunkTasks {
		k := first / chunkTasks
		c, size := &ts.chunks[k], ts.size(k)
		end := min(last, k*chunkTasks+size-1)
		if c.mixed != nil || end-first+1 < size || e.of(c.value) == single {
			if c.mixed == nil && e.of(c.value) == differs {
				continue
			}
			for index := first; index <= end; index++ {
				e.one(c, k, index)
			}
			ts.unmix(c)
		} else if next := e.of(c.value); next > 0 {
			ts.setAll(c, size, uint8(next-1)) //nolint:gosec // the number of a value
			e.d.chunk(c, k)
		}
	}
}

// one changes one task of a chunk.
func (e *eacher) one(c *chunk, k, index int) {
	i := index % chunkTasks
	next := int16(single)
	if x := c.cell(i); x == nil {
		next = e.of(c.valueAt(i))
	} else if !slices.Contains(e.states, stateOf(x.state)) {
		next = differs
	}
	switch next {
	case differs:
	case single:
		t := e.ts.get(index)
		e.change(&t)
		e.ts.set(index, t, e.d)
	default:
		e.ts.setValue(c, i, e.ts.size(k), uint8(next-1)) //nolint:gosec // the number of a value
		e.d.chunk(c, k)
	}
}

// of returns what becomes of the tasks with a value.
func (e *eacher) of(id uint8) int16 {
	if e.next[id] != 0 {
		return e.next[id]
	}
	vs := &e.ts.values
	if !slices.Contains(e.states, vs.state(id)) {
		e.next[id] = differs
		return differs
	}
	t := vs.list[id].task(0)
	e.change(&t)
	v, plain := valueOf(&t)
	if !plain {
		e.next[id] = single
		return single
	}
	to := vs.of(v)
	e.next[id] = int16(to) + 1
	if vs.used[to] == 0 {
		e.next[to] = 0 // this number stood for another value before
	}
	return int16(to) + 1
}

func (d *dirty) chunk(c *chunk, k int) {
	if !c.dirty {
		c.dirty = true
		d.chunks = append(d.chunks, uint32(k))
	}
}

// Brief holds the fields of a task that the scheduler reads most often.
type Brief struct {
	State    job.State
	Attempt  int // number of the newest attempt; 0 if none
	Runs     int
	Assigned bool
	Ending   job.Ending
	// The host of the newest attempt; empty before the first.
	Node     job.Peer
	NodeName string
	Store    string
	Fencing  job.Fencing
}

func (ts *tasks) brief(index int) Brief {
	c := &ts.chunks[index/chunkTasks]
	x := c.cell(index % chunkTasks)
	if x == nil {
		return Brief{State: ts.values.state(c.valueAt(index % chunkTasks))}
	}
	h := &ts.hosts.list[x.host]
	return Brief{
		State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs), Assigned: x.flags&flagAssigned != 0, Ending: endingOf(x.flags),
		Node: h.peer, NodeName: h.name, Store: h.store, Fencing: h.fencing,
	}
}

func (ts *tasks) lost(index int) []job.Peer {
	if n := ts.note(uint32(index)); n != nil {
		return n.lost
	}
	return nil
}
