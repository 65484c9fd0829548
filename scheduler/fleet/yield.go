package fleet

// Preemption: at which hosts preemptible tasks could make room for a request of a higher precedence.

// WithYield iterates over the hosts where preemptible tasks have a lower precedence than the request and where it may
// queue. It begins at the slot from, and wraps around at the last.
func (t *Table) WithYield(r *Request, from int) func(yield func(*Host) bool) {
	return func(yield func(*Host) bool) {
		precedence := r.Rank.Precedence()
		for _, part := range [][2]int{{from, len(t.yields)}, {0, from}} {
			for i, least := range t.yields[part[0]:part[1]] {
				if least >= precedence {
					continue
				}
				slot := part[0] + i
				if t.queue[slot] > precedence || !r.Pool.has.at(slot) {
					continue
				}
				if h := t.all[slot]; t.MayQueue(h, r) && t.Could(r.Shape, h) && !yield(h) {
					return
				}
			}
		}
	}
}

// Yield says up to which precedence preemptible tasks of the host must end so that the request may fit, and what these
// tasks hold. It counts CPUs, memory and devices; only the host knows whether the devices suit. ok is false if the
// request would not fit even then.
func (h *Host) Yield(r *Request) (precedence int, taken Footprint, ok bool) {
	left := footprintOfFree(h.LeftFor(&r.Rank))
	for i := range h.Free.Preemptible {
		y := &h.Free.Preemptible[i]
		if y.Precedence() >= r.Rank.Precedence() {
			break
		}
		left, taken = left.plus(y), taken.plus(y)
		if r.Foot.Within(left) {
			return y.Precedence(), taken, true
		}
	}
	return 0, Footprint{}, false
}
