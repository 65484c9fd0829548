package fleet

// Searches of the table: hosts that could ever run a request, that have room for it now, or where it may queue.

// Could says whether the host could ever run the shape, by what is known of it.
func (t *Table) Could(s *Shape, h *Host) bool {
	return s.Pool.has.at(h.row.slot) && s.Foot.Within(t.most[h.row.slot]) && !s.excluded(h)
}

// Weight returns how well the host meets the preferences of the shape.
func (t *Table) Weight(s *Shape, h *Host) int { return s.Pool.weight(h.row.slot) }

// Candidates iterates over the known hosts that could ever run the shape.
func (t *Table) Candidates(s *Shape) func(yield func(*Host) bool) {
	return func(yield func(*Host) bool) {
		for _, h := range t.all {
			if h != nil && t.Could(s, h) && !yield(h) {
				return
			}
		}
	}
}

// EnoughOpen says whether as many hosts as the shape needs at once take tasks and could run it.
func (t *Table) EnoughOpen(s *Shape) bool {
	n := max(1, s.Gang)
	for h := range t.Candidates(s) {
		if h.Open() {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// WithRoom iterates over the slots of hosts where the shape may fit now, with how well they meet its preferences. It
// begins at the slot from, and wraps around at the last. It leaves out hosts that are preferred less than least. The
// caller may raise least during the search.
func (t *Table) WithRoom(s *Shape, from int, least *int) func(yield func(slot, weight int) bool) {
	return func(yield func(int, int) bool) {
		foot, left := s.Foot, t.left
		for _, part := range [][2]int{{from, len(left)}, {0, from}} {
			for i, room := range left[part[0]:part[1]] {
				if !foot.Within(room) {
					continue
				}
				slot := part[0] + i
				if !s.Pool.has.at(slot) {
					continue
				}
				weight := s.Pool.weight(slot)
				if weight >= *least && !s.excluded(t.all[slot]) && !yield(slot, weight) {
					return
				}
			}
		}
	}
}

// NearestWithRoom is like Table.WithRoom, but the nearest hosts come first. Among equally near hosts it begins at the
// slot from.
func NearestWithRoom(t *Table, s *Shape, from int, least *int) func(yield func(slot, weight int) bool) {
	return func(yield func(int, int) bool) {
		var rooms [unknownRank + 1]int // hosts with room, by rank
		foot := s.Foot
		for slot, room := range t.left {
			if foot.Within(room) && s.Pool.has.at(slot) {
				rooms[t.near[slot]]++
			}
		}
		for rank, n := range rooms {
			if n > 0 && !equallyNear(t, s, from, uint8(rank), n, least, yield) {
				return
			}
		}
	}
}

// equallyNear yields the n hosts of this rank with room. It returns false if yield does.
func equallyNear(t *Table, s *Shape, from int, rank uint8, n int, least *int, yield func(int, int) bool) bool {
	foot, left := s.Foot, t.left
	for _, part := range [][2]int{{from, len(left)}, {0, from}} {
		for i, at := range t.near[part[0]:part[1]] {
			if at != rank {
				continue
			}
			if n == 0 {
				return true
			}
			slot := part[0] + i
			if !foot.Within(left[slot]) || !s.Pool.has.at(slot) {
				continue
			}
			n--
			weight := s.Pool.weight(slot)
			if weight < *least {
				continue
			}
			if !s.excluded(t.all[slot]) && !yield(slot, weight) {
				return false
			}
		}
	}
	return true
}

// queueLooks bounds the full hosts that one search looks at for a place in their queues. If none of them has a place,
// the task is parked until a host gets room or a place.
const queueLooks = 256

// WithQueue iterates over hosts where the request may queue. It begins at the slot from, and wraps around at the last.
func (t *Table) WithQueue(r *Request, from int) func(yield func(*Host) bool) {
	return func(yield func(*Host) bool) {
		looks, precedence := 0, r.Rank.Precedence()
		for _, part := range [][2]int{{from, len(t.queue)}, {0, from}} {
			for slot := part[0]; slot < part[1]; slot++ {
				if t.queue[slot] > precedence || !r.Pool.has.at(slot) {
					continue
				}
				h := t.all[slot]
				if t.MayQueue(h, r) && t.Could(r.Shape, h) && !yield(h) {
					return
				}
				if looks++; looks >= queueLooks {
					return
				}
			}
		}
	}
}
