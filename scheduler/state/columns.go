package state

// The row of a chunk: columns, with an entry for each task.

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// chunkPB encodes a chunk in columns.
func (ts *tasks) chunkPB(k int) *jobspb.Chunk {
	c := &ts.chunks[k]
	if c.mixed == nil {
		return &jobspb.Chunk{Alike: ts.values.list[c.value].pb()}
	}
	w := chunkWriter{ts: ts, m: &jobspb.Chunk{Base: baseOf(c.mixed)}, n: ts.size(k)}
	w.writeValues(c.mixed)
	next := 0
	for i := range w.n {
		if c.cell(i) != nil {
			w.write(i, &c.mixed.cells[next])
			next++
		}
	}
	w.finish()
	return w.m
}

// chunkWriter turns values and cells into columns.
type chunkWriter struct {
	ts     *tasks
	m      *jobspb.Chunk
	n      int
	states numbering[uint8] // of the cells
	epochs numbering[uint32]
	texts  numbering[uint16]
}

// numbering numbers the distinct values that it is given, from 0.
type numbering[T comparable] struct{ list []T }

func (p *numbering[T]) of(v T) uint32 {
	i := slices.Index(p.list, v)
	if i < 0 {
		p.list = append(p.list, v)
		i = len(p.list) - 1
	}
	return uint32(i)
}

// writeValues writes the tasks without cells. The first states are those of the values.
func (w *chunkWriter) writeValues(c *mixed) {
	m, ids := w.m, numbering[uint8]{}
	for i, id := range c.values {
		if id != ownCell {
			w.set8(&m.State, i, uint8(ids.of(id))) //nolint:gosec // fewer than ownCell
		}
	}
	for _, id := range ids.list {
		v := &w.ts.values.list[id]
		m.Values, m.States = append(m.Values, v.pb()), append(m.States, string(stateOf(v.state)))
	}
	w.epochs.of(0)
	w.texts.of(0)
}

// write writes the cell of a task.
func (w *chunkWriter) write(i int, x *cell) {
	m, state := w.m, func(s uint8) uint8 { return uint8(len(w.m.Values)) + uint8(w.states.of(s)) } //nolint:gosec // there are few states
	flags := x.flags & (flagAssigned | flagExit | flagRan | flagCancel | flagRequeue)
	same := x.flags&flagExit != 0 && x.began == x.started && x.exited == x.ended
	if same {
		flags |= flagSame
	}
	w.set8(&m.State, i, state(x.state))
	w.set8(&m.Flags, i, uint8(flags)) //nolint:gosec // those on disk fit
	w.set32(&m.Attempt, i, x.attempt)
	w.set32(&m.Runs, i, x.runs)
	w.set32(&m.Settled, i, x.settled)
	w.set32(&m.Host, i, x.host)
	w.set32(&m.Epoch, i, w.epochs.of(x.epoch))
	if x.flags&flagExit != 0 {
		w.set8(&m.Exit, i, state(x.exit))
	}
	if x.code != 0 {
		if m.Code == nil {
			m.Code = make([]int32, w.n)
		}
		m.Code[i] = x.code
	}
	w.set8(&m.Signal, i, x.signal)
	w.set32(&m.Text, i, w.texts.of(x.text))
	w.setTimes(i, x, same)
}

// finish writes the lists to which the columns refer.
func (w *chunkWriter) finish() {
	for _, s := range w.states.list {
		w.m.States = append(w.m.States, string(stateOf(s)))
	}
	for _, e := range w.epochs.list[1:] {
		w.m.Epochs = append(w.m.Epochs, storepb.FromEpoch(w.ts.epochs[e]))
	}
	for _, at := range w.texts.list[1:] {
		w.m.Texts = append(w.m.Texts, w.ts.texts[at-1])
	}
}

// baseOf returns the time from which the offsets in a chunk count: 1 ns before the first time of all cells, so that the
// offset 0 can mean "no time". It is 0 if the cells have no times.
func baseOf(c *mixed) (base int64) {
	for i := range c.cells {
		for _, at := range c.cells[i].times() {
			if *at != 0 && (base == 0 || *at <= base) {
				base = *at - 1
			}
		}
	}
	return base
}

// setTimes writes the times of a cell. If same is true, it leaves out the times of the exit, which are those of the
// task.
func (w *chunkWriter) setTimes(i int, x *cell, same bool) {
	columns := timeColumns(w.m)
	for c, at := range x.times() {
		if *at == 0 || same && (c == beganTime || c == exitedTime) {
			continue
		}
		if *columns[c] == nil {
			*columns[c] = make([]uint64, w.n)
		}
		(*columns[c])[i] = uint64(*at - w.m.Base)
	}
}

// times returns pointers to the times of a cell, in the order of timeColumns.
func (x *cell) times() [6]*int64 {
	return [6]*int64{&x.started, &x.ended, &x.closed, &x.began, &x.exited, &x.placed}
}

// The indexes of the exit's times in the array that times returns.
const (
	beganTime  = 3
	exitedTime = 4
)

func timeColumns(m *jobspb.Chunk) [6]*[]uint64 {
	return [6]*[]uint64{&m.Started, &m.Ended, &m.Closed, &m.Began, &m.Exited, &m.Placed}
}

func (w *chunkWriter) set8(column *[]byte, i int, v uint8) {
	if v == 0 {
		return
	}
	if *column == nil {
		*column = make([]byte, w.n)
	}
	(*column)[i] = v
}

func (w *chunkWriter) set32(column *[]uint32, i int, v uint32) {
	if v == 0 {
		return
	}
	if *column == nil {
		*column = make([]uint32, w.n)
	}
	(*column)[i] = v
}

// decodeChunk reads the row of a chunk.
func (ts *tasks) decodeChunk(k int, data []byte, d *dirty) error {
	var m jobspb.Chunk
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	c := &ts.chunks[k]
	ts.drop(c, ts.size(k))
	if m.GetAlike() != nil {
		v, err := decodeValue(m.GetAlike())
		if err != nil {
			return err
		}
		ts.setAll(c, ts.size(k), ts.values.of(v))
		return nil
	}
	r := chunkReader{m: &m, n: ts.size(k)}
	old, err := r.read(ts, c)
	if old {
		d.chunk(c, k)
	}
	return err
}

// chunkReader turns columns into values and cells.
type chunkReader struct {
	m *jobspb.Chunk
	n int
}

// read decodes the tasks. It checks that each column is empty or has an entry for each task, and that all references in
// the columns are valid. Rows of older versions have entries in many columns for tasks that were never assigned, too; then
// old is true.
func (r *chunkReader) read(ts *tasks, c *chunk) (old bool, err error) {
	m := r.m
	for _, n := range []int{
		len(m.State), len(m.Flags), len(m.Attempt), len(m.Runs), len(m.Host), len(m.Epoch), len(m.Exit), len(m.Code), len(m.Signal),
		len(m.Text), len(m.Settled), len(m.Started), len(m.Ended), len(m.Closed), len(m.Began), len(m.Exited), len(m.Placed),
	} {
		if n != 0 && n != r.n {
			return false, fmt.Errorf("%w: a column of %d for %d tasks", errBadRow, n, r.n)
		}
	}
	states, err := numbersOf(m.GetStates())
	if err != nil {
		return false, err
	}
	epochs, texts, ids := []uint32{0}, []uint16{0}, []uint8{}
	for _, e := range m.GetEpochs() {
		epochs = append(epochs, ts.epochOf(e.Value()))
	}
	for _, t := range m.GetTexts() {
		texts = append(texts, ts.textOf(t))
	}
	for _, t := range m.GetValues() {
		v, err := decodeValue(t)
		if err != nil {
			return false, err
		}
		id := ts.values.of(v)
		ts.values.used[id]++ // so that the next value does not get the same number
		ids = append(ids, id)
	}
	for i := range r.n {
		if state := int(at(m.State, i)); state < len(ids) {
			ts.setValue(c, i, r.n, ids[state])
			continue
		}
		x := cell{}
		if err := r.cell(ts, &x, i, states, epochs, texts); err != nil {
			return false, err
		}
		old = ts.put(c, i, r.n, x) || old
	}
	for _, id := range ids {
		ts.values.used[id]--
	}
	return old, nil
}

// put puts a cell into a chunk. It returns true if the task was never assigned: then it has a value instead.
func (ts *tasks) put(c *chunk, i, size int, x cell) bool {
	if x.attempt == 0 {
		t := x.task(0, &ts.common)
		if v, plain := valueOf(&t); plain {
			ts.setValue(c, i, size, ts.values.of(v))
			return true
		}
	}
	*ts.giveCell(c, i, size) = x
	return false
}

// cell decodes the cell of a task.
func (r *chunkReader) cell(ts *tasks, x *cell, i int, states []uint8, epochs []uint32, texts []uint16) error {
	m, ok := r.m, true
	x.state, ok = pick(states, int(at(m.State, i)), ok)
	x.flags = uint16(at(m.Flags, i)) & (flagAssigned | flagExit | flagRan | flagCancel | flagRequeue)
	x.attempt, x.runs = at(m.Attempt, i), at(m.Runs, i)
	x.settled = at(m.Settled, i)
	x.host = at(m.Host, i)
	ok = ok && int(x.host) < len(ts.hosts.list)
	x.epoch, ok = pick(epochs, int(at(m.Epoch, i)), ok)
	x.text, ok = pick(texts, int(at(m.Text, i)), ok)
	if x.flags&flagExit != 0 {
		x.exit, ok = pick(states, int(at(m.Exit, i)), ok)
	}
	if !ok {
		return fmt.Errorf("%w: task %d has an invalid reference", errBadRow, i)
	}
	x.code, x.signal = at(m.Code, i), at(m.Signal, i)
	columns := timeColumns(m)
	for c, to := range x.times() {
		if offset := at(*columns[c], i); offset != 0 {
			*to = m.Base + int64(offset) //nolint:gosec // as it was written
		}
	}
	if uint16(at(m.Flags, i))&flagSame != 0 {
		x.began, x.exited = x.started, x.ended
	}
	return nil
}

// at returns the value of task i in a column; in an empty column every value is zero.
func at[T any](column []T, i int) (v T) {
	if i < len(column) {
		v = column[i]
	}
	return v
}

// pick returns list[i]. It returns false if ok is false or i is out of range.
func pick[T any](list []T, i int, ok bool) (v T, valid bool) {
	if !ok || i >= len(list) {
		return v, false
	}
	return list[i], true
}
