package storepb

// Attempts, epochs, exits, job files and times as they lie on disk, and back.

import (
	"encoding/json"
	"time"

	"github.com/musterhq/muster/job"
)

// FromAttempt is the message of an attempt.
func FromAttempt(a job.Attempt) *Attempt {
	return &Attempt{Job: string(a.Job), Task: int64(a.Task), N: int64(a.N)}
}

// Value is the attempt of the message, or an error if there can be no such attempt.
func (x *Attempt) Value() (job.Attempt, error) {
	a := job.Attempt{Job: job.ID(x.GetJob()), Task: int(x.GetTask()), N: int(x.GetN())}
	if err := a.Valid(); err != nil {
		return job.Attempt{}, err
	}
	return a, nil
}

// FromEpoch is the message of an epoch, or nil for the zero epoch.
func FromEpoch(e job.Epoch) *Epoch {
	if e == (job.Epoch{}) {
		return nil
	}
	return &Epoch{Generation: e.Generation, Term: e.Term}
}

// Value is the epoch of the message; nil is the zero epoch.
func (x *Epoch) Value() job.Epoch {
	return job.Epoch{Generation: x.GetGeneration(), Term: x.GetTerm()}
}

// FromExit is the message of an exit, or nil for none.
func FromExit(e *job.Exit) *Exit {
	if e == nil {
		return nil
	}
	return &Exit{
		State: string(e.State), Code: int64(e.Code), Signal: int64(e.Signal), Reason: e.Reason,
		Started: e.Started, Began: Nanos(e.Began), Ended: Nanos(e.Ended), Tail: e.Tail, Isolation: e.Isolation,
	}
}

// Value is the exit of the message; nil is none.
func (x *Exit) Value() *job.Exit {
	if x == nil {
		return nil
	}
	return &job.Exit{
		State: job.State(x.GetState()), Code: int(x.GetCode()), Signal: int(x.GetSignal()), Reason: x.GetReason(),
		Started: x.GetStarted(), Began: Time(x.GetBegan()), Ended: Time(x.GetEnded()), Tail: x.GetTail(),
		Isolation: x.GetIsolation(),
	}
}

// DecodeSpec reads what job.EncodeSpec wrote. EncodeSpec leaves out every field that is zero. So a missing field is
// zero here, even where the default of a new job file is not.
func DecodeSpec(b []byte) (s job.Spec, err error) {
	err = json.Unmarshal(b, &s)
	return s, err
}

// Nanos is a time on disk: ns since 1970, 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Time is the time of ns since 1970; 0 is the zero time.
func Time(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
