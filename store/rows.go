package store

// The rows of jobs that a journal's entries have led to.

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// Save writes the rows of jobs as they are after the entry applied, and deletes
// those that are gone. It does not wait for the disk: a crash may take the
// rows, and the entries after the last that were kept are delivered again. It
// refuses rows of an entry that was not delivered, or older than those saved.
func (j *Journal) Save(applied uint64, jobs []job.Job, gone []job.ID) error {
	if saved, delivered := j.saved.Load(), j.delivered.Load(); applied < saved || applied > delivered {
		return fmt.Errorf("store: save the rows of group %s: they are of entry %d, which is not from %d to %d",
			j.group, applied, saved, delivered)
	}
	err := j.store.write(pebble.NoSync, func(b *pebble.Batch) error {
		for i := range jobs {
			m, err := jobPB(&jobs[i])
			if err != nil {
				return fmt.Errorf("job %s: %w", jobs[i].ID, err)
			}
			if err := setMessage(b, j.keys.job(jobs[i].ID), m); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := b.Delete(j.keys.job(id), nil); err != nil {
				return err
			}
		}
		return b.Set(j.keys.applied(), binary.BigEndian.AppendUint64(nil, applied), nil)
	})
	if err != nil {
		return fmt.Errorf("store: save the rows of group %s at %d: %w", j.group, applied, err)
	}
	if j.saved.Swap(applied) < applied && j.log.large.Load() {
		j.queue.ring() // the log can be cut
	}
	return nil
}

// Load reads the rows that were saved last, one by one, and the index that they
// reflect; Run delivers what comes after it. Call it before Run.
func (j *Journal) Load(each func(job.Job)) (applied uint64, err error) {
	err = j.store.scan(j.keys.job(""), func(_, v []byte) error {
		row, err := decodeJob(v)
		if err == nil {
			each(row)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: load the rows of group %s: %w", j.group, err)
	}
	return j.saved.Load(), nil
}

// Row reads the row of one job, as it was saved last.
func (j *Journal) Row(id job.ID) (row job.Job, there bool, err error) {
	v, err := j.store.get(j.keys.job(id))
	if err == nil && v != nil {
		row, err = decodeJob(v)
	}
	if err != nil {
		return job.Job{}, false, fmt.Errorf("store: read the row of job %s: %w", id, err)
	}
	return row, v != nil, nil
}

// setMessage marshals a message right into the batch.
func setMessage(b *pebble.Batch, key []byte, m proto.Message) error {
	op := b.SetDeferred(len(key), proto.Size(m))
	copy(op.Key, key)
	v, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(op.Value[:0], m)
	if err != nil {
		return err
	}
	if len(v) != len(op.Value) {
		return fmt.Errorf("message of %d bytes where %d were foreseen", len(v), len(op.Value))
	}
	return op.Finish()
}

func jobPB(j *job.Job) (*storepb.Job, error) {
	spec, err := job.EncodeSpec(j.Spec)
	if err != nil {
		return nil, err
	}
	m := &storepb.Job{
		Id: string(j.ID), User: j.User, Spec: spec, Owner: string(j.Owner), Submitted: nanos(j.Submitted),
		Key: j.Key, Cancelled: j.Cancelled, Seq: j.Seq, Tasks: make([]*storepb.Task, len(j.Tasks)),
	}
	for i := range j.Tasks {
		m.Tasks[i] = taskPB(&j.Tasks[i])
	}
	return m, nil
}

func decodeJob(b []byte) (job.Job, error) {
	var m storepb.Job
	if err := proto.Unmarshal(b, &m); err != nil {
		return job.Job{}, err
	}
	id, err := job.ParseID(m.GetId())
	if err != nil {
		return job.Job{}, err
	}
	spec, err := decodeSpec(m.GetSpec())
	if err != nil {
		return job.Job{}, fmt.Errorf("spec of %s: %w", id, err)
	}
	j := job.Job{
		ID: id, User: m.GetUser(), Spec: spec, Owner: job.Peer(m.GetOwner()), Submitted: timeOf(m.GetSubmitted()),
		Key: m.GetKey(), Cancelled: m.GetCancelled(), Seq: m.GetSeq(),
	}
	for _, t := range m.GetTasks() {
		j.Tasks = append(j.Tasks, taskOf(t))
	}
	return j, nil
}

func taskPB(t *job.Task) *storepb.Task {
	var lost []string
	for _, p := range t.Lost {
		lost = append(lost, string(p))
	}
	return &storepb.Task{
		Index: int64(t.Index), State: string(t.State), ReasonWord: t.Reason.Word, ReasonDetail: t.Reason.Detail,
		Attempt: int64(t.Attempt), Node: string(t.Node), NodeName: t.NodeName, Store: t.Store, Epoch: epochPB(t.Epoch),
		Devices: t.Devices, Pid: int64(t.PID), Assigned: t.Assigned, Runs: int64(t.Runs),
		Started: nanos(t.Started), Ended: nanos(t.Ended), Exit: exitPB(t.Exit), Lost: lost, Closed: nanos(t.Closed),
	}
}

func taskOf(m *storepb.Task) job.Task {
	var lost []job.Peer
	for _, p := range m.GetLost() {
		lost = append(lost, job.Peer(p))
	}
	return job.Task{
		Index: int(m.GetIndex()), State: job.State(m.GetState()),
		Reason:  job.Reason{Word: m.GetReasonWord(), Detail: m.GetReasonDetail()},
		Attempt: int(m.GetAttempt()), Node: job.Peer(m.GetNode()), NodeName: m.GetNodeName(), Store: m.GetStore(),
		Epoch: epochOf(m.GetEpoch()), Devices: m.GetDevices(), PID: int(m.GetPid()), Assigned: m.GetAssigned(),
		Runs: int(m.GetRuns()), Started: timeOf(m.GetStarted()), Ended: timeOf(m.GetEnded()), Exit: exitOf(m.GetExit()),
		Lost: lost, Closed: timeOf(m.GetClosed()),
	}
}

func epochPB(e job.Epoch) *storepb.Epoch {
	if e == (job.Epoch{}) {
		return nil
	}
	return &storepb.Epoch{Generation: e.Generation, Term: e.Term}
}

func epochOf(m *storepb.Epoch) job.Epoch {
	return job.Epoch{Generation: m.GetGeneration(), Term: m.GetTerm()}
}
