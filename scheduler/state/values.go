package state

// Values: what is known of tasks that were never assigned. Many tasks share one.
// See docs/adr, ADR 154.

import (
	"cmp"
	"unsafe"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// value is a task that was never assigned: it waits, or was cancelled while it waited. Times are ns since 1970, 0 for none.
type value struct {
	ended, closed int64
	reason        job.Reason
	state         uint8 // see stateOf
}

// maxValues bounds the values of a job in each state, so that one byte is always enough to name a task's value. A task
// that would need one more shares the newest value: its state is right, but its time and its reason are those of an
// earlier act. The bound is the number of acts that a job keeps.
const maxValues = maxActs

// ownCell stands in place of a value: the task has a cell. 3 states have at most maxValues values each, so no value has
// this number.
const ownCell = 255

// values numbers the values of the tasks of one job. Number 0 is the value at the submission.
type values struct {
	list []value
	used []int32 // number of tasks that have each value
}

func newValues(first value, n int) values {
	return values{list: []value{first}, used: []int32{int32(n)}} //nolint:gosec // at most job.MaxTasks
}

// valueOf returns the value of a task. It returns false if the task has more fields than a value can hold.
func valueOf(t *job.Task) (value, bool) {
	plain := t.Attempt == 0 && t.Runs == 0 && t.Settled == 0 && t.Exit == nil && !t.Assigned && t.Ending == job.NotEnding && t.Node == "" &&
		t.NodeName == "" && t.Store == "" && t.Fencing == job.Fencing{} && t.Epoch == job.Epoch{} && len(t.Devices) == 0 && len(t.Lost) == 0 && t.Placed.IsZero() && t.Started.IsZero()
	plain = plain && (t.State == job.Pending || t.State == job.Held || t.State == job.Cancelled) && t.Reason.Word != job.ReasonGangEnded
	return value{state: number(t.State), reason: t.Reason, ended: storepb.Nanos(t.Ended), closed: storepb.Nanos(t.Closed)}, plain
}

// task returns the task with this index that has the value.
func (v *value) task(index int) job.Task {
	return job.Task{Index: index, State: stateOf(v.state), Reason: v.reason, Ended: storepb.Time(v.ended), Closed: storepb.Time(v.closed)}
}

func (v *value) compare(w *value) int {
	return cmp.Or(cmp.Compare(v.closed, w.closed), cmp.Compare(v.reason.Word, w.reason.Word), cmp.Compare(v.reason.Detail, w.reason.Detail))
}

// of returns the number of a value, and adds the value if it is new and there are not too many.
func (vs *values) of(v value) uint8 {
	free, same, newest := 0, 0, 0
	for i := range vs.list {
		x := &vs.list[i]
		switch {
		case *x == v:
			return uint8(i) //nolint:gosec // below ownCell
		case vs.used[i] == 0:
			free = i // 0 is never free
		case x.state == v.state:
			if same++; same == 1 || x.compare(&vs.list[newest]) > 0 {
				newest = i
			}
		}
	}
	switch {
	case same >= maxValues:
		return uint8(newest) //nolint:gosec // below ownCell
	case free > 0:
		vs.list[free] = v
		return uint8(free) //nolint:gosec // below ownCell
	}
	vs.list, vs.used = append(vs.list, v), append(vs.used, 0)
	return uint8(len(vs.list) - 1) //nolint:gosec // below ownCell
}

// state returns the state of a value.
func (vs *values) state(id uint8) job.State { return stateOf(vs.list[id].state) }

// valueBytes is the memory of a value, with the number of its tasks.
const valueBytes = int(unsafe.Sizeof(value{})) + 4

// bytes returns the memory of the values.
func (vs *values) bytes() int {
	n := cap(vs.list) * valueBytes
	for i := range vs.list {
		n += len(vs.list[i].reason.Detail)
	}
	return n
}
