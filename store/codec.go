package store

// The records of a journal as bytes, and back. What is encoded is checked first
// by what checks it when it is read, so that nothing gets into the log that
// cannot be applied.

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

var errBadRecord = errors.New("not a record")

// The fields of storepb.Entry, which is put together by hand: its records are
// encoded by whoever proposes them, long before the entry is.
const (
	fieldGeneration protowire.Number = 1
	fieldRecords    protowire.Number = 2
)

// appendRecord appends a record as it lies in an entry, with its field and its
// length.
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
		return b, fmt.Errorf("record of %d bytes: %w: at most %d", n, ErrTooLarge, maxRecordBytes)
	}
	b = protowire.AppendTag(b, fieldRecords, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// appendGeneration begins an entry.
func appendGeneration(b []byte, generation uint64) []byte {
	b = protowire.AppendTag(b, fieldGeneration, protowire.VarintType)
	return protowire.AppendVarint(b, generation)
}

// decodeEntry reads the data of an entry that is not empty.
func decodeEntry(data []byte) (generation uint64, records []job.Record, err error) {
	var m storepb.Entry
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

func recordPB(r job.Record) (*storepb.Record, error) {
	switch r := r.(type) {
	case job.SubmitRecord:
		spec, err := job.EncodeSpec(r.Spec)
		if err != nil {
			return nil, err
		}
		return &storepb.Record{Kind: &storepb.Record_Submit{Submit: &storepb.Submit{
			Job: string(r.Job), User: r.User, Spec: spec, Key: r.Key, At: nanos(r.At),
		}}}, nil
	case job.AssignRecord:
		return &storepb.Record{Kind: &storepb.Record_Assign{Assign: &storepb.Assign{
			Attempt: attemptPB(r.Attempt), Node: string(r.Node), NodeName: r.NodeName, Store: r.Store,
		}}}, nil
	case job.UnassignRecord:
		return &storepb.Record{Kind: &storepb.Record_Unassign{Unassign: &storepb.Unassign{
			Attempt: attemptPB(r.Attempt), Proof: string(r.Proof), Detail: r.Detail, At: nanos(r.At), Hold: r.Hold,
		}}}, nil
	case job.ResultRecord:
		return &storepb.Record{Kind: &storepb.Record_Result{Result: &storepb.Result{
			Attempt: attemptPB(r.Attempt), Devices: r.Devices, Exit: exitPB(&r.Exit), At: nanos(r.At), Hold: r.Hold,
		}}}, nil
	case job.CancelRecord:
		return &storepb.Record{Kind: &storepb.Record_Cancel{Cancel: &storepb.Cancel{Job: string(r.Job), Reason: r.Reason, At: nanos(r.At)}}}, nil
	case job.HoldRecord:
		return &storepb.Record{Kind: &storepb.Record_Hold{Hold: &storepb.Hold{Job: string(r.Job), Release: r.Release, Reason: r.Reason}}}, nil
	case job.PurgeRecord:
		return &storepb.Record{Kind: &storepb.Record_Purge{Purge: &storepb.Purge{Job: string(r.Job)}}}, nil
	default:
		return nil, fmt.Errorf("%w: %T", errBadRecord, r)
	}
}

func recordOf(m *storepb.Record) (job.Record, error) {
	switch k := m.GetKind().(type) {
	case *storepb.Record_Submit:
		return submitOf(k.Submit)
	case *storepb.Record_Assign:
		a, err := attemptOf(k.Assign.GetAttempt())
		return job.AssignRecord{Attempt: a, Node: job.Peer(k.Assign.GetNode()), NodeName: k.Assign.GetNodeName(), Store: k.Assign.GetStore()}, err
	case *storepb.Record_Unassign:
		u := k.Unassign
		a, err := attemptOf(u.GetAttempt())
		return job.UnassignRecord{Attempt: a, Proof: job.Proof(u.GetProof()), Detail: u.GetDetail(), At: timeOf(u.GetAt()), Hold: u.GetHold()}, err
	case *storepb.Record_Result:
		e := job.ResultRecord{Devices: k.Result.GetDevices(), At: timeOf(k.Result.GetAt()), Hold: k.Result.GetHold()}
		if exit := exitOf(k.Result.GetExit()); exit != nil {
			e.Exit = *exit
		}
		var err error
		e.Attempt, err = attemptOf(k.Result.GetAttempt())
		return e, err
	case *storepb.Record_Cancel:
		id, err := job.ParseID(k.Cancel.GetJob())
		return job.CancelRecord{Job: id, Reason: k.Cancel.GetReason(), At: timeOf(k.Cancel.GetAt())}, err
	case *storepb.Record_Hold:
		id, err := job.ParseID(k.Hold.GetJob())
		return job.HoldRecord{Job: id, Release: k.Hold.GetRelease(), Reason: k.Hold.GetReason()}, err
	case *storepb.Record_Purge:
		id, err := job.ParseID(k.Purge.GetJob())
		return job.PurgeRecord{Job: id}, err
	default:
		return nil, fmt.Errorf("%w: of a kind that this version does not know", errBadRecord)
	}
}

func submitOf(m *storepb.Submit) (job.SubmitRecord, error) {
	id, err := job.ParseID(m.GetJob())
	if err != nil {
		return job.SubmitRecord{}, err
	}
	spec, err := decodeSpec(m.GetSpec())
	if err != nil {
		return job.SubmitRecord{}, fmt.Errorf("spec of %s: %w", id, err)
	}
	return job.SubmitRecord{Job: id, User: m.GetUser(), Spec: spec, Key: m.GetKey(), At: timeOf(m.GetAt())}, nil
}

func attemptPB(a job.Attempt) *storepb.Attempt {
	return &storepb.Attempt{Job: string(a.Job), Task: int64(a.Task), N: int64(a.N)}
}

func attemptOf(m *storepb.Attempt) (job.Attempt, error) {
	a := job.Attempt{Job: job.ID(m.GetJob()), Task: int(m.GetTask()), N: int(m.GetN())}
	if err := a.Valid(); err != nil {
		return job.Attempt{}, err
	}
	return a, nil
}

func exitPB(e *job.Exit) *storepb.Exit {
	if e == nil {
		return nil
	}
	return &storepb.Exit{
		State: string(e.State), Code: int64(e.Code), Signal: int64(e.Signal), Reason: e.Reason,
		Started: e.Started, Began: nanos(e.Began), Ended: nanos(e.Ended), Tail: e.Tail, Isolation: e.Isolation,
	}
}

func exitOf(m *storepb.Exit) *job.Exit {
	if m == nil {
		return nil
	}
	return &job.Exit{
		State: job.State(m.GetState()), Code: int(m.GetCode()), Signal: int(m.GetSignal()), Reason: m.GetReason(),
		Started: m.GetStarted(), Began: timeOf(m.GetBegan()), Ended: timeOf(m.GetEnded()), Tail: m.GetTail(), Isolation: m.GetIsolation(),
	}
}

// decodeSpec reads what job.EncodeSpec wrote. That leaves out a field which is
// zero, also one whose default is not, so what is missing is zero here and not
// the default.
func decodeSpec(b []byte) (s job.Spec, err error) {
	err = json.Unmarshal(b, &s)
	return s, err
}

// nanos is a time on disk: ns since 1970, 0 for no time at all.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
