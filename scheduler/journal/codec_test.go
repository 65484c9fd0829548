package journal

// Encoding and decoding return the same record, for every kind of record and any text.

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/journal/journalpb"
)

func anyFencing(t *rapid.T) job.Fencing {
	return job.Fencing{Certain: rapid.Bool().Draw(t, "fences"), Boot: storetest.Text.Draw(t, "boot")}
}

var anyRecord = rapid.Custom(func(t *rapid.T) (r job.Record) {
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 9:
		g := job.AssignGangRecord{Attempt: storetest.Attempt.Draw(t, "attempt"), At: storetest.Time.Draw(t, "at")}
		for range rapid.IntRange(2, 5).Draw(t, "members") {
			g.Members = append(g.Members, job.Assignee{Node: job.Peer(storetest.Text.Draw(t, "node")), NodeName: storetest.Text.Draw(t, "name"), Store: storetest.Text.Draw(t, "store"), Fencing: anyFencing(t)})
		}
		g.Attempt.Task = min(g.Attempt.Task, job.MaxTasks-len(g.Members))
		r = g
	case 10:
		r = job.UnassignGangRecord{
			Attempt: storetest.Attempt.Draw(t, "attempt"), Proof: job.ProofNeverStarted, Detail: storetest.Text.Draw(t, "detail"), At: storetest.Time.Draw(t, "at"),
		}
	case 0:
		r = job.SubmitRecord{
			Job: storetest.ID.Draw(t, "job"), User: storetest.Text.Draw(t, "user"), Spec: storetest.Spec.Draw(t, "spec"),
			Key: storetest.Text.Draw(t, "key"), At: storetest.Time.Draw(t, "at"),
			Tasks: rapid.IntRange(0, job.MaxTasks).Draw(t, "tasks"),
		}
	case 1:
		r = job.AssignRecord{
			Attempt: storetest.Attempt.Draw(t, "attempt"), Node: job.Peer(storetest.Text.Draw(t, "node")),
			NodeName: storetest.Text.Draw(t, "name"), Store: storetest.Text.Draw(t, "store"), At: storetest.Time.Draw(t, "at"), Fencing: anyFencing(t),
		}
	case 2:
		r = job.UnassignRecord{
			Attempt: storetest.Attempt.Draw(t, "attempt"), Proof: job.ProofDead, Detail: storetest.Text.Draw(t, "detail"),
			At: storetest.Time.Draw(t, "at"), Hold: storetest.Text.Draw(t, "hold"),
		}
	case 3:
		r = job.ResultRecord{
			Attempt: storetest.Attempt.Draw(t, "attempt"), Devices: storetest.Words.Draw(t, "devices"), Exit: storetest.Exit.Draw(t, "exit"),
			At: storetest.Time.Draw(t, "at"), Hold: storetest.Text.Draw(t, "hold"), Elsewhere: rapid.Bool().Draw(t, "elsewhere"),
		}
	case 4:
		r = job.CancelRecord{Job: storetest.ID.Draw(t, "job"), Tasks: anyRanges.Draw(t, "tasks"), Reason: storetest.Text.Draw(t, "reason"), At: storetest.Time.Draw(t, "at")}
	case 5:
		r = job.HoldRecord{
			Job: storetest.ID.Draw(t, "job"), Tasks: anyRanges.Draw(t, "tasks"), Release: rapid.Bool().Draw(t, "release"),
			Reason: storetest.Text.Draw(t, "reason"), At: storetest.Time.Draw(t, "at"),
		}
	case 6:
		r = job.PurgeRecord{Job: storetest.ID.Draw(t, "job")}
	case 8:
		r = job.ParentRecord{
			Parent: storetest.ID.Draw(t, "parent"), State: rapid.SampledFrom(append(job.States(), "")).Draw(t, "state"),
			Started: rapid.Bool().Draw(t, "started"), Since: storetest.Time.Draw(t, "since"), At: storetest.Time.Draw(t, "at"),
			Tasks: job.TaskStates{Succeeded: anyRanges.Draw(t, "succeeded"), Failed: anyRanges.Draw(t, "failed"), Open: anyRanges.Draw(t, "open")},
		}
	case 7:
		r = job.RequeueRecord{
			Job: storetest.ID.Draw(t, "job"), Tasks: anyRanges.Draw(t, "tasks"), Failed: rapid.Bool().Draw(t, "failed"),
			Reason: storetest.Text.Draw(t, "reason"), At: storetest.Time.Draw(t, "at"),
		}
	}
	return r
})

var anyRanges = rapid.Custom(func(t *rapid.T) (ranges []job.Range) {
	next := 0
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		if next == job.MaxTasks {
			break
		}
		first := rapid.IntRange(next, job.MaxTasks-1).Draw(t, "first")
		ranges = append(ranges, job.Range{First: first, Last: rapid.IntRange(first, job.MaxTasks-1).Draw(t, "last")})
		next = ranges[len(ranges)-1].Last + 1
	}
	return ranges
})

// Ranges that no owner writes are an error.
func TestRecordWithBadRangesIsRefused(t *testing.T) {
	id := string(job.NewID(1, 1))
	many := make([]*journalpb.Range, job.MaxRanges+1)
	for _, ranges := range [][]*journalpb.Range{{{First: 2, Last: 1}}, {{First: 0, Last: job.MaxTasks}}, {{First: 0, Last: 9}, {First: 9, Last: 10}}, {{First: 5, Last: 5}, {First: 1, Last: 1}}, many} {
		for _, m := range []*journalpb.Record{
			{Kind: &journalpb.Record_Cancel{Cancel: &journalpb.Cancel{Job: id, Tasks: ranges}}},
			{Kind: &journalpb.Record_Hold{Hold: &journalpb.Hold{Job: id, Tasks: ranges}}},
			{Kind: &journalpb.Record_Requeue{Requeue: &journalpb.Requeue{Job: id, Tasks: ranges}}},
		} {
			if r, err := recordOf(m); err == nil {
				t.Errorf("%d ranges are accepted: %+v", len(ranges), r)
			}
		}
	}
}

// A parent record that no owner writes is an error.
func TestBadParentRecordIsRefused(t *testing.T) {
	id := string(job.NewID(1, 1))
	many := make([]*journalpb.Range, job.MaxRanges)
	one := []*journalpb.Range{{First: 1, Last: 1}}
	for name, p := range map[string]*journalpb.Parent{
		"not an id":        {Job: "x"},
		"not a state":      {Job: id, State: "DONE"},
		"too many ranges":  {Job: id, Failed: many, Open: one},
		"a reversed range": {Job: id, Failed: []*journalpb.Range{{First: 2, Last: 1}}},
		"too large":        {Job: id, Succeeded: []*journalpb.Range{{First: 0, Last: job.MaxIndex + 1}}},
	} {
		if r, err := recordOf(&journalpb.Record{Kind: &journalpb.Record_Parent{Parent: p}}); err == nil {
			t.Errorf("%s is accepted: %+v", name, r)
		}
	}
}

// A gang record that no owner writes is an error, for an Assign and for an Unassign.
func TestBadGangRecordIsRefused(t *testing.T) {
	id := job.NewID(1, 1)
	members := func(n int) (out []*journalpb.Assignee) {
		for range n {
			out = append(out, &journalpb.Assignee{Node: "n"})
		}
		return out
	}
	at := func(task int) *storepb.Attempt { return storepb.FromAttempt(job.Attempt{Job: id, Task: task, N: 1}) }
	for name, m := range map[string]*journalpb.Record{
		"no members":    {Kind: &journalpb.Record_AssignGang{AssignGang: &journalpb.AssignGang{Attempt: at(0)}}},
		"one member":    {Kind: &journalpb.Record_AssignGang{AssignGang: &journalpb.AssignGang{Attempt: at(0), Members: members(1)}}},
		"too many":      {Kind: &journalpb.Record_AssignGang{AssignGang: &journalpb.AssignGang{Attempt: at(0), Members: members(job.MaxNodes + 1)}}},
		"beyond a job":  {Kind: &journalpb.Record_AssignGang{AssignGang: &journalpb.AssignGang{Attempt: at(job.MaxTasks - 1), Members: members(2)}}},
		"no attempt":    {Kind: &journalpb.Record_AssignGang{AssignGang: &journalpb.AssignGang{Members: members(2)}}},
		"may have run":  {Kind: &journalpb.Record_UnassignGang{UnassignGang: &journalpb.UnassignGang{Attempt: at(0), Proof: string(job.ProofExpired)}}},
		"without proof": {Kind: &journalpb.Record_UnassignGang{UnassignGang: &journalpb.UnassignGang{Attempt: at(0)}}},
	} {
		if r, err := recordOf(m); err == nil {
			t.Errorf("%s is accepted: %+v", name, r)
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(anyRecord, 1, 4).Draw(t, "records")
		data := appendGeneration(nil, 7)
		for _, r := range records {
			var err error
			if data, err = appendRecord(data, r); err != nil {
				t.Fatal(err)
			}
		}
		generation, got, err := decodeEntry(data)
		if err != nil || generation != 7 || !reflect.DeepEqual(got, records) {
			t.Fatalf("got %d, %+v, %v\nwant %+v", generation, got, err, records)
		}
	})
}

// FuzzDecodeEntry checks that a record that can be decoded can be encoded again, and stays the same.
func FuzzDecodeEntry(f *testing.F) {
	g := job.Group(1)
	data := appendGeneration(nil, 1)
	a := job.Attempt{Job: job.NewID(g, 4), Task: 2, N: 1}
	for _, r := range []job.Record{
		submit(g, 1),
		cancel(g, 2),
		job.PurgeRecord{Job: job.NewID(g, 3)},
		job.AssignGangRecord{Attempt: a, Members: []job.Assignee{{Node: "a", NodeName: "n1", Store: "s"}, {Node: "b"}}},
		job.UnassignGangRecord{Attempt: a, Proof: job.ProofDeclined, Detail: "full"},
	} {
		data, _ = appendRecord(data, r)
	}
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		generation, records, err := decodeEntry(data)
		if err != nil {
			return
		}
		again := appendGeneration(nil, generation)
		for _, r := range records {
			if again, err = appendRecord(again, r); errors.Is(err, store.ErrTooLarge) {
				return
			} else if err != nil {
				t.Fatalf("read %+v, which cannot be written: %v", r, err)
			}
		}
		g2, records2, err := decodeEntry(again)
		if err != nil || g2 != generation || !reflect.DeepEqual(records2, records) {
			t.Fatalf("read %+v, then %+v, %v, want the same", records, records2, err)
		}
	})
}
