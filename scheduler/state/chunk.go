package state

// Chunks: the tasks of a job, 256 at a time. A task that was never assigned is one byte, which names its value; the others
// have cells.

import (
	"bytes"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/musterhq/muster/job"
)

// chunkTasks is the number of tasks in a chunk. One record about a task changes one chunk, whose row is below 10 KB.
const chunkTasks = 256

// chunk holds chunkTasks tasks, or fewer in the last chunk.
type chunk struct {
	mixed   *mixed // nil while all its tasks have one value
	pending uint16 // number of pending tasks
	value   uint8  // of all its tasks, while mixed is nil
	dirty   bool   // it is in dirty.chunks
}

// chunked holds the tasks of one job, in chunks.
type chunked struct {
	n      int // number of tasks
	values values
	chunks []chunk
	held   int // bytes of memory of the chunks, beyond the chunks themselves; see Memory
	counts job.Counts
}

// mixed holds the tasks of a chunk that have different values, or cells.
type mixed struct {
	values []uint8 // of each task, or ownCell; nil if all have cells
	cells  []cell  // in the order of their tasks
	has    [chunkTasks / 64]uint64
}

// The sizes of a chunk and of what it has while it is mixed, in bytes of memory.
const (
	chunkBytes = int(unsafe.Sizeof(chunk{}))
	mixedBytes = int(unsafe.Sizeof(mixed{}))
)

// bytes returns the memory of the chunks.
func (cs *chunked) bytes() int { return len(cs.chunks)*chunkBytes + cs.held + cs.values.bytes() }

// bytes returns the memory of the chunk's tasks, with their notes.
func (m *mixed) bytes() int {
	n := mixedBytes + len(m.values) + cap(m.cells)*cellBytes
	for i := range m.cells {
		n += m.cells[i].note.bytes()
	}
	return n
}

// cell returns the cell of the i-th task, or nil if it has none.
func (c *chunk) cell(i int) *cell {
	if m := c.mixed; m != nil && m.has[i>>6]>>(i&63)&1 != 0 {
		return &m.cells[m.rank(i)]
	}
	return nil
}

// rank returns how many tasks before the i-th one have cells.
func (m *mixed) rank(i int) (n int) {
	for _, word := range m.has[:i>>6] {
		n += bits.OnesCount64(word)
	}
	return n + bits.OnesCount64(m.has[i>>6]&(1<<(i&63)-1))
}

// valueAt returns the number of the value of the i-th task, which has no cell.
func (c *chunk) valueAt(i int) uint8 {
	if c.mixed == nil {
		return c.value
	}
	return c.mixed.values[i]
}

// count counts n more tasks of the chunk in a state; n may be negative.
func (c *chunk) count(s job.State, n int) {
	if s == job.Pending {
		c.pending = uint16(int(c.pending) + n) //nolint:gosec // at most chunkTasks
	}
}

// stateAt returns the number of the state of the i-th task of a chunk.
func (cs *chunked) stateAt(c *chunk, i int) uint8 {
	if x := c.cell(i); x != nil {
		return x.state
	}
	return cs.values.list[c.valueAt(i)].state
}

// mix prepares a chunk for a task that is about to get a value of its own, or a cell.
func (cs *chunked) mix(c *chunk, size int) *mixed {
	if c.mixed == nil {
		c.mixed = &mixed{}
		if size > 1 {
			c.mixed.values = bytes.Repeat([]byte{c.value}, size)
		}
		cs.held += mixedBytes + len(c.mixed.values)
	}
	return c.mixed
}

// giveCell makes the cell of the i-th task, which has none.
func (cs *chunked) giveCell(c *chunk, i, size int) *cell {
	cs.values.used[c.valueAt(i)]--
	m := cs.mix(c, size)
	at := m.rank(i)
	if n := len(m.cells); n == cap(m.cells) { // it grows by half, because most chunks have few cells or come to have all
		cs.held += cellBytes * (min(size, n+n/2+1) - n)
		m.cells = append(make([]cell, 0, min(size, n+n/2+1)), m.cells...)
	}
	m.cells = slices.Insert(m.cells, at, cell{})
	m.has[i>>6] |= 1 << (i & 63)
	if len(m.cells) == size {
		cs.held -= len(m.values)
		m.values = nil
	} else {
		m.values[i] = ownCell
	}
	return &m.cells[at]
}

// setValue gives the i-th task of a chunk, which has no cell, a value.
func (cs *chunked) setValue(c *chunk, i, size int, id uint8) {
	before := c.valueAt(i)
	if before == id {
		return
	}
	cs.values.used[before]--
	cs.values.used[id]++
	cs.move(c, cs.values.state(before), cs.values.state(id), 1)
	if size == 1 {
		c.value = id
	} else {
		cs.mix(c, size).values[i] = id
	}
}

// setAll gives all tasks of a chunk another value. Before, they must all have the same value.
func (cs *chunked) setAll(c *chunk, size int, id uint8) {
	cs.values.used[c.value] -= int32(size) //nolint:gosec // at most chunkTasks
	cs.values.used[id] += int32(size)      //nolint:gosec // at most chunkTasks
	cs.move(c, cs.values.state(c.value), cs.values.state(id), size)
	c.value = id
}

// unmix frees the memory for different values if all tasks of the chunk have the same one again.
func (cs *chunked) unmix(c *chunk) {
	if m := c.mixed; m != nil && len(m.cells) == 0 && bytes.Count(m.values, m.values[:1]) == len(m.values) {
		cs.held -= mixedBytes + len(m.values)
		c.value, c.mixed = m.values[0], nil
	}
}

// size returns the number of tasks in a chunk.
func (cs *chunked) size(chunk int) int { return min(chunkTasks, cs.n-chunk*chunkTasks) }

// move counts n tasks of a chunk in another state.
func (cs *chunked) move(c *chunk, from, to job.State, n int) {
	cs.counts.Add(from, -n)
	cs.counts.Add(to, n)
	c.count(from, -n)
	c.count(to, n)
}

// runs calls f with each run of tasks in the same state, in order.
func (cs *chunked) runs(f func(first, last int, s job.State)) {
	first, state := 0, cs.stateAt(&cs.chunks[0], 0)
	end := func(i int, s uint8) {
		if s != state {
			f(first, i-1, stateOf(state))
			first, state = i, s
		}
	}
	for k := range cs.chunks {
		c := &cs.chunks[k]
		for i := range cs.size(k) {
			end(k*chunkTasks+i, cs.stateAt(c, i))
			if c.mixed == nil {
				break
			}
		}
	}
	f(first, cs.n-1, stateOf(state))
}

// cell returns the cell of a task, or nil if it has none.
func (cs *chunked) cell(index uint32) *cell {
	return cs.chunks[index/chunkTasks].cell(int(index % chunkTasks))
}

// note returns the note of a task, or nil if it has none.
func (cs *chunked) note(index uint32) *note {
	if x := cs.cell(index); x != nil {
		return x.note
	}
	return nil
}

// drop gives all tasks of a chunk the value that they had at the submission.
func (cs *chunked) drop(c *chunk, size int) {
	if m := c.mixed; m != nil {
		for _, id := range m.values {
			if id != ownCell {
				cs.values.used[id]--
			}
		}
		cs.held -= m.bytes()
	} else {
		cs.values.used[c.value] -= int32(size) //nolint:gosec // at most chunkTasks
	}
	cs.values.used[0] += int32(size) //nolint:gosec // at most chunkTasks
	*c = chunk{dirty: c.dirty}
}
