package job

// What people ask of a job after its submission, as its story tells it.

import "time"

// ActKind is what somebody asked for.
type ActKind string

// The kinds of acts.
const (
	ActHold    ActKind = "held"
	ActRelease ActKind = "released"
	ActCancel  ActKind = "cancelled"
	ActRequeue ActKind = "requeued"
)

// Act is one request that has changed a job.
type Act struct {
	Kind   ActKind
	At     time.Time // by the owner's clock; zero if it is not known
	Tasks  []Range   // of indexes, at most MaxActRanges; none: all tasks
	More   bool      // it was about further tasks
	Reason string
}

// MaxActRanges bounds the ranges of tasks that an act names.
const MaxActRanges = 16
