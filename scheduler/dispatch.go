package scheduler

// What a dispatch asks for, where it is offered, and which ranks of its gang have places.

import (
	"slices"

	"github.com/musterhq/muster/scheduler/fleet"
)

const spreadMost = 16 // hosts that a task is queued at, when it has waited long

// request is what the task asks for, in the terms of package fleet. The task has a shape.
func (t *task) request() fleet.Request {
	return fleet.Request{
		Shape: &t.shape.Shape, Rank: placeOf(t), Limited: t.e.job.Spec.TimeLimit > 0, Gang: t.e.job.Gang() > 1, Gathers: t.dispatch.gathers(), Overdue: t.overdue,
	}
}

// gathers reports whether the dispatch is one of a gang that keeps its places in queues.
func (d *dispatch) gathers() bool { return d != nil && d.gang != nil && d.gang.gathers }

// wantsMore reports whether the task may be offered to one more host that got room.
func (d *dispatch) wantsMore() bool {
	if d.gang != nil {
		return d.missing() > 0
	}
	return len(d.offers) < spreadMost
}

// at reports whether the task is offered to the host.
func (d *dispatch) at(h *fleet.Host) bool {
	return slices.ContainsFunc(d.offers, func(o *offer) bool { return o.worker.Host == h })
}

// seats counts the offers of a gang by the state of their seats.
func (d *dispatch) seats() (n [seated + 1]int) {
	for _, o := range d.offers {
		n[o.seat.state]++
	}
	return n
}

// missing returns how many members have no host that has committed or has been asked to.
func (d *dispatch) missing() int {
	n := d.gang.size
	for _, o := range d.offers {
		if o.seat.state != inQueue || o.seat.preempt {
			n--
		}
	}
	return max(n, 0)
}

// holder returns the offer whose host holds or promises the place of a rank; nil if there is none.
func (d *dispatch) holder(rank int) *offer {
	for _, o := range d.offers {
		if o.seat.rank == rank && o.seat.state >= promised {
			return o
		}
	}
	return nil
}

// openRank returns the rank that most needs an offer: among those without a place, the first with the fewest offers. It
// returns false if each rank has a place.
func (d *dispatch) openRank() (rank int, open bool) {
	offers, taken := make([]int, d.gang.size), make([]bool, d.gang.size)
	for _, o := range d.offers {
		offers[o.seat.rank]++
		taken[o.seat.rank] = taken[o.seat.rank] || o.seat.state >= promised
	}
	for r := range offers {
		if !taken[r] && (!open || offers[r] < offers[rank]) {
			rank, open = r, true
		}
	}
	return rank, open
}
