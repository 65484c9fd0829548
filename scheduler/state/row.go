package state

// Encoding a job as rows. Each row is a part of the job, and is saved when that part has changed.

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// TakeRows returns the rows of all parts that have changed since the last call. It returns an error if a part cannot be
// encoded; the parts then still count as changed.
func (j *Job) TakeRows() ([]job.Row, error) {
	d := &j.dirty
	rows := make([]job.Row, 0, 1+len(d.chunks)+len(d.notes)+len(d.tails)+len(d.usage))
	if d.header {
		data, err := headerRow(j)
		if err != nil {
			return nil, fmt.Errorf("jobs: header of %s: %w", j.ID, err)
		}
		rows = append(rows, job.Row{Job: j.ID, Data: data})
	}
	rows = j.File.row(j.ID, rows)
	for ; d.hosts < len(j.tasks.hosts.list); d.hosts++ {
		h := j.tasks.hosts.list[d.hosts]
		data, err := proto.Marshal(&jobspb.Host{Peer: string(h.peer), Name: h.name, Store: h.store, Boot: h.fencing.Boot, Fences: h.fencing.Certain})
		if err != nil {
			return nil, fmt.Errorf("jobs: host %d of %s: %w", d.hosts, j.ID, err)
		}
		rows = append(rows, job.Row{Job: j.ID, Part: part(partHost, uint32(d.hosts)), Data: data})
	}
	for _, k := range d.chunks {
		data, err := proto.Marshal(j.tasks.chunkPB(int(k)))
		if err != nil {
			return nil, fmt.Errorf("jobs: chunk %d of %s: %w", k, j.ID, err)
		}
		rows = append(rows, job.Row{Job: j.ID, Part: part(partChunk, k), Data: data})
	}
	for _, i := range d.notes {
		data, err := notePB(j.tasks.note(i))
		if err != nil {
			return nil, fmt.Errorf("jobs: note of %s.%d: %w", j.ID, i, err)
		}
		rows = append(rows, job.Row{Job: j.ID, Part: part(partNote, i), Data: data})
	}
	for _, i := range j.tasks.history.dirty {
		data, err := j.tasks.history.of[i].encode()
		if err != nil {
			return nil, fmt.Errorf("jobs: outcomes of %s.%d: %w", j.ID, i, err)
		}
		rows = append(rows, job.Row{Job: j.ID, Part: part(partOutcomes, i), Data: data})
	}
	for _, i := range d.tails {
		rows = append(rows, job.Row{Job: j.ID, Part: part(partTail, i), Data: tailOf(j.tasks.note(i))})
	}
	for _, i := range d.usage {
		rows = append(rows, job.Row{Job: j.ID, Part: part(partUsage, i), Data: usageOf(j.tasks.note(i))})
	}
	rows, err := j.Waits.rows(j.ID, d.waits, rows)
	if err != nil {
		return nil, fmt.Errorf("jobs: dependencies of %s: %w", j.ID, err)
	}
	if j.tasks.n > 1 {
		d.taken = append(append(d.taken, d.tails...), d.usage...)
	}
	j.tasks.clean(d)
	return rows, nil
}

// clean marks all parts as saved.
func (ts *tasks) clean(d *dirty) {
	for _, k := range d.chunks {
		ts.chunks[k].dirty = false
	}
	for _, list := range [][]uint32{d.notes, d.tails, d.usage} {
		for _, i := range list {
			if x := ts.cell(i); x != nil {
				x.flags &^= flagNote | flagTail | flagUsage
			}
		}
	}
	ts.history.clean()
	*d = dirty{hosts: len(ts.hosts.list), chunks: d.chunks[:0], notes: d.notes[:0], tails: d.tails[:0], usage: d.usage[:0], taken: d.taken}
}

func headerRow(j *Job) ([]byte, error) {
	spec, err := job.EncodeSpec(j.Spec)
	if err != nil {
		return nil, err
	}
	m := &jobspb.Header{
		Id: string(j.ID), User: j.User, Spec: spec, Submitted: storepb.Nanos(j.Submitted), Key: j.Key, Cancelled: j.Cancelled,
		Queued: storepb.Nanos(j.Queued), Seq: j.Seq, Count: int64(j.tasks.n), First: j.tasks.values.list[0].pb(),
		Acts: j.acts.pb(), OlderActs: j.acts.older,
	}
	if f := j.File; f != nil {
		m.Spec, m.Lean, m.File, m.FileBytes = nil, spec, f.sum[:], int64(f.size)
	}
	return proto.Marshal(m)
}

func tailOf(n *note) []byte {
	if n == nil || n.tail == "" {
		return nil
	}
	return []byte(n.tail)
}

func usageOf(n *note) []byte {
	if n == nil || n.usage == "" {
		return nil
	}
	return []byte(n.usage)
}

func notePB(n *note) ([]byte, error) {
	if n == nil {
		return nil, nil
	}
	m := &jobspb.Note{
		ReasonWord: n.reason.Word, ReasonDetail: n.reason.Detail, ExitReason: n.exitReason, Devices: n.devices,
		Lost: texts(n.lost), Isolation: n.isolation,
	}
	if proto.Size(m) == 0 {
		return nil, nil
	}
	return proto.Marshal(m)
}

func texts(list []job.Peer) []string {
	var out []string
	for _, p := range list {
		out = append(out, string(p))
	}
	return out
}

// eachShift separates the number of an aftercorr from the index of the block in the name of a part.
const eachShift = 16

// rows appends the rows of what has changed: the outcomes if waits is true, and blocks of the aftercorr.
func (w *Waits) rows(id job.ID, waits bool, rows []job.Row) ([]job.Row, error) {
	if w == nil {
		return rows, nil
	}
	if waits {
		data, err := proto.Marshal(w.pb())
		if err != nil {
			return rows, err
		}
		rows = append(rows, job.Row{Job: id, Part: part(partWaits, 0), Data: data})
	}
	for i := range w.each {
		e := &w.each[i]
		for k, more := e.dirty.Next(0); more; k, more = e.dirty.Next(k + 1) {
			data, err := proto.Marshal(&jobspb.Each{Met: e.met.block(k), Never: e.never.block(k)})
			if err != nil {
				return rows, err
			}
			rows = append(rows, job.Row{Job: id, Part: part(partEach, uint32(i<<eachShift|k)), Data: data})
		}
		e.dirty = Set{}
	}
	return rows, nil
}

func (w *Waits) pb() *jobspb.Waits {
	m := &jobspb.Waits{Outcome: make([]byte, len(w.terms)), Saw: make([]byte, len(w.terms))}
	seen, delays := numbering[uint8]{}, false
	for i := range w.terms {
		x := &w.terms[i]
		m.Outcome[i], m.Saw[i] = byte(x.outcome), x.saw
		if x.saw != sawNothing && x.saw != sawGone {
			m.Saw[i] = byte(seen.of(x.saw)) + 1
		}
		delays = delays || x.delay > 0 && x.outcome == met
	}
	for _, saw := range seen.list {
		m.States = append(m.States, string(stateOf(saw-1)))
	}
	for i := 0; delays && i < len(w.terms); i++ {
		m.Since = append(m.Since, w.terms[i].since)
	}
	return m
}
