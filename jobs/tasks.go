package jobs

// The tasks of a job in memory: chunks of cells, and the number of tasks in each state.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// chunkTasks is the number of tasks in a chunk. One record changes one chunk, whose row of 256 tasks is below 10 KB.
const chunkTasks = 256

// tasks holds the tasks of one job.
type tasks struct {
	n      int
	first  job.Task // each task at the submission
	chunks []chunk
	counts job.Counts
	// assigned is the number of tasks with an attempt that may be running.
	assigned int
	ends     map[end]int // number of ended tasks with each end
	began    time.Time   // of the first process
	last     time.Time   // when the last process ended
	stale    bool        // an end was taken back: began and last must be found again

	// Values that many tasks have in common. Cells refer to them by their index.
	hosts  *hosts
	epochs []job.Epoch
	texts  []string // the isolation of attempts that ended

	history history
}

// chunk holds chunkTasks tasks, or fewer in the last chunk. As long as no record is about one of them, they are all
// alike.
type chunk struct {
	alike   *job.Task // the value of all tasks while cells is nil; several chunks share it
	cells   []cell
	placed  []int64 // when the newest attempt of each cell was assigned, ns since 1970; nil while none is known
	pending uint16  // number of pending tasks
	dirty   bool    // it is in dirty.chunks
}

// cell is one task in 80 bytes. Times are ns since 1970, 0 for none.
type cell struct {
	started, ended, closed int64
	began, exited          int64 // Began and Ended of the exit, by the host's clock
	note                   *note
	attempt, runs          uint32
	host, epoch            uint32
	settled                uint32
	code                   int32
	text                   uint16 // isolation of the exit: index in texts plus 1, or 0
	flags                  uint16
	state, exit            uint8 // numbers of states; see stateOf
	signal                 uint8
}

// The flags of a cell.
const (
	flagAssigned uint16 = 1 << iota
	flagExit            // it has an exit
	flagRan             // a process ran in the attempt of the exit
	flagSame            // the times of the exit are those of the task; only on disk
	flagNote            // it is in dirty.notes
	flagTail            // it is in dirty.tails
	flagCancel          // it was told to end, and ends as CANCELLED
	flagRequeue         // it was told to end, and runs again; with flagCancel: another member of its gang decides
	flagUsage           // it is in dirty.usage; not on disk
)

// note holds the fields that only some tasks have. Only its tail and its usage ever change.
type note struct {
	reason     job.Reason
	exitReason string
	devices    []string
	lost       []job.Peer
	tail       string // the end of the standard error
	isolation  string // set if the list of texts is full
	usage      string // see job.Exit
}

func (n *note) empty() bool {
	return n.reason == (job.Reason{}) && n.exitReason == "" && n.isolation == "" && n.tail == "" && n.usage == "" && len(n.devices) == 0 && len(n.lost) == 0
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

func newTasks(n int, first job.Task) tasks {
	ts := tasks{n: n, first: first, chunks: make([]chunk, (n+chunkTasks-1)/chunkTasks), hosts: newHosts(), epochs: make([]job.Epoch, 1, 2)}
	ts.history = newHistory(n, ts.hosts)
	for k := range ts.chunks {
		ts.chunks[k].alike = &first
		ts.chunks[k].count(first.State, ts.size(k))
	}
	ts.counts.Add(first.State, n)
	return ts
}

// count counts n more tasks of the chunk in a state; n may be negative.
func (c *chunk) count(s job.State, n int) {
	if s == job.Pending {
		c.pending = uint16(int(c.pending) + n)
	}
}

// size returns the number of tasks in a chunk.
func (ts *tasks) size(chunk int) int { return min(chunkTasks, ts.n-chunk*chunkTasks) }

func (ts *tasks) get(index int) job.Task {
	c := &ts.chunks[index/chunkTasks]
	if c.cells == nil {
		t := *c.alike
		t.Index = index
		return t
	}
	return ts.task(index, &c.cells[index%chunkTasks])
}

func (ts *tasks) set(index int, t job.Task, d *dirty) {
	k := index / chunkTasks
	c := &ts.chunks[k]
	if c.cells == nil {
		ts.expand(k, d)
	}
	x := &c.cells[index%chunkTasks]
	ts.move(c, stateOf(x.state), t.State, 1)
	ts.assigned += count(t.Assigned) - count(x.flags&flagAssigned != 0)
	if stateOf(x.state).Ended() {
		before := ts.task(index, x)
		ts.countEnd(&before, -1)
		ts.stale = true
	}
	ts.countEnd(&t, 1)
	ts.fill(x, &t, index, d)
	d.chunk(c, k)
}

// move counts n tasks of a chunk in another state.
func (ts *tasks) move(c *chunk, from, to job.State, n int) {
	ts.counts.Add(from, -n)
	ts.counts.Add(to, n)
	c.count(from, -n)
	c.count(to, n)
}

// maxCode is the highest exit code. A host may report others, which count as this one, so that there are few ends.
const maxCode = 255

// end is what counts of a task's end for its job.
type end struct {
	code, status int
	silent       bool // no process ended by itself
}

// countEnd counts the end of a task n times more. It does nothing if the task has not ended.
func (ts *tasks) countEnd(t *job.Task, n int) {
	spared := t.Reason.Word == job.ReasonGangEnded // it ended because another one did, whose code counts
	if ts.n == 1 || !t.State.Ended() || t.Exit == nil && !spared {
		return // a single task is looked at when its end is asked for
	}
	e := end{silent: spared}
	if !spared {
		e.code, e.status = min(max(t.Exit.Code, -1), maxCode), min(max(t.Status(), -1), maxCode)
	}
	if ts.ends == nil {
		ts.ends = map[end]int{}
	}
	if ts.ends[e] += n; ts.ends[e] == 0 {
		delete(ts.ends, e)
	}
	if n > 0 && t.Exit != nil {
		ts.span(t)
	}
}

// span extends began and last by a task that has ended.
func (ts *tasks) span(t *job.Task) {
	if !t.Started.IsZero() && (ts.began.IsZero() || t.Started.Before(ts.began)) {
		ts.began = t.Started
	}
	if t.Ended.After(ts.last) {
		ts.last = t.Ended
	}
}

// respan finds began and last again.
func (ts *tasks) respan() {
	ts.began, ts.last, ts.stale = time.Time{}, time.Time{}, false
	for k := range ts.chunks {
		for i := range ts.chunks[k].cells {
			x := &ts.chunks[k].cells[i]
			if stateOf(x.state).Ended() && x.flags&flagExit != 0 {
				ts.span(&job.Task{Started: storepb.Time(x.started), Ended: storepb.Time(x.ended)})
			}
		}
	}
}

// sum sums up the ends.
func (ts *tasks) sum() job.Ends {
	if ts.n == 1 {
		return job.EndsOf([]job.Task{ts.get(0)})
	}
	if ts.stale {
		ts.respan()
	}
	out := job.Ends{Began: ts.began, Last: ts.last}
	counted := 0
	for e, n := range ts.ends {
		out.Exited, out.Code, out.Status = out.Exited || !e.silent, max(out.Code, e.code), max(out.Status, e.status)
		counted += n
	}
	if ts.counts.Ended() > counted { // the others have ended without a process, for example when they were cancelled
		out.Status = max(out.Status, job.ExitMuster)
	}
	return out
}

// expand makes a cell for each task of a chunk whose tasks are all alike.
func (ts *tasks) expand(k int, d *dirty) {
	c := &ts.chunks[k]
	c.cells = make([]cell, ts.size(k))
	for i := range c.cells {
		ts.fill(&c.cells[i], c.alike, k*chunkTasks+i, d)
	}
	c.alike = nil
}

// each changes the tasks of the ranges that are in one of the states. No ranges means all tasks. The tasks of a chunk
// without cells are changed as one value.
func (ts *tasks) each(ranges []job.Range, states []job.State, d *dirty, change func(*job.Task)) {
	if len(ranges) == 0 {
		ranges = []job.Range{{First: 0, Last: ts.n - 1}}
	}
	shared := map[*job.Task]*job.Task{} // the new value for each old value of chunks without cells
	for _, r := range ranges {
		ts.eachOf(job.Range{First: max(0, r.First), Last: min(r.Last, ts.n-1)}, states, d, shared, change)
	}
}

func (ts *tasks) eachOf(r job.Range, states []job.State, d *dirty, shared map[*job.Task]*job.Task, change func(*job.Task)) {
	for first := r.First; first <= r.Last; first = (first/chunkTasks + 1) * chunkTasks {
		k := first / chunkTasks
		c := &ts.chunks[k]
		last := min(r.Last, k*chunkTasks+ts.size(k)-1)
		if c.cells == nil && last-first+1 < ts.size(k) && slices.Contains(states, c.alike.State) {
			ts.expand(k, d)
		}
		if c.cells != nil {
			for index := first; index <= last; index++ {
				if x := &c.cells[index%chunkTasks]; slices.Contains(states, stateOf(x.state)) {
					t := ts.task(index, x)
					change(&t)
					ts.set(index, t, d)
				}
			}
			continue
		}
		before := c.alike
		if !slices.Contains(states, before.State) {
			continue
		}
		if shared[before] == nil {
			t := *before
			change(&t)
			shared[before] = &t
		}
		c.alike = shared[before]
		ts.move(c, before.State, c.alike.State, ts.size(k))
		d.chunk(c, k)
	}
}

// runs calls f with each run of tasks in the same state, in order.
func (ts *tasks) runs(f func(first, last int, s job.State)) {
	first, state := 0, ts.brief(0).State
	end := func(i int, s job.State) {
		if s != state {
			f(first, i-1, state)
			first, state = i, s
		}
	}
	for k := range ts.chunks {
		c := &ts.chunks[k]
		if c.cells == nil {
			end(k*chunkTasks, c.alike.State)
			continue
		}
		for i := range c.cells {
			end(k*chunkTasks+i, stateOf(c.cells[i].state))
		}
	}
	f(first, ts.n-1, state)
}

// task returns the task that a cell holds.
func (ts *tasks) task(index int, x *cell) job.Task {
	h := &ts.hosts.list[x.host]
	t := job.Task{
		Index: index, State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs),
		Node: h.peer, NodeName: h.name, Store: h.store, Epoch: ts.epochs[x.epoch], Settled: int(x.settled),
		Assigned: x.flags&flagAssigned != 0, Ending: endingOf(x.flags), Placed: storepb.Time(ts.placed(index)), Started: storepb.Time(x.started), Ended: storepb.Time(x.ended), Closed: storepb.Time(x.closed),
	}
	if x.flags&flagExit != 0 {
		t.Exit = &job.Exit{
			State: stateOf(x.exit), Code: int(x.code), Signal: int(x.signal), Started: x.flags&flagRan != 0,
			Began: storepb.Time(x.began), Ended: storepb.Time(x.exited),
		}
		if x.text > 0 {
			t.Exit.Isolation = ts.texts[x.text-1]
		}
	}
	if n := x.note; n != nil {
		t.Reason, t.Devices, t.Lost = n.reason, n.devices, n.lost
		if t.Exit != nil {
			t.Exit.Reason, t.Exit.Tail, t.Exit.Usage = n.exitReason, n.tail, n.usage
			if n.isolation != "" {
				t.Exit.Isolation = n.isolation
			}
		}
	}
	return t
}

func endingOf(flags uint16) job.Ending {
	switch {
	case flags&flagCancel != 0 && flags&flagRequeue != 0:
		return job.EndsGang
	case flags&flagCancel != 0:
		return job.EndsCancelled
	case flags&flagRequeue != 0:
		return job.EndsRequeued
	}
	return job.NotEnding
}

// fill writes a task to its cell.
func (ts *tasks) fill(x *cell, t *job.Task, index int, d *dirty) {
	was := *x
	*x = cell{
		started: storepb.Nanos(t.Started), ended: storepb.Nanos(t.Ended), closed: storepb.Nanos(t.Closed),
		attempt: uint32(t.Attempt), runs: uint32(t.Runs),
		host: ts.hosts.of(host{t.Node, t.NodeName, t.Store}), epoch: ts.epochOf(t.Epoch), settled: uint32(t.Settled),
		state: number(t.State), flags: x.flags & (flagNote | flagTail | flagUsage), note: was.note,
	}
	if t.Assigned {
		x.flags |= flagAssigned
	}
	switch t.Ending {
	case job.NotEnding:
	case job.EndsCancelled:
		x.flags |= flagCancel
	case job.EndsRequeued:
		x.flags |= flagRequeue
	case job.EndsGang:
		x.flags |= flagCancel | flagRequeue
	}
	n := note{reason: t.Reason, devices: t.Devices, lost: t.Lost}
	if e := t.Exit; e != nil {
		x.flags |= flagExit
		if e.Started {
			x.flags |= flagRan
		}
		x.exit, x.code, x.signal = number(e.State), int32(e.Code), uint8(e.Signal)
		x.began, x.exited = storepb.Nanos(e.Began), storepb.Nanos(e.Ended)
		n.exitReason, n.tail, n.usage = e.Reason, e.Tail, e.Usage
		if x.text = ts.textOf(e.Isolation); x.text == 0 {
			n.isolation = e.Isolation
		}
	}
	ts.place(index, storepb.Nanos(t.Placed))
	ts.setNote(x, &n, index, was.flags&flagExit != 0 && !was.sameExit(x), d)
}

// placed returns when the newest attempt of a task was assigned; 0 if that is not known.
func (ts *tasks) placed(index int) int64 {
	if p := ts.chunks[index/chunkTasks].placed; p != nil {
		return p[index%chunkTasks]
	}
	return 0
}

// place notes when the newest attempt of a task was assigned.
func (ts *tasks) place(index int, at int64) {
	c := &ts.chunks[index/chunkTasks]
	if c.placed == nil {
		if at == 0 {
			return
		}
		c.placed = make([]int64, len(c.cells))
	}
	c.placed[index%chunkTasks] = at
}

// sameExit reports whether two cells have the same exit.
func (x *cell) sameExit(y *cell) bool {
	return x.exit == y.exit && x.code == y.code && x.signal == y.signal && x.began == y.began && x.exited == y.exited
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
	if x.note = n; n.empty() {
		x.note = nil
	}
}

// sameButTexts reports whether two notes are the same, except for what has rows of its own: their tails and usage.
func (n *note) sameButTexts(o *note) bool {
	return n.reason == o.reason && n.exitReason == o.exitReason && n.isolation == o.isolation &&
		slices.Equal(n.devices, o.devices) && slices.Equal(n.lost, o.lost)
}

// epochOf returns the index of an epoch in epochs, and adds it if it is new.
func (ts *tasks) epochOf(e job.Epoch) uint32 {
	for i, x := range slices.Backward(ts.epochs) { // it is nearly always the last
		if x == e {
			return uint32(i)
		}
	}
	ts.epochs = append(ts.epochs, e)
	return uint32(len(ts.epochs) - 1)
}

// maxTexts bounds the list of texts, because textOf searches it.
const maxTexts = 64

// textOf returns the index of a text in texts plus 1, and adds the text if it is new. It returns 0 if the text is empty
// or the list is full.
func (ts *tasks) textOf(s string) uint16 {
	if s == "" {
		return 0
	}
	if i := slices.Index(ts.texts, s); i >= 0 {
		return uint16(i + 1)
	}
	if len(ts.texts) >= maxTexts {
		return 0
	}
	ts.texts = append(ts.texts, s)
	return uint16(len(ts.texts))
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
}

func (ts *tasks) brief(index int) Brief {
	c := &ts.chunks[index/chunkTasks]
	if c.cells == nil {
		return Brief{State: c.alike.State}
	}
	x := &c.cells[index%chunkTasks]
	h := &ts.hosts.list[x.host]
	return Brief{
		State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs), Assigned: x.flags&flagAssigned != 0, Ending: endingOf(x.flags),
		Node: h.peer, NodeName: h.name, Store: h.store,
	}
}

func (ts *tasks) lost(index int) []job.Peer {
	c := &ts.chunks[index/chunkTasks]
	if c.cells == nil || c.cells[index%chunkTasks].note == nil {
		return nil
	}
	return c.cells[index%chunkTasks].note.lost
}
