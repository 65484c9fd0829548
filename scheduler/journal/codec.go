package journal

// Encoding and decoding records. A record is checked before it is written, by the same code that checks it when it is
// read. So the log never holds a record that cannot be applied.

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/journal/journalpb"
)

var errBadRecord = errors.New("not a valid record")

// maxRecordBytes bounds a record: twice the largest job file, and room for the other fields.
const maxRecordBytes = 2*job.MaxSpecBytes + 64<<10

// The fields of journalpb.Entry. An entry is put together by hand, because its records are encoded when they are
// proposed, long before the entry is made.
const (
	fieldGeneration protowire.Number = 1
	fieldRecords    protowire.Number = 2
)

// appendRecord appends a record in the encoding of an entry: its field tag, its length, the record.
func appendRecord(b []byte, r job.Record) ([]byte, error) {
	m, err := recordPB(r)
	if err != nil {
		return b, err
	}
	if _, err := recordOf(m); err != nil {
		return b, err
	}
	n := proto.Size(m)
	if n > maxRecordBytes {
		return b, fmt.Errorf("record of %d bytes: %w: at most %d", n, store.ErrTooLarge, maxRecordBytes)
	}
	b = protowire.AppendTag(b, fieldRecords, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// appendGeneration appends the first field of an entry.
func appendGeneration(b []byte, generation uint64) []byte {
	b = protowire.AppendTag(b, fieldGeneration, protowire.VarintType)
	return protowire.AppendVarint(b, generation)
}

// decodeEntry reads the data of an entry, or the records of a batch, whose generation is 0.
func decodeEntry(data []byte) (generation uint64, records []job.Record, err error) {
	var m journalpb.Entry
	if err := proto.Unmarshal(data, &m); err != nil {
		return 0, nil, err
	}
	records = make([]job.Record, len(m.GetRecords()))
	for i, r := range m.GetRecords() {
		if records[i], err = recordOf(r); err != nil {
			return 0, nil, fmt.Errorf("record %d: %w", i, err)
		}
	}
	return m.GetGeneration(), records, nil
}

// recordPB returns the protobuf message of a record.
func recordPB(r job.Record) (*journalpb.Record, error) {
	switch r := r.(type) {
	case job.SubmitRecord:
		spec, err := job.EncodeSpec(r.Spec)
		if err != nil {
			return nil, err
		}
		return &journalpb.Record{Kind: &journalpb.Record_Submit{Submit: &journalpb.Submit{
			Job: string(r.Job), User: r.User, Spec: spec, Key: r.Key, At: storepb.Nanos(r.At), Tasks: int64(r.Tasks),
		}}}, nil
	case job.AssignRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Assign{Assign: &journalpb.Assign{
			Attempt: storepb.FromAttempt(r.Attempt), Node: string(r.Node), NodeName: r.NodeName, Store: r.Store, At: storepb.Nanos(r.At),
			Boot: r.Fencing.Boot, Fences: r.Fencing.Certain,
		}}}, nil
	case job.UnassignRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Unassign{Unassign: &journalpb.Unassign{
			Attempt: storepb.FromAttempt(r.Attempt), Proof: string(r.Proof), Detail: r.Detail, At: storepb.Nanos(r.At),
			Hold: r.Hold,
		}}}, nil
	case job.AssignGangRecord:
		m := &journalpb.AssignGang{Attempt: storepb.FromAttempt(r.Attempt), At: storepb.Nanos(r.At)}
		for _, x := range r.Members {
			m.Members = append(m.Members, &journalpb.Assignee{
				Node: string(x.Node), NodeName: x.NodeName, Store: x.Store, Boot: x.Fencing.Boot, Fences: x.Fencing.Certain,
			})
		}
		return &journalpb.Record{Kind: &journalpb.Record_AssignGang{AssignGang: m}}, nil
	case job.UnassignGangRecord:
		return &journalpb.Record{Kind: &journalpb.Record_UnassignGang{UnassignGang: &journalpb.UnassignGang{
			Attempt: storepb.FromAttempt(r.Attempt), Proof: string(r.Proof), Detail: r.Detail, At: storepb.Nanos(r.At),
		}}}, nil
	case job.ResultRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Result{Result: &journalpb.Result{
			Attempt: storepb.FromAttempt(r.Attempt), Devices: r.Devices, Exit: storepb.FromExit(&r.Exit), At: storepb.Nanos(r.At),
			Hold: r.Hold, Elsewhere: r.Elsewhere,
		}}}, nil
	case job.CancelRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Cancel{Cancel: &journalpb.Cancel{
			Job: string(r.Job), Tasks: rangesPB(r.Tasks), Reason: r.Reason, At: storepb.Nanos(r.At),
		}}}, nil
	case job.HoldRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Hold{Hold: &journalpb.Hold{
			Job: string(r.Job), Tasks: rangesPB(r.Tasks), Release: r.Release, Reason: r.Reason, At: storepb.Nanos(r.At),
		}}}, nil
	case job.RequeueRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Requeue{Requeue: &journalpb.Requeue{
			Job: string(r.Job), Tasks: rangesPB(r.Tasks), Failed: r.Failed, Reason: r.Reason, At: storepb.Nanos(r.At),
		}}}, nil
	case job.ParentRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Parent{Parent: &journalpb.Parent{
			Job: string(r.Parent), State: string(r.State), Started: r.Started, Since: storepb.Nanos(r.Since), Succeeded: rangesPB(r.Tasks.Succeeded),
			Failed: rangesPB(r.Tasks.Failed), Open: rangesPB(r.Tasks.Open), At: storepb.Nanos(r.At),
		}}}, nil
	case job.PurgeRecord:
		return &journalpb.Record{Kind: &journalpb.Record_Purge{Purge: &journalpb.Purge{Job: string(r.Job)}}}, nil
	default:
		return nil, fmt.Errorf("%w: %T", errBadRecord, r)
	}
}

// recordOf decodes a record. It returns an error if the record is not valid.
//
//nolint:ireturn // a record is one of a sealed set of types
func recordOf(m *journalpb.Record) (job.Record, error) {
	switch k := m.GetKind().(type) {
	case *journalpb.Record_Submit:
		return submitOf(k.Submit)
	case *journalpb.Record_Assign:
		a, err := k.Assign.GetAttempt().Value()
		return job.AssignRecord{
			Attempt: a, Node: job.Peer(k.Assign.GetNode()), NodeName: k.Assign.GetNodeName(), Store: k.Assign.GetStore(), At: storepb.Time(k.Assign.GetAt()),
			Fencing: job.Fencing{Certain: k.Assign.GetFences(), Boot: k.Assign.GetBoot()},
		}, err
	case *journalpb.Record_Unassign:
		u := k.Unassign
		a, err := u.GetAttempt().Value()
		return job.UnassignRecord{
			Attempt: a, Proof: job.Proof(u.GetProof()), Detail: u.GetDetail(), At: storepb.Time(u.GetAt()), Hold: u.GetHold(),
		}, err
	case *journalpb.Record_AssignGang:
		return assignGangOf(k.AssignGang)
	case *journalpb.Record_UnassignGang:
		return unassignGangOf(k.UnassignGang)
	case *journalpb.Record_Result:
		e := job.ResultRecord{Devices: k.Result.GetDevices(), At: storepb.Time(k.Result.GetAt()), Hold: k.Result.GetHold(), Elsewhere: k.Result.GetElsewhere()}
		if exit := k.Result.GetExit().Value(); exit != nil {
			e.Exit = *exit
		}
		var err error
		e.Attempt, err = k.Result.GetAttempt().Value()
		return e, err
	case *journalpb.Record_Cancel:
		id, tasks, err := tasksOf(k.Cancel.GetJob(), k.Cancel.GetTasks())
		return job.CancelRecord{Job: id, Tasks: tasks, Reason: k.Cancel.GetReason(), At: storepb.Time(k.Cancel.GetAt())}, err
	case *journalpb.Record_Hold:
		id, tasks, err := tasksOf(k.Hold.GetJob(), k.Hold.GetTasks())
		return job.HoldRecord{Job: id, Tasks: tasks, Release: k.Hold.GetRelease(), Reason: k.Hold.GetReason(), At: storepb.Time(k.Hold.GetAt())}, err
	case *journalpb.Record_Requeue:
		q := k.Requeue
		id, tasks, err := tasksOf(q.GetJob(), q.GetTasks())
		return job.RequeueRecord{Job: id, Tasks: tasks, Failed: q.GetFailed(), Reason: q.GetReason(), At: storepb.Time(q.GetAt())}, err
	case *journalpb.Record_Parent:
		return parentOf(k.Parent)
	case *journalpb.Record_Purge:
		id, err := job.ParseID(k.Purge.GetJob())
		return job.PurgeRecord{Job: id}, err
	default:
		return nil, fmt.Errorf("%w: of a kind that this version does not know", errBadRecord)
	}
}

func rangesPB(ranges []job.Range) []*journalpb.Range {
	var out []*journalpb.Range
	for _, r := range ranges {
		out = append(out, &journalpb.Range{First: uint32(r.First), Last: uint32(r.Last)})
	}
	return out
}

// tasksOf decodes the job of a record and the ranges of its tasks, which must be in rising order and not overlap.
func tasksOf(text string, ranges []*journalpb.Range) (job.ID, []job.Range, error) {
	id, err := job.ParseID(text)
	if err != nil {
		return "", nil, err
	}
	if len(ranges) > job.MaxRanges {
		return "", nil, fmt.Errorf("%w: %d ranges of tasks of %s", errBadRecord, len(ranges), id)
	}
	tasks, err := rangesOf(ranges, job.MaxTasks-1)
	if err != nil {
		return "", nil, fmt.Errorf("%w of %s", err, id)
	}
	return id, tasks, nil
}

// rangesOf decodes ranges of tasks. most is the highest index that they may have.
func rangesOf(ranges []*journalpb.Range, most uint32) ([]job.Range, error) {
	var tasks []job.Range
	next := uint32(0) // ranges that overlap would change the same tasks again and again
	for _, r := range ranges {
		if r.GetFirst() < next || r.GetFirst() > r.GetLast() || r.GetLast() > most {
			return nil, fmt.Errorf("%w: tasks %d to %d", errBadRecord, r.GetFirst(), r.GetLast())
		}
		next = r.GetLast() + 1
		tasks = append(tasks, job.Range{First: int(r.GetFirst()), Last: int(r.GetLast())})
	}
	return tasks, nil
}

func parentOf(m *journalpb.Parent) (job.ParentRecord, error) {
	r := job.ParentRecord{State: job.State(m.GetState()), Started: m.GetStarted(), Since: storepb.Time(m.GetSince()), At: storepb.Time(m.GetAt())}
	var err error
	if r.Parent, err = job.ParseID(m.GetJob()); err != nil {
		return r, err
	}
	if r.State != "" && !slices.Contains(job.States(), r.State) {
		return r, fmt.Errorf("%w: %s is %.40q", errBadRecord, r.Parent, r.State)
	}
	if n := len(m.GetSucceeded()) + len(m.GetFailed()) + len(m.GetOpen()); n > job.MaxRanges {
		return r, fmt.Errorf("%w: %d ranges of tasks of %s", errBadRecord, n, r.Parent)
	}
	for _, list := range []struct {
		from []*journalpb.Range
		to   *[]job.Range
	}{{m.GetSucceeded(), &r.Tasks.Succeeded}, {m.GetFailed(), &r.Tasks.Failed}, {m.GetOpen(), &r.Tasks.Open}} {
		if *list.to, err = rangesOf(list.from, job.MaxIndex); err != nil {
			return r, fmt.Errorf("%w of %s", err, r.Parent)
		}
	}
	return r, nil
}

func submitOf(m *journalpb.Submit) (job.SubmitRecord, error) {
	id, err := job.ParseID(m.GetJob())
	if err != nil {
		return job.SubmitRecord{}, err
	}
	spec, err := storepb.DecodeSpec(m.GetSpec())
	if err != nil {
		return job.SubmitRecord{}, fmt.Errorf("spec of %s: %w", id, err)
	}
	if n := m.GetTasks(); n < 0 || n > job.MaxTasks {
		return job.SubmitRecord{}, fmt.Errorf("%w: job %s of %d tasks", errBadRecord, id, n)
	}
	return job.SubmitRecord{Job: id, User: m.GetUser(), Spec: spec, Key: m.GetKey(), At: storepb.Time(m.GetAt()), Tasks: int(m.GetTasks())}, nil
}

func assignGangOf(m *journalpb.AssignGang) (job.AssignGangRecord, error) {
	a, err := m.GetAttempt().Value()
	r := job.AssignGangRecord{Attempt: a, At: storepb.Time(m.GetAt())}
	n := len(m.GetMembers())
	if err == nil && (n < 2 || n > job.MaxNodes || a.Task > job.MaxTasks-n) {
		err = fmt.Errorf("%w: a gang of %d from task %d on", errBadRecord, n, a.Task)
	}
	if err != nil {
		return r, err
	}
	for _, x := range m.GetMembers() {
		r.Members = append(r.Members, job.Assignee{
			Node: job.Peer(x.GetNode()), NodeName: x.GetNodeName(), Store: x.GetStore(), Fencing: job.Fencing{Certain: x.GetFences(), Boot: x.GetBoot()},
		})
	}
	return r, nil
}

func unassignGangOf(m *journalpb.UnassignGang) (job.UnassignGangRecord, error) {
	a, err := m.GetAttempt().Value()
	r := job.UnassignGangRecord{Attempt: a, Proof: job.Proof(m.GetProof()), Detail: m.GetDetail(), At: storepb.Time(m.GetAt())}
	if err == nil && r.Proof != job.ProofDeclined && r.Proof != job.ProofNeverStarted {
		err = fmt.Errorf("%w: a gang that may have run is taken back: %.40q", errBadRecord, r.Proof)
	}
	return r, err
}
