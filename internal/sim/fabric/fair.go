package fabric

// Max-min fair sharing: a flow could only have more if another flow, which does not have more than it, got less.

import "slices"

// solver computes the rates of flows. It keeps its memory between calls.
type solver struct {
	left    []float64 // by directed link: bandwidth that is not given to flows yet
	open    []int32   // by directed link: flows on it without a rate yet
	start   []int32   // by directed link: where its flows begin in members
	end     []int32   // by directed link: where they end
	used    []int32   // the links that have flows
	members []int32   // the flows of each link, one link after the other
	heap    []offer
}

// offer is what a link could give to each of its open flows, when last computed. It never becomes less, apart from
// rounding.
type offer struct {
	share float64
	link  int32
}

func (o offer) before(p offer) bool {
	return o.share < p.share || o.share == p.share && o.link < p.link
}

func newSolver(links int) solver {
	return solver{left: make([]float64, links), open: make([]int32, links), start: make([]int32, links), end: make([]int32, links)}
}

// solve sets the rate of each flow by filling all links evenly. The link that can give the least to each of its flows
// decides their rate, and this rate is subtracted from the other links on their paths. room is the capacity of a link.
// A flow without a path has rate 0.
func (s *solver) solve(flows []*flow, room func(link int32) float64) {
	s.prepare(flows, room)
	for len(s.heap) > 0 {
		o := s.heap[0]
		if s.open[o.link] == 0 {
			s.shrink()
			continue
		}
		share := max(s.left[o.link], 0) / float64(s.open[o.link])
		if share > o.share {
			s.heap[0].share = share
			s.sink(0)
			continue
		}
		s.shrink()
		for i := s.start[o.link]; s.members[i] >= 0; i++ {
			if fl := flows[s.members[i]]; !fl.rated {
				fl.rated, fl.rate = true, share
				for _, l := range fl.path {
					s.left[l] -= share
					s.open[l]--
				}
			}
		}
	}
}

// prepare lists the flows of each link, each list closed by -1, and makes the heap.
func (s *solver) prepare(flows []*flow, room func(link int32) float64) {
	for _, l := range s.used {
		s.open[l] = 0
	}
	s.used, s.heap = s.used[:0], s.heap[:0]
	total := 0
	for _, fl := range flows {
		fl.rated, fl.rate = false, 0
		total += len(fl.path)
		for _, l := range fl.path {
			if s.open[l] == 0 {
				s.used = append(s.used, l)
				s.left[l] = room(l)
			}
			s.open[l]++
		}
	}
	next := int32(0)
	for _, l := range s.used {
		s.start[l], s.end[l] = next, next
		next += s.open[l] + 1
		s.heap = append(s.heap, offer{share: s.left[l] / float64(s.open[l]), link: l})
	}
	s.members = slices.Grow(s.members[:0], total+len(s.used))[:total+len(s.used)]
	for i, fl := range flows {
		for _, l := range fl.path {
			s.members[s.end[l]] = int32(i)
			s.end[l]++
		}
	}
	for _, l := range s.used {
		s.members[s.end[l]] = -1
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}

// shrink removes the smallest offer.
func (s *solver) shrink() {
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	if last > 0 {
		s.sink(0)
	}
}

func (s *solver) sink(i int) {
	o := s.heap[i]
	for {
		child := 2*i + 1
		if child >= len(s.heap) {
			break
		}
		if child+1 < len(s.heap) && s.heap[child+1].before(s.heap[child]) {
			child++
		}
		if !s.heap[child].before(o) {
			break
		}
		s.heap[i] = s.heap[child]
		i = child
	}
	s.heap[i] = o
}
