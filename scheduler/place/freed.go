package place

// Hosts that got room: whether a waiting task could go to one of them, without a search of all hosts.

import (
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
)

// MayTake says whether a task that fitted nowhere before would find room at the host now, or a place in its queue. If a
// Hard avoidance keeps the task from the host, again is when the two are to be compared again; otherwise it is zero.
func (p *Placer) MayTake(t *Task, h *fleet.Host, now time.Time) (may bool, again time.Time) {
	if !p.fleet.Could(t.Shape, h) || t.OverQuota(h) != "" {
		return false, time.Time{}
	}
	a, avoided := t.avoids(now, h)
	switch {
	case avoided && a.Hard:
		return false, a.Until
	case p.fleet.MayQueue(h, &t.Request):
		return true, time.Time{}
	case avoided && a.Kept:
		return false, time.Time{}
	}
	return t.Foot.Within(p.fleet.Row(h.Slot()).Left) && t.FitsNow(h), time.Time{}
}

// MayTakeQueued says whether a task that queues at other hosts fits at this one now. If the task fits there but avoids
// the host, again is when the two are to be compared again; otherwise it is zero.
func (p *Placer) MayTakeQueued(t *Task, h *fleet.Host, now time.Time) (may bool, again time.Time) {
	if !t.Home.Has(h) || !p.fleet.Could(t.Shape, h) || t.OverQuota(h) != "" || !t.FitsNow(h) {
		return false, time.Time{}
	}
	if a, avoided := t.avoids(now, h); avoided && !a.Kept && (a.Hard || !a.Failed) {
		return false, a.Until
	}
	return true, time.Time{}
}
