package storepb

// Encoding and decoding attempts, epochs, exits, job files and times.

import (
	"encoding/json"
	"time"

	"github.com/musterhq/muster/job"
)

// FromAttempt returns the message of an attempt.
func FromAttempt(a job.Attempt) *Attempt {
	return &Attempt{Job: string(a.Job), Task: int64(a.Task), N: int64(a.N)}
}

// Value returns the attempt of the message, or an error if it is not valid.
func (x *Attempt) Value() (job.Attempt, error) {
	a := job.Attempt{Job: job.ID(x.GetJob()), Task: int(x.GetTask()), N: int(x.GetN())}
	if err := a.Valid(); err != nil {
		return job.Attempt{}, err
	}
	return a, nil
}

// FromEpoch returns the message of an epoch, or nil for the zero epoch.
func FromEpoch(e job.Epoch) *Epoch {
	if e == (job.Epoch{}) {
		return nil
	}
	return &Epoch{Generation: e.Generation, Term: e.Term}
}

// Value returns the epoch of the message. For nil it returns the zero epoch.
func (x *Epoch) Value() job.Epoch {
	return job.Epoch{Generation: x.GetGeneration(), Term: x.GetTerm()}
}

// FromExit returns the message of an exit, or nil for nil.
func FromExit(e *job.Exit) *Exit {
	if e == nil {
		return nil
	}
	return &Exit{
		State: string(e.State), Code: int64(e.Code), Signal: int64(e.Signal), Reason: e.Reason,
		Started: e.Started, Began: Nanos(e.Began), Ended: Nanos(e.Ended), Tail: e.Tail, Isolation: e.Isolation, Usage: []byte(e.Usage),
	}
}

// Value returns the exit of the message, or nil for nil.
func (x *Exit) Value() *job.Exit {
	if x == nil {
		return nil
	}
	return &job.Exit{
		State: job.State(x.GetState()), Code: int(x.GetCode()), Signal: int(x.GetSignal()), Reason: x.GetReason(),
		Started: x.GetStarted(), Began: Time(x.GetBegan()), Ended: Time(x.GetEnded()), Tail: x.GetTail(),
		Isolation: x.GetIsolation(), Usage: string(x.GetUsage()),
	}
}

// DecodeSpec decodes the result of job.EncodeSpec. A missing field is zero, even if a new job file has another default,
// because EncodeSpec leaves out fields that are zero.
func DecodeSpec(b []byte) (s job.Spec, err error) {
	err = json.Unmarshal(b, &s)
	return s, err
}

// Nanos encodes a time as ns since 1970, and the zero time as 0.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Time decodes the result of Nanos.
func Time(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
