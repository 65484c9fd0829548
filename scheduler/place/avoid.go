package place

// Avoidance: hosts where a task is not placed for a while.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Avoidance is a host that a task avoids for a while. If neither Hard nor Kept is set, the task goes there only if it
// fits at no other host.
type Avoidance struct {
	Peer  job.Peer
	Until time.Time
	Hard  bool // the task does not go there in any case
	Kept  bool // the host keeps what is free there for tasks of other schedulers; the task may queue behind them
	// Unyielding says that no preemptible tasks there make room for the task. That is all that it avoids: it may go there, and
	// queue there.
	Unyielding bool
}

// Avoidances are the hosts that a task avoids.
type Avoidances []Avoidance

// maxAvoid bounds the hosts that one task avoids. A task that avoids so many is placed nowhere until it may go to one
// of them again.
const maxAvoid = 64

// Add has the task avoid the host. It replaces what the task held against the host before; that no tasks make room for it
// there is apart from anything else.
func (as *Avoidances) Add(now time.Time, a Avoidance) {
	if a.Peer == "" {
		return
	}
	*as = slices.DeleteFunc(*as, func(b Avoidance) bool { return b.Peer == a.Peer && b.Unyielding == a.Unyielding || !b.Until.After(now) })
	if len(*as) >= maxAvoid {
		i := max(0, slices.IndexFunc(*as, func(b Avoidance) bool { return b.Unyielding }))
		*as = slices.Delete(*as, i, i+1)
	}
	*as = append(*as, a)
}

// at returns how the task avoids the host now, if it does.
func (as Avoidances) at(now time.Time, p job.Peer) (Avoidance, bool) {
	for _, a := range as {
		if a.Peer == p && !a.Unyielding && a.Until.After(now) {
			return a, true
		}
	}
	return Avoidance{}, false
}

// Ends says whether one of the avoidances ends at this time.
func (as Avoidances) Ends(at time.Time) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Until.Equal(at) })
}

// Hard says whether the task does not go to a host now in any case.
func (as Avoidances) Hard(now time.Time, p job.Peer) bool {
	a, avoided := as.at(now, p)
	return avoided && a.Hard
}

// unyielding says whether no preemptible tasks of the host make room for the task.
func (as Avoidances) unyielding(now time.Time, p job.Peer) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Peer == p && a.Unyielding && a.Until.After(now) })
}

// full says whether the task avoids as many hosts as it may, and until when.
func (as Avoidances) full(now time.Time) (until time.Time, full bool) {
	if len(as) < maxAvoid {
		return time.Time{}, false
	}
	for _, a := range as {
		if a.Unyielding || !a.Until.After(now) {
			return time.Time{}, false
		}
		until = earlier(until, a.Until)
	}
	return until, true
}

// earlier is the earlier of two times; a zero time stands for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
