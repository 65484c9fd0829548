package scheduler

// News of preemptible tasks: which queued tasks and gangs ask for them.
// See docs/adr, ADR 88.

import "slices"

// yielding handles the report of a host that other tasks than before are preemptible. It checks whether these can make
// room for tasks and gangs that queue there and for which no tasks make room yet. It checks the first ones only. The
// others get another check when their offers are renewed.
func (ds *dispatches) yielding(w *worker) {
	offers := slices.DeleteFunc(ds.offers.to(w), func(o *offer) bool {
		return !o.queued() || o.dispatch.preempts() || o.dispatch.winner != nil
	})
	slices.SortFunc(offers, func(a, b *offer) int { return a.claim.Rank.Compare(&b.claim.Rank) })
	for _, o := range offers[:min(len(offers), yieldLooks)] {
		r := o.dispatch.task.request()
		switch _, _, ok := w.Yield(&r); {
		case !ok, ds.offers.byID[o.id] != o: // another task took its place meanwhile
		case o.seat != nil:
			ds.offers.changed(o.dispatch)
		default:
			ds.preempt(o.dispatch)
		}
	}
}

// preempts reports whether preemptible tasks are to make room for the task, or for a member of the gang.
func (d *dispatch) preempts() bool {
	return d.preempt != nil || slices.ContainsFunc(d.offers, func(o *offer) bool { return o.seat != nil && o.seat.preempt })
}

// yieldLooks bounds the queued tasks that are looked at when a host reports other preemptible tasks.
const yieldLooks = 16
