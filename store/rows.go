package store

// The rows of jobs: what a group's journal entries have led to.

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// Rows are the jobs of one journal group, as they are after one of its entries. Its methods may be called from any
// goroutine.
type Rows struct {
	store   *Store
	prefix  string // of the rows
	applied []byte // key of the index
}

// Rows returns the rows of a group.
func (s *Store) Rows(g job.Group) *Rows {
	return &Rows{store: s, prefix: "s/" + g.String() + "/j/", applied: []byte("r/" + g.String() + "/a")}
}

func (r *Rows) key(id job.ID) []byte { return []byte(r.prefix + string(id)) }

// Save writes the rows of jobs as they are after the entry with index applied, and deletes the rows in gone. It does
// not wait for the disk: after a crash the rows may be those of an earlier index.
func (r *Rows) Save(applied uint64, jobs []job.Job, gone []job.ID) error {
	return r.store.Write(func(b Batch) error {
		for i := range jobs {
			m, err := jobPB(&jobs[i])
			if err != nil {
				return fmt.Errorf("job %s: %w", jobs[i].ID, err)
			}
			if err := b.SetMessage(r.key(jobs[i].ID), m); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := b.Delete(r.key(id)); err != nil {
				return err
			}
		}
		return r.SetApplied(b, applied)
	})
}

// SetApplied puts into a batch that the rows reflect the entries up to an index. It is for a new group: Save does so for
// the rows that it writes.
func (r *Rows) SetApplied(b Batch, index uint64) error {
	return b.Set(r.applied, binary.BigEndian.AppendUint64(nil, index))
}

// Applied is the index of the last entry that the rows reflect. It is an error if there is no such group.
func (r *Rows) Applied() (uint64, error) { return r.store.ReadNumber(r.applied) }

// Load calls each with every row.
func (r *Rows) Load(each func(job.Job)) error {
	return r.store.ReadPrefix([]byte(r.prefix), func(_, v []byte) error {
		row, err := decodeJob(v)
		if err == nil {
			each(row)
		}
		return err
	})
}

// Row reads the row of one job; there is false if it has none.
func (r *Rows) Row(id job.ID) (row job.Job, there bool, err error) {
	v, err := r.store.Read(r.key(id))
	if err == nil && v != nil {
		row, err = decodeJob(v)
	}
	if err != nil {
		return job.Job{}, false, fmt.Errorf("store: read the row of job %s: %w", id, err)
	}
	return row, v != nil, nil
}

func jobPB(j *job.Job) (*storepb.Job, error) {
	spec, err := job.EncodeSpec(j.Spec)
	if err != nil {
		return nil, err
	}
	m := &storepb.Job{
		Id: string(j.ID), User: j.User, Spec: spec, Owner: string(j.Owner), Submitted: storepb.Nanos(j.Submitted),
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
	spec, err := storepb.DecodeSpec(m.GetSpec())
	if err != nil {
		return job.Job{}, fmt.Errorf("spec of %s: %w", id, err)
	}
	j := job.Job{
		ID: id, User: m.GetUser(), Spec: spec, Owner: job.Peer(m.GetOwner()), Submitted: storepb.Time(m.GetSubmitted()),
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
		Attempt: int64(t.Attempt), Node: string(t.Node), NodeName: t.NodeName, Store: t.Store, Epoch: storepb.FromEpoch(t.Epoch),
		Devices: t.Devices, Pid: int64(t.PID), Assigned: t.Assigned, Runs: int64(t.Runs),
		Started: storepb.Nanos(t.Started), Ended: storepb.Nanos(t.Ended), Exit: storepb.FromExit(t.Exit), Lost: lost, Closed: storepb.Nanos(t.Closed),
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
		Epoch: m.GetEpoch().Value(), Devices: m.GetDevices(), PID: int(m.GetPid()), Assigned: m.GetAssigned(),
		Runs: int(m.GetRuns()), Started: storepb.Time(m.GetStarted()), Ended: storepb.Time(m.GetEnded()), Exit: m.GetExit().Value(),
		Lost: lost, Closed: storepb.Time(m.GetClosed()),
	}
}
