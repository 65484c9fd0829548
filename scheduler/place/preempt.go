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
// A task that is overdue is never ended, so it goes to the smallest host: a larger one may be the only one for another
// task.
func (p *Placer) Preempt(t *Task, from int, now time.Time) *fleet.Host {
	var best *fleet.Host
	var least int
	var taken fleet.Footprint
	looks := 0
	bySize := func(h *fleet.Host) int {
		if !t.Overdue {
			return 0
		}
		return cmp.Or(cmp.Compare(len(h.Profile.GPUs), len(best.Profile.GPUs)), cmp.Compare(h.Profile.CPUs, best.Profile.CPUs), cmp.Compare(h.Profile.Memory, best.Profile.Memory))
	}
	for h := range p.fleet.WithYield(&t.Request, from) {
		if _, avoided := t.Avoid.at(now, h.Peer); avoided || t.Avoid.unyielding(now, h.Peer) || !t.Home.Has(h) || t.OverQuota(h) != "" || slices.Contains(t.At, h) {
			continue
		}
		if precedence, y, ok := h.Yield(&t.Request); ok {
			if best == nil || cmp.Or(bySize(h), cmp.Compare(precedence, least), cmp.Compare(y.GPUs, taken.GPUs), cmp.Compare(y.CPUs, taken.CPUs)) < 0 {
				best, least, taken = h, precedence, y
			}
			if looks++; looks >= SampleSize {
				break
			}
		}
	}
	return best
}
