package state

// What people have asked of a job. A job keeps the last of these acts in its header, for its story.

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// maxActs bounds the acts that a job keeps. The oldest are forgotten first.
const maxActs = 64

// acts holds what people have asked for. Views share the list, so it is never changed in place.
type acts struct {
	list  []job.Act // the oldest first
	older uint32    // acts that were forgotten
}

// add keeps an act.
func (as *acts) add(a job.Act) {
	if len(a.Tasks) > job.MaxActRanges {
		a.Tasks, a.More = slices.Clone(a.Tasks[:job.MaxActRanges]), true
	}
	a.Reason = clip(a.Reason)
	from := max(0, len(as.list)+1-maxActs)
	as.older += uint32(from)
	as.list = append(slices.Clone(as.list[from:]), a)
}

// The sizes of what an act consists of, in bytes of memory.
const (
	actBytes   = int(unsafe.Sizeof(job.Act{}))
	rangeBytes = int(unsafe.Sizeof(job.Range{}))
)

// bytes returns the memory of the acts.
func (as *acts) bytes() int {
	n := len(as.list) * actBytes
	for i := range as.list {
		n += len(as.list[i].Reason) + len(as.list[i].Tasks)*rangeBytes
	}
	return n
}

func (as *acts) pb() (out []*jobspb.Act) {
	for i := range as.list {
		a := &as.list[i]
		m := &jobspb.Act{Kind: string(a.Kind), At: storepb.Nanos(a.At), More: a.More, Reason: a.Reason}
		for _, r := range a.Tasks {
			m.First, m.Last = append(m.First, uint32(r.First)), append(m.Last, uint32(r.Last))
		}
		out = append(out, m)
	}
	return out
}

// decode reads the acts of a job.
func (as *acts) decode(list []*jobspb.Act, older uint32) error {
	if len(list) > maxActs {
		return fmt.Errorf("%w: %d acts", errBadRow, len(list))
	}
	as.older = older
	for _, m := range list {
		a := job.Act{Kind: job.ActKind(m.GetKind()), At: storepb.Time(m.GetAt()), More: m.GetMore(), Reason: m.GetReason()}
		n := len(m.GetFirst())
		if n != len(m.GetLast()) || n > job.MaxActRanges || len(a.Reason) > maxOutcomeReason {
			return fmt.Errorf("%w: an act about %d ranges", errBadRow, n)
		}
		switch a.Kind {
		case job.ActHold, job.ActRelease, job.ActCancel, job.ActRequeue:
		default:
			return fmt.Errorf("%w: an act of kind %.40q", errBadRow, a.Kind)
		}
		for i := range n {
			a.Tasks = append(a.Tasks, job.Range{First: int(m.GetFirst()[i]), Last: int(m.GetLast()[i])})
		}
		as.list = append(as.list, a)
	}
	return nil
}
