package place

// Avoidance: hosts where a task is not placed for a while, and those where it has failed.
// See docs/adr, ADR 169.

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
	Hard  bool // the task must not go there
	Kept  bool // the host keeps what is free there for tasks of other schedulers; the task may queue behind them
	// Unyielding says that no preemptible tasks there make room for the task. It rules out nothing else: the task may go
	// there, and queue there.
	Unyielding bool
	// Failed says that the task has failed there. Until WaitUntil the task does not go there if an open host where it
	// has not failed could ever take it. After that it goes there only if it fits at no other host.
	Failed    bool
	WaitUntil time.Time
	// LeftOut says that other tasks of its job have failed there soon after they began. The task goes there last.
	LeftOut bool
}

// before reports whether the task prefers the host of a to the host of b, if it has to go to one that it avoids.
func (a Avoidance) before(b Avoidance) bool {
	if a.LeftOut != b.LeftOut {
		return b.LeftOut
	}
	return a.Until.Before(b.Until)
}

// alike says whether the two are of one kind: one replaces the other.
func (a Avoidance) alike(b Avoidance) bool {
	return a.Peer == b.Peer && a.Unyielding == b.Unyielding && a.Failed == b.Failed
}

// Avoidances are the hosts that a task avoids.
type Avoidances []Avoidance

// maxAvoid bounds the avoidances of one task. A task with this many, none of them Failed or Unyielding, is placed
// nowhere until one of them ends.
const maxAvoid = 64

// Add makes the task avoid the host. The new avoidance replaces an earlier one of the same kind; see alike. If there are
// too many, the oldest is dropped, an Unyielding one first.
func (as *Avoidances) Add(now time.Time, a Avoidance) {
	if a.Peer == "" {
		return
	}
	*as = slices.DeleteFunc(*as, func(b Avoidance) bool { return b.alike(a) || !b.Until.After(now) })
	if len(*as) >= maxAvoid {
		i := max(0, slices.IndexFunc(*as, func(b Avoidance) bool { return b.Unyielding }))
		*as = slices.Delete(*as, i, i+1)
	}
	*as = append(*as, a)
}

// Forget drops all avoidances of a host. It reports whether there were any.
func (as *Avoidances) Forget(p job.Peer) bool {
	before := len(*as)
	*as = slices.DeleteFunc(*as, func(a Avoidance) bool { return a.Peer == p })
	return len(*as) < before
}

// at returns how the task avoids the host now, if it does. elsewhere says that an open host where it has not failed
// could ever take it.
func (as Avoidances) at(now time.Time, p job.Peer, elsewhere bool) (found Avoidance, avoided bool) {
	for _, a := range as {
		if a.Peer != p || a.Unyielding || !a.Until.After(now) {
			continue
		}
		if a.Failed && elsewhere && a.WaitUntil.After(now) {
			a.Until, a.Hard = a.WaitUntil, true
		}
		if !avoided || a.Hard && !found.Hard || found.Failed && !a.Failed && !found.Hard {
			found, avoided = a, true
		}
	}
	return found, avoided
}

// WaitsUntil returns until when the task waits for another host because it has failed at this one; zero if it does not.
func (as Avoidances) WaitsUntil(p job.Peer) time.Time {
	for _, a := range as {
		if a.Peer == p && a.Failed {
			return a.WaitUntil
		}
	}
	return time.Time{}
}

// failedAt says whether the task has failed at the host.
func (as Avoidances) failedAt(p job.Peer) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Peer == p && a.Failed })
}

// waits says whether the task waits for a host where it has not failed.
func (as Avoidances) waits(now time.Time) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Failed && a.WaitUntil.After(now) })
}

// Ends says whether one of the avoidances ends at this time.
func (as Avoidances) Ends(at time.Time) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Until.Equal(at) })
}

// Hard reports whether the task must not go to the host now.
func (as Avoidances) Hard(now time.Time, p job.Peer) bool {
	a, avoided := as.at(now, p, false)
	return avoided && a.Hard
}

// unyielding says whether no preemptible tasks of the host make room for the task.
func (as Avoidances) unyielding(now time.Time, p job.Peer) bool {
	return slices.ContainsFunc(as, func(a Avoidance) bool { return a.Peer == p && a.Unyielding && a.Until.After(now) })
}

// full reports whether the task has at least maxAvoid avoidances, none of them Failed or Unyielding, and when the first
// of them ends.
func (as Avoidances) full(now time.Time) (until time.Time, full bool) {
	if len(as) < maxAvoid {
		return time.Time{}, false
	}
	for _, a := range as {
		if a.Unyielding || a.Failed || !a.Until.After(now) {
			return time.Time{}, false
		}
		until = earlier(until, a.Until)
	}
	return until, true
}

// earlier returns the earlier of two times; a zero time stands for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
