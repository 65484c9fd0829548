package jobs

// The tasks of a job: chunks of cells, and how many tasks are in each state.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// chunkTasks is how many tasks share a row on disk: with 256 of them a row stays below
// 10 KB, which is what one record then costs to save.
const chunkTasks = 256

// tasks are those of one job.
type tasks struct {
	n      int
	first  job.Task // as each was born
	chunks []chunk
	counts job.Counts
	// assigned is how many tasks have an attempt that may be running.
	assigned int

	// What many tasks have in common is kept once and named by its place here.
	hosts  []host
	epochs []job.Epoch
	texts  []string // what held the processes of attempts that ended

	hostAt map[host]uint32 // places in hosts, once there are many
}

// chunk is chunkTasks tasks, fewer in the last. Until a record touches one of them they
// are all alike.
type chunk struct {
	alike *job.Task // their one value, while cells is nil; shared by chunks
	cells []cell
	dirty bool // in dirty.chunks
}

// host is where attempts ran. Place 0 of the list stands for none.
type host struct {
	peer  job.Peer
	name  string
	store string
}

// cell is one task in 80 bytes. Times are ns since 1970, 0 for none.
type cell struct {
	started, ended, closed int64
	began, exited          int64 // of the exit, by the host's clock
	note                   *note
	attempt, runs          uint32
	host, epoch            uint32
	code                   int32
	text                   uint16 // the exit's isolation
	state, exit            uint8  // numbers of states
	signal                 uint8
	flags                  uint8
}

// The flags of a cell.
const (
	flagAssigned uint8 = 1 << iota
	flagExit           // it has an exit
	flagRan            // in which a process ran
	flagSame           // at the times of the task; only on disk
	flagNote           // in dirty.notes
	flagTail           // in dirty.tails
)

// note is what only some tasks have. A note is never changed, but for its tail.
type note struct {
	reason     job.Reason
	exitReason string
	devices    []string
	lost       []job.Peer
	tail       string // the end of the standard error
	isolation  string // where the list of texts is full
}

func (n *note) empty() bool {
	return n.reason == (job.Reason{}) && n.exitReason == "" && n.isolation == "" && n.tail == "" && len(n.devices) == 0 && len(n.lost) == 0
}

// dirty is what of a job has changed since its rows were last taken.
type dirty struct {
	header bool
	hosts  int      // from this place on
	chunks []uint32 // places of chunks
	notes  []uint32 // indexes of tasks
	tails  []uint32
	taken  []uint32 // tails that rows were taken of
}

func newTasks(n int, first job.Task) tasks {
	ts := tasks{n: n, first: first, chunks: make([]chunk, (n+chunkTasks-1)/chunkTasks), hosts: make([]host, 1, 2), epochs: make([]job.Epoch, 1, 2)}
	for i := range ts.chunks {
		ts.chunks[i].alike = &first
	}
	ts.counts.Add(first.State, n)
	return ts
}

// size is how many tasks a chunk has.
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
		ts.spell(k, d)
	}
	x := &c.cells[index%chunkTasks]
	ts.counts.Add(stateOf(x.state), -1)
	ts.counts.Add(t.State, 1)
	ts.assigned += count(t.Assigned) - count(x.flags&flagAssigned != 0)
	ts.fill(x, &t, index, d)
	d.chunk(c, k)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// spell gives the tasks of a chunk, until now all alike, a cell each.
func (ts *tasks) spell(k int, d *dirty) {
	c := &ts.chunks[k]
	c.cells = make([]cell, ts.size(k))
	for i := range c.cells {
		ts.fill(&c.cells[i], c.alike, k*chunkTasks+i, d)
	}
	c.alike = nil
}

// each changes the tasks in one of the states. Chunks that are alike stay so.
func (ts *tasks) each(states []job.State, d *dirty, change func(*job.Task)) {
	shared := map[*job.Task]*job.Task{} // of chunks that were alike, before and after
	for k := range ts.chunks {
		c := &ts.chunks[k]
		if c.cells != nil {
			for i := range c.cells {
				if index := k*chunkTasks + i; slices.Contains(states, stateOf(c.cells[i].state)) {
					t := ts.task(index, &c.cells[i])
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
		ts.counts.Add(before.State, -ts.size(k))
		ts.counts.Add(c.alike.State, ts.size(k))
		d.chunk(c, k)
	}
}

// task is what a cell says.
func (ts *tasks) task(index int, x *cell) job.Task {
	h := &ts.hosts[x.host]
	t := job.Task{
		Index: index, State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs),
		Node: h.peer, NodeName: h.name, Store: h.store, Epoch: ts.epochs[x.epoch],
		Assigned: x.flags&flagAssigned != 0, Started: storepb.Time(x.started), Ended: storepb.Time(x.ended), Closed: storepb.Time(x.closed),
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
			t.Exit.Reason, t.Exit.Tail = n.exitReason, n.tail
			if n.isolation != "" {
				t.Exit.Isolation = n.isolation
			}
		}
	}
	return t
}

// fill writes a task into its cell.
func (ts *tasks) fill(x *cell, t *job.Task, index int, d *dirty) {
	was := *x
	*x = cell{
		started: storepb.Nanos(t.Started), ended: storepb.Nanos(t.Ended), closed: storepb.Nanos(t.Closed),
		attempt: uint32(t.Attempt), runs: uint32(t.Runs),
		host: ts.hostOf(host{t.Node, t.NodeName, t.Store}), epoch: ts.epochOf(t.Epoch),
		state: number(t.State), flags: x.flags & (flagNote | flagTail), note: was.note,
	}
	if t.Assigned {
		x.flags |= flagAssigned
	}
	n := note{reason: t.Reason, devices: t.Devices, lost: t.Lost}
	if e := t.Exit; e != nil {
		x.flags |= flagExit
		if e.Started {
			x.flags |= flagRan
		}
		x.exit, x.code, x.signal = number(e.State), int32(e.Code), uint8(e.Signal)
		x.began, x.exited = storepb.Nanos(e.Began), storepb.Nanos(e.Ended)
		n.exitReason, n.tail = e.Reason, e.Tail
		if x.text = ts.textOf(e.Isolation); x.text == 0 {
			n.isolation = e.Isolation
		}
	}
	replaced := ts.n > 1 && was.flags&flagExit != 0 && !was.sameExit(x)
	ts.setNote(x, &n, index, replaced, d)
}

// sameExit says whether two cells tell of the same exit.
func (x *cell) sameExit(y *cell) bool {
	return x.exit == y.exit && x.code == y.code && x.signal == y.signal && x.began == y.began && x.exited == y.exited
}

// setNote gives the cell its note, and marks what of it is to be saved. replaced says
// that the tail on disk is of an exit that another has replaced.
func (ts *tasks) setNote(x *cell, n *note, index int, replaced bool, d *dirty) {
	old := x.note
	if old == nil {
		old = &note{}
	}
	if (n.tail != old.tail || replaced) && x.flags&flagTail == 0 {
		x.flags |= flagTail
		d.tails = append(d.tails, uint32(index))
	}
	if !n.sameBut(old) && x.flags&flagNote == 0 {
		x.flags |= flagNote
		d.notes = append(d.notes, uint32(index))
	}
	if x.note = n; n.empty() {
		x.note = nil
	}
}

// sameBut says whether two notes are the same but for their tails.
func (n *note) sameBut(o *note) bool {
	return n.reason == o.reason && n.exitReason == o.exitReason && n.isolation == o.isolation &&
		slices.Equal(n.devices, o.devices) && slices.Equal(n.lost, o.lost)
}

// manyHosts is when a map finds hosts faster than a look at the list.
const manyHosts = 16

func (ts *tasks) hostOf(h host) uint32 {
	if h == (host{}) {
		return 0
	}
	if ts.hostAt == nil {
		if i := slices.Index(ts.hosts, h); i >= 0 {
			return uint32(i)
		}
	} else if i, there := ts.hostAt[h]; there {
		return i
	}
	ts.hosts = append(ts.hosts, h)
	at := uint32(len(ts.hosts) - 1)
	if ts.hostAt != nil {
		ts.hostAt[h] = at
	} else if len(ts.hosts) > manyHosts {
		ts.hostAt = make(map[host]uint32, 2*manyHosts)
		for i, h := range ts.hosts {
			ts.hostAt[h] = uint32(i)
		}
	}
	return at
}

func (ts *tasks) epochOf(e job.Epoch) uint32 {
	for i, x := range slices.Backward(ts.epochs) { // nearly always the last
		if x == e {
			return uint32(i)
		}
	}
	ts.epochs = append(ts.epochs, e)
	return uint32(len(ts.epochs) - 1)
}

// maxTexts bounds the list of texts that is looked through.
const maxTexts = 64

// textOf is the place of a text, from 1; 0 if it is empty or the list is full.
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

// states are numbered in the order of a task's life.
var (
	states  = job.States()
	numbers = func() map[job.State]uint8 {
		m := map[job.State]uint8{}
		for i, s := range states {
			m[s] = uint8(i)
		}
		return m
	}()
)

func stateOf(n uint8) job.State { return states[n] }
func number(s job.State) uint8  { return numbers[s] }

// Brief is what of a task the scheduler looks at most.
type Brief struct {
	State    job.State
	Attempt  int // newest; 0 if none
	Runs     int
	Assigned bool
	// The newest attempt's host, empty before the first.
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
	h := &ts.hosts[x.host]
	return Brief{
		State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs), Assigned: x.flags&flagAssigned != 0,
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
