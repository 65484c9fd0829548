package place

// Preemption: at which full host preemptible tasks are to make room for a task.
// See docs/adr, ADR 88.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
)

// Preempt returns the host where tasks of the least precedence would make room for the task; of several the one where
// these tasks have the fewest devices and CPUs. It is nil if there is none. The host decides which tasks end.
//
// A task that is overdue is never preempted, so it goes to the smallest host: a larger one may be the only one for
// another task.
func (p *Placer) Preempt(t *Task, from int, now time.Time) *fleet.Host {
	var best yielder
	looks := 0
	for h := range p.fleet.WithYield(&t.Request, from) {
		if best.look(t, h, now) {
			if looks++; looks >= SampleSize {
				break
			}
		}
	}
	return best.host
}

// PreemptAmong is like Preempt, but looks only at hosts where the task queues.
func (p *Placer) PreemptAmong(t *Task, hosts []*fleet.Host, now time.Time) *fleet.Host {
	var best yielder
	for _, h := range hosts {
		best.look(t, h, now)
	}
	return best.host
}

// yielder is the best host so far where tasks would make room, with their precedence and what they would give back.
type yielder struct {
	host       *fleet.Host
	precedence int
	taken      fleet.Footprint
}

// look compares a host with the best so far. It returns false if no tasks would make room there.
func (y *yielder) look(t *Task, h *fleet.Host, now time.Time) bool {
	if _, avoided := t.avoids(now, h); avoided || t.Avoid.unyielding(now, h.Peer) || !t.Home.Has(h) || t.OverQuota(h) != "" || slices.Contains(t.At, h) {
		return false
	}
	precedence, taken, ok := h.Yield(&t.Request)
	if ok && (y.host == nil || cmp.Or(y.bySize(t, h), cmp.Compare(precedence, y.precedence), cmp.Compare(taken.GPUs, y.taken.GPUs), cmp.Compare(taken.CPUs, y.taken.CPUs)) < 0) {
		*y = yielder{h, precedence, taken}
	}
	return ok
}

func (y *yielder) bySize(t *Task, h *fleet.Host) int {
	if !t.Overdue {
		return 0
	}
	a, b := &h.Profile, &y.host.Profile
	return cmp.Or(cmp.Compare(len(a.GPUs), len(b.GPUs)), cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.Memory, b.Memory))
}
