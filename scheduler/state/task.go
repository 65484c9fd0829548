package state

// Tasks in rows, outside columns: the value that tasks share, and each task in the header of a row of older versions.

import (
	"fmt"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// pb encodes a task that has the value.
func (v *value) pb() *jobspb.Task {
	return &jobspb.Task{
		State: string(stateOf(v.state)), ReasonWord: v.reason.Word, ReasonDetail: v.reason.Detail, Ended: v.ended, Closed: v.closed,
	}
}

// decodeValue decodes the value of a task that was never assigned.
func decodeValue(m *jobspb.Task) (value, error) {
	t, err := taskOf(m)
	if err != nil {
		return value{}, err
	}
	v, plain := valueOf(&t)
	if !plain {
		return value{}, fmt.Errorf("%w: a task that was never assigned is %.40q", errBadRow, t.State)
	}
	v.reason = job.Reason{Word: shared(v.reason.Word), Detail: shared(v.reason.Detail)}
	return v, nil
}

// taskOf decodes a task.
func taskOf(m *jobspb.Task) (job.Task, error) {
	if _, known := numbers[job.State(m.GetState())]; !known {
		return job.Task{}, fmt.Errorf("%w: no state %.40q", errBadRow, m.GetState())
	}
	t := job.Task{
		Index: int(m.GetIndex()), State: job.State(m.GetState()),
		Reason:  job.Reason{Word: m.GetReasonWord(), Detail: m.GetReasonDetail()},
		Attempt: int(m.GetAttempt()), Node: job.Peer(m.GetNode()), NodeName: m.GetNodeName(), Store: m.GetStore(),
		Epoch: m.GetEpoch().Value(), Devices: m.GetDevices(), Assigned: m.GetAssigned(), Runs: int(m.GetRuns()),
		Started: storepb.Time(m.GetStarted()), Ended: storepb.Time(m.GetEnded()), Closed: storepb.Time(m.GetClosed()), Lost: peers(m.GetLost()),
	}
	if e := m.GetExit(); e != nil {
		if _, known := numbers[job.State(e.GetState())]; !known {
			return job.Task{}, fmt.Errorf("%w: no state %.40q", errBadRow, e.GetState())
		}
		t.Exit = e.Value()
	}
	return t, nil
}

func peers(list []string) []job.Peer {
	var out []job.Peer
	for _, s := range list {
		out = append(out, job.Peer(s))
	}
	return out
}
