package sim

// The journal of an owner and the rows of its jobs, in memory.

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// journal is what is on the disk of an owner, and what is under way to it.
type journal struct {
	queue    []entry
	commitAt time.Duration
	index64  uint64
	log      []job.Committed // entries that the rows may not reflect
	rows     rows
	files    map[job.ID][]byte // large job files
	undo     []unsavedRow
	writes   int
	flushed  uint64 // the rows that survive a crash reflect the entries up to this index
}

// entry is the records that are proposed together.
type entry struct{ records []job.Record }

// rows are the rows of jobs, by job and part.
type rows map[job.ID]map[string][]byte

// unsavedRow is the old value of a row whose write a crash may lose.
type unsavedRow struct {
	id     job.ID
	before map[string][]byte // nil: there was none
}

// flushEvery is how many writes of rows a crash may lose.
const flushEvery = 16

// proposeBatch bounds the records of one entry, as in the loop.
const proposeBatch = 64

var errJournal = errors.New("the journal is busy")

// of returns the rows of a job, in order.
func (d rows) of(id job.ID) (out []job.Row) {
	for _, part := range slices.Sorted(maps.Keys(d[id])) {
		out = append(out, job.Row{Job: id, Part: part, Data: d[id][part]})
	}
	return out
}

// all returns all rows, in the order in which a store loads them.
func (d rows) all() (out []job.Row) {
	for _, id := range slices.SortedFunc(maps.Keys(d), func(a, b job.ID) int { return strings.Compare(string(a), string(b)) }) {
		out = append(out, d.of(id)...)
	}
	return out
}

// save writes rows, and deletes all rows of the jobs in gone.
func (d rows) save(changed []job.Row, gone []job.ID) {
	for _, r := range changed {
		if d[r.Job] == nil {
			d[r.Job] = map[string][]byte{}
		}
		if r.Data == nil {
			delete(d[r.Job], r.Part)
		} else {
			d[r.Job][r.Part] = r.Data
		}
	}
	for _, id := range gone {
		delete(d, id)
	}
}

// proposeAll proposes records that end work separately from those that begin work, as the loop does.
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
		if w.refusals > 0 && w.chance.Float64() < w.refusals {
			o.tell(step.NotProposed{Records: batch, Err: errJournal})
			continue
		}
		o.queue = append(o.queue, entry{batch})
		o.commitAt = max(o.commitAt, w.now+w.draw(w.cfg.Costs.Commit))
		life := o.life
		w.at(o.commitAt, func() {
			if o.life == life && o.up {
				e := o.queue[0]
				o.queue[0] = entry{}
				o.queue = o.queue[1:]
				o.append(job.Committed{Records: e.records})
			}
		})
	}
}

// append commits an entry, and delivers it.
func (o *owner) append(e job.Committed) {
	o.index64++
	e.Index, e.Epoch = o.index64, job.Epoch{Generation: 1, Term: o.term}
	if o.w.durable {
		o.log = append(o.log, e)
	}
	for i, r := range e.Records {
		if o.w.watch != nil {
			o.w.watch.committed(o, r, e.Index<<12|uint64(i), e.Epoch)
		}
		o.committed(r)
	}
	o.tell(step.Committed{Committed: e})
}

// confirm runs a round in which the owner makes sure that it leads.
func confirm(o *owner, tok step.Token) {
	w, life := o.w, o.life
	var err error
	if w.refusals > 0 && w.chance.Float64() < w.refusals {
		err = errJournal
	}
	epoch := job.Epoch{Generation: 1, Term: o.term}
	w.after(w.draw(w.cfg.Costs.Confirm), func() {
		if o.life == life {
			o.tell(step.ReadDone{Token: tok, Epoch: epoch, Err: err})
		}
	})
}

// save writes rows. A crash may lose what was written since the last flush.
func (o *owner) save(changed []job.Row, gone []job.ID) {
	if len(changed) == 0 && len(gone) == 0 {
		return
	}
	o.keptRows = append(o.keptRows[:0], step.RowsKept{Applied: o.core.Applied()})
	changed = keepFiles(o, changed, gone)
	if !o.w.durable {
		return
	}
	note := func(id job.ID) { o.undo = append(o.undo, unsavedRow{id, maps.Clone(o.rows[id])}) }
	last := job.ID("")
	for _, r := range changed {
		if r.Job == last {
			continue
		}
		last = r.Job
		note(r.Job)
		if o.w.watch != nil {
			o.w.watch.saves(o, r.Job)
		}
	}
	for _, id := range gone {
		note(id)
	}
	o.rows.save(changed, gone)
	if o.writes++; o.writes%flushEvery == 0 {
		flushRows(o)
	}
}

// keepFiles keeps large job files, and returns the other rows.
func keepFiles(o *owner, changed []job.Row, gone []job.ID) []job.Row {
	for _, id := range gone {
		delete(o.files, id)
	}
	return slices.DeleteFunc(changed, func(r job.Row) bool {
		if r.Part != job.PartFile {
			return false
		}
		if o.files == nil {
			o.files = map[job.ID][]byte{}
		}
		o.files[r.Job] = r.Data
		return true
	})
}

// flushRows makes the rows survive a crash. The journal then drops the entries that they reflect.
func flushRows(o *owner) {
	clear(o.undo)
	o.undo, o.flushed = o.undo[:0], o.core.Applied()
	if n := len(o.log); n > 256 {
		i := slices.IndexFunc(o.log, func(e job.Committed) bool { return e.Index > o.flushed })
		if i < 0 {
			i = n
		}
		o.log = slices.Clone(o.log[i:])
	}
}

// crash is called when the daemon ends. Some of the entries under way have reached the disk, but no rows that were
// written since the last flush.
func crash(o *owner) {
	if n := len(o.queue); n > 0 {
		for _, e := range o.queue[:o.w.chance.IntN(n+1)] {
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

// written returns a record as it is read from the journal: a time on disk has no monotonic reading.
func written(r job.Record) job.Record { //nolint:ireturn // a record is one of several types
	switch r := r.(type) {
	case job.SubmitRecord:
		r.At = r.At.Round(0)
		return r
	case job.UnassignRecord:
		r.At = r.At.Round(0)
		return r
	case job.UnassignGangRecord:
		r.At = r.At.Round(0)
		return r
	case job.ResultRecord:
		r.At, r.Exit.Began, r.Exit.Ended = r.At.Round(0), r.Exit.Began.Round(0), r.Exit.Ended.Round(0)
		return r
	case job.CancelRecord:
		r.At = r.At.Round(0)
		return r
	default:
		return r
	}
}
