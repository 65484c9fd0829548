package state

// Decoding a job from its rows. Rows that do not fit together are an error, because a disk may be damaged.

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// Decode decodes a job from all its rows, in the order of their parts. It also decodes rows of older versions, which
// had no chunks.
func Decode(rows []job.Row) (*Job, error) {
	if len(rows) == 0 || rows[0].Part != "" {
		return nil, fmt.Errorf("jobs: %w: no header", errBadRow)
	}
	j, err := decodeHeader(rows[0].Data)
	if err != nil {
		return nil, fmt.Errorf("jobs: header of %s: %w", rows[0].Job, err)
	}
	for _, r := range rows[1:] {
		if r.Part == job.PartFile {
			continue // it is read when a task starts
		}
		if r.Job != j.ID {
			return nil, fmt.Errorf("jobs: %w: of %s among those of %s", errBadRow, r.Job, j.ID)
		}
		if err := decodePart(j, r); err != nil {
			return nil, fmt.Errorf("jobs: part %q of %s: %w", r.Part, r.Job, err)
		}
	}
	if !j.dirty.header { // rows without chunks stay dirty, so that the next change writes all rows in the new format
		j.dirty.hosts = len(j.tasks.hosts.list)
		j.dirty.header = j.File.Text() != nil
	}
	recount(j)
	if j.Waits != nil {
		j.Waits.recount()
	}
	return j, nil
}

func decodeHeader(data []byte) (*Job, error) {
	var m jobspb.Header
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	id, err := job.ParseID(m.GetId())
	if err != nil {
		return nil, err
	}
	j := &Job{
		ID: id, User: m.GetUser(), Submitted: storepb.Time(m.GetSubmitted()), Key: m.GetKey(), Cancelled: m.GetCancelled(), Seq: m.GetSeq(),
	}
	if j.Queued = storepb.Time(m.GetQueued()); j.Queued.IsZero() {
		j.Queued = j.Submitted // in rows of older versions
	}
	if err := decodeFile(j, &m); err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	old := m.GetTasks()
	n := m.GetCount()
	if len(old) > 0 {
		n = int64(len(old))
	}
	if n < 1 || n > job.MaxTasks {
		return nil, fmt.Errorf("%w: %d tasks", errBadRow, n)
	}
	if err := j.acts.decode(m.GetActs(), m.GetOlderActs()); err != nil {
		return nil, err
	}
	j.Waits = newWaits(&j.Spec)
	first := value{state: number(job.Pending)}
	if m.GetFirst() != nil {
		if first, err = decodeValue(m.GetFirst()); err != nil {
			return nil, err
		}
	}
	j.tasks, j.gang = newTasks(int(n), first), gangOf(&j.Spec, int(n))
	j.dirty.header, j.dirty.hosts = len(old) > 0, 1
	for i, t := range old {
		x, err := taskOf(t)
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
		j.tasks.set(i, x, &j.dirty)
	}
	return j, nil
}

// decodeFile decodes the job file in a header. Older versions had all of it there: then its bulk is dirty, so that it gets
// a row of its own.
func decodeFile(j *Job, m *jobspb.Header) (err error) {
	if len(m.GetFile()) == 0 {
		whole, err := storepb.DecodeSpec(m.GetSpec())
		j.Spec, j.File = keep(whole)
		return err
	}
	if len(m.GetFile()) != len(job.Digest{}) || m.GetFileBytes() < 1 || m.GetFileBytes() > maxFileBytes {
		return fmt.Errorf("%w: a file of %d bytes", errBadRow, m.GetFileBytes())
	}
	j.File = &File{sum: job.Digest(m.GetFile()), size: int(m.GetFileBytes())}
	j.Spec, err = storepb.DecodeSpec(m.GetLean())
	return err
}

// maxFileBytes bounds a job file in the journal: those of older versions may be a little larger than job.MaxSpecBytes.
const maxFileBytes = 2 * job.MaxSpecBytes

func decodePart(j *Job, r job.Row) error {
	if len(r.Part) != 5 {
		return errBadRow
	}
	n := int(binary.BigEndian.Uint32([]byte(r.Part[1:])))
	switch r.Part[0] {
	case partHost:
		var m jobspb.Host
		if err := proto.Unmarshal(r.Data, &m); err != nil {
			return err
		}
		h := host{job.Peer(m.GetPeer()), m.GetName(), m.GetStore(), job.Fencing{Certain: m.GetFences(), Boot: m.GetBoot()}}
		if at := j.tasks.hosts.of(h); int(at) != n {
			return fmt.Errorf("%w: host %d in place of %d", errBadRow, at, n)
		}
		return nil
	case partChunk:
		if n >= len(j.tasks.chunks) {
			return fmt.Errorf("%w: the job has %d chunks", errBadRow, len(j.tasks.chunks))
		}
		return j.tasks.decodeChunk(n, r.Data, &j.dirty)
	case partWaits:
		return j.Waits.decode(r.Data)
	case partEach:
		return j.Waits.decodeEach(n>>eachShift, n&(1<<eachShift-1), j.tasks.n, r.Data)
	}
	if r.Part[0] == partOutcomes && n < j.tasks.n {
		return j.tasks.history.decode(n, r.Data)
	}
	if n >= j.tasks.n {
		return fmt.Errorf("%w: no such task", errBadRow)
	}
	return decodeTexts(j, n, r)
}

// decodeTexts reads a row with texts of a task.
func decodeTexts(j *Job, n int, r job.Row) error {
	x := j.tasks.cell(uint32(n)) //nolint:gosec // it was 4 bytes
	if x == nil && r.Part[0] == partNote {
		return j.tasks.decodeReason(n, r.Data, &j.dirty)
	}
	if x == nil {
		return fmt.Errorf("%w: task %d has no attempt", errBadRow, n)
	}
	j.tasks.held -= x.note.bytes()
	if x.note == nil {
		x.note = &note{}
	}
	defer func() { j.tasks.held += x.note.bytes() }()
	switch r.Part[0] {
	case partNote:
		var m jobspb.Note
		if err := proto.Unmarshal(r.Data, &m); err != nil {
			return err
		}
		tail, used := x.note.tail, x.note.usage
		*x.note = note{
			reason: job.Reason{Word: shared(m.GetReasonWord()), Detail: shared(m.GetReasonDetail())}, exitReason: shared(m.GetExitReason()),
			devices: m.GetDevices(), lost: peers(m.GetLost()), isolation: shared(m.GetIsolation()), tail: tail, usage: used,
		}
	case partTail:
		x.note.tail = string(r.Data)
	case partUsage:
		x.note.usage = string(r.Data)
	default:
		return errBadRow
	}
	return nil
}

// decodeReason reads the note of a task that was never assigned. Older versions had the reason of a task there. The note
// counts as changed, so that the next change of the job removes it.
func (ts *tasks) decodeReason(index int, data []byte, d *dirty) error {
	var m jobspb.Note
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	c, i, size := &ts.chunks[index/chunkTasks], index%chunkTasks, ts.size(index/chunkTasks)
	v := ts.values.list[c.valueAt(i)]
	v.reason = job.Reason{Word: shared(m.GetReasonWord()), Detail: shared(m.GetReasonDetail())}
	ts.setValue(c, i, size, ts.values.of(v))
	d.notes = append(d.notes, uint32(index)) //nolint:gosec // at most job.MaxTasks
	return nil
}

// recount counts the tasks again, and finds when the last end of a task was recorded.
func recount(j *Job) {
	ts := &j.tasks
	ts.counts, ts.assigned, ts.ends = job.Counts{}, 0, ends{}
	for i := range ts.values.list {
		if ts.values.used[i] > 0 {
			t := ts.values.list[i].task(0)
			ts.counts.Add(t.State, int(ts.values.used[i]))
			j.close(&t)
		}
	}
	for k := range ts.chunks {
		c := &ts.chunks[k]
		c.pending = 0
		if ts.unmix(c); c.mixed == nil {
			c.count(ts.values.state(c.value), ts.size(k))
			continue
		}
		for i := range ts.size(k) {
			c.count(stateOf(ts.stateAt(c, i)), 1)
			if x := c.cell(i); x != nil {
				t := x.task(k*chunkTasks+i, &ts.common)
				ts.counts.Add(t.State, 1)
				ts.assigned += count(t.Assigned)
				ts.countEnd(&t, 1)
				j.close(&t)
			}
		}
	}
}

// decode reads the outcomes.
func (w *Waits) decode(data []byte) error {
	var m jobspb.Waits
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	if w == nil || len(m.Outcome) != len(w.terms) || len(m.Saw) != len(w.terms) || len(m.Since) != 0 && len(m.Since) != len(w.terms) {
		return fmt.Errorf("%w: %d outcomes of dependencies", errBadRow, len(m.Outcome))
	}
	states, err := numbersOf(m.GetStates())
	if err != nil {
		return err
	}
	for i := range w.terms {
		x := &w.terms[i]
		x.outcome, x.saw, x.since = parentOutcome(m.Outcome[i]), m.Saw[i], at(m.Since, i)
		ok := x.outcome <= lost && (!x.is(job.AfterCorr) || x.outcome == waitingFor || x.outcome == lost)
		if x.saw != sawNothing && x.saw != sawGone {
			var state uint8
			state, ok = pick(states, int(x.saw)-1, ok)
			x.saw = state + 1
		}
		if x.outcome == never && (x.saw == sawNothing || x.saw == sawGone) {
			ok = false // a state is the reason
		}
		if !ok {
			return fmt.Errorf("%w: dependency %d", errBadRow, i)
		}
	}
	return nil
}

// decodeEach reads one block of an aftercorr of a job of n tasks.
func (w *Waits) decodeEach(i, block, n int, data []byte) error {
	var m jobspb.Each
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	if w == nil || i >= len(w.each) || block > (n-1)/setBlock || max(len(m.Met), len(m.Never)) > blockWords {
		return fmt.Errorf("%w: block %d of aftercorr %d", errBadRow, block, i)
	}
	e := &w.each[i]
	e.met.putBlock(block, m.Met)
	e.never.putBlock(block, m.Never)
	for k, more := e.never.Next(block * setBlock); more; k, more = e.never.Next(k + 1) {
		if e.met.Has(k) || k >= n {
			return fmt.Errorf("%w: task %d of aftercorr %d", errBadRow, k, i)
		}
	}
	if k, more := e.met.Next(n); more {
		return fmt.Errorf("%w: task %d of aftercorr %d", errBadRow, k, i)
	}
	return nil
}
