package gpu

// Sets: the best-linked devices among the free ones.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
)

// set is a set of devices that grows, and what is good and bad about it.
type set struct {
	slots  []int
	worst  int // the longest way between two of them
	sum    int // of all ways
	memory job.Size
	loss   int // worth of links to free devices outside
}

// compare orders sets, the better first.
func (a set) compare(b set) int {
	return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.sum, b.sum), cmp.Compare(a.memory, b.memory), cmp.Compare(a.loss, b.loss))
}

// search looks for the best set of n devices among fit.
type search struct {
	p     *Pool
	fit   []int
	n     int
	worth []int // of the links to free devices, by slot
	best  set
}

func chooseSet(p *Pool, need job.Resources) []int {
	free := p.whole()
	s := search{p: p, fit: p.wholeFor(free, need), n: need.GPUs, worth: p.company(free)}
	switch {
	case len(s.fit) < s.n:
		return nil
	case len(s.fit) == s.n:
		return s.fit
	case sets(len(s.fit), s.n) <= exactSets:
		s.exact(set{slots: make([]int, 0, s.n)}, 0)
	default:
		s.greedy()
	}
	return s.best.slots
}

// sets is how many sets of k there are among n, at most exactSets+1.
func sets(n, k int) int {
	k = min(k, n-k)
	c := 1
	for i := range k {
		if c = c * (n - i) / (i + 1); c > exactSets {
			return exactSets + 1
		}
	}
	return c
}

// with is the set and one more device. It lives in the memory of the old one,
// which stays good as long as it is not grown another way at the same time.
func (s *search) with(a set, slot int) set {
	b := a
	b.slots = append(a.slots, slot)
	b.memory += s.p.slots[slot].Memory
	b.loss += s.worth[slot]
	for _, other := range a.slots {
		way := s.p.ways[other][slot]
		b.worst = max(b.worst, way)
		b.sum += way
		b.loss -= 2 * s.p.near[other][slot]
	}
	return b
}

// keep notes a complete set if it is better than those before.
func (s *search) keep(a set) {
	if s.best.slots == nil || a.compare(s.best) < 0 {
		s.best = a
		s.best.slots = slices.Clone(a.slots)
	}
}

// exact tries all sets that hold a and otherwise only devices from fit[from] on.
func (s *search) exact(a set, from int) {
	if len(a.slots) == s.n {
		s.keep(a)
		return
	}
	for i := from; i <= len(s.fit)-(s.n-len(a.slots)); i++ {
		b := s.with(a, s.fit[i])
		if s.best.slots != nil && cmp.Or(cmp.Compare(b.worst, s.best.worst), cmp.Compare(b.sum, s.best.sum)) > 0 {
			continue // ways only get longer
		}
		s.exact(b, i+1)
	}
}

// greedy grows a set from each of the first devices, by the nearest each time.
func (s *search) greedy() {
	for _, seed := range s.fit[:min(len(s.fit), greedySeeds)] {
		s.keep(s.grow(seed))
	}
}

func (s *search) grow(seed int) set {
	a := s.with(set{slots: make([]int, 0, s.n)}, seed)
	worst, sum := make([]int, len(s.p.slots)), make([]int, len(s.p.slots)) // the ways to the set, by slot
	in := make([]bool, len(s.p.slots))
	in[seed] = true
	last := seed
	for len(a.slots) < s.n {
		next := -1
		for _, i := range s.fit {
			if in[i] {
				continue
			}
			way := s.p.ways[last][i]
			worst[i] = max(worst[i], way)
			sum[i] += way
			if next < 0 || cmp.Or(cmp.Compare(worst[i], worst[next]), cmp.Compare(sum[i], sum[next]),
				cmp.Compare(s.p.slots[i].Memory, s.p.slots[next].Memory), cmp.Compare(s.worth[i], s.worth[next])) < 0 {
				next = i
			}
		}
		a = s.with(a, next)
		in[next], last = true, next
	}
	return a
}
