// Package statetest stores the rows of jobs in memory, for tests.
package statetest

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// Disk holds the rows of jobs, by job and part. It is not safe for concurrent use.
type Disk map[job.ID]map[string][]byte

// Save writes rows, and deletes all rows of the jobs in gone.
func (d Disk) Save(rows []job.Row, gone []job.ID) {
	for _, r := range rows {
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

// File returns the row of a job's file; nil if there is none.
func (d Disk) File(id job.ID) []byte { return d[id][job.PartFile] }

// Rows returns the rows of a job from part from to before part to, in order, without that of its file. An empty to means
// the end.
func (d Disk) Rows(id job.ID, from, to string) (rows []job.Row) {
	for _, part := range slices.Sorted(maps.Keys(d[id])) {
		if part != job.PartFile && part >= from && (to == "" || part < to) {
			rows = append(rows, job.Row{Job: id, Part: part, Data: d[id][part]})
		}
	}
	return rows
}

// All returns all rows, in the order in which a store loads them.
func (d Disk) All() (rows []job.Row) {
	for _, id := range slices.SortedFunc(maps.Keys(d), func(a, b job.ID) int { return strings.Compare(string(a), string(b)) }) {
		rows = append(rows, d.Rows(id, "", "")...)
	}
	return rows
}

// Job decodes a job from its rows, and reports whether there is one. It panics if they cannot be decoded.
func (d Disk) Job(id job.ID) (job.Job, bool) {
	if d[id] == nil {
		return job.Job{}, false
	}
	j, err := state.Decode(d.Rows(id, "", ""))
	if err != nil {
		panic(err)
	}
	return j.View(0, j.Len()), true
}

// RowsOf encodes a job in the format of older versions, in which the header holds the tasks.
func RowsOf(j job.Job) []job.Row {
	spec, err := job.EncodeSpec(j.Spec)
	if err != nil {
		panic(err)
	}
	m := &jobspb.Header{
		Id: string(j.ID), User: j.User, Spec: spec, Submitted: storepb.Nanos(j.Submitted), Key: j.Key, Cancelled: j.Cancelled, Seq: j.Seq,
	}
	for _, t := range j.Tasks {
		m.Tasks = append(m.Tasks, &jobspb.Task{
			Index: int64(t.Index), State: string(t.State), ReasonWord: t.Reason.Word, ReasonDetail: t.Reason.Detail,
			Attempt: int64(t.Attempt), Node: string(t.Node), NodeName: t.NodeName, Store: t.Store, Devices: t.Devices,
			Assigned: t.Assigned, Runs: int64(t.Runs), Started: storepb.Nanos(t.Started), Ended: storepb.Nanos(t.Ended), Closed: storepb.Nanos(t.Closed),
		})
	}
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return []job.Row{{Job: j.ID, Data: data}}
}
