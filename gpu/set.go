package gpu

// The search for the best-linked set of free devices.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
)

// set is a growing set of devices, with its costs.
type set struct {
	slots  []int
	worst  int // the longest distance between two of them
	sum    int // the sum of all distances
	memory job.Size
	loss   int // value of links to free devices outside the set
}

// compare orders sets, the better one first.
func (a set) compare(b set) int {
	return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.sum, b.sum), cmp.Compare(a.memory, b.memory), cmp.Compare(a.loss, b.loss))
}

// search looks for the best set of n devices among fit.
type search struct {
	p     *Pool
	fit   []int
	n     int
	worth []int // value of the links to free devices, by slot
	best  set
}

func chooseSet(p *Pool, need job.Resources) []int {
	free := p.whole()
	s := search{p: p, fit: p.wholeFor(free, need), n: need.GPUs, worth: p.linkValues(free)}
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

// sets returns the number of sets of k out of n, at most exactSets+1.
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

// with returns the set with one more device. It shares memory with the old set, so the old set must not be grown in
// a different way at the same time.
func (s *search) with(a set, slot int) set {
	b := a
	b.slots = append(a.slots, slot)
	b.memory += s.p.slots[slot].Memory
	b.loss += s.worth[slot]
	for _, other := range a.slots {
		d := s.p.distances[other][slot]
		b.worst = max(b.worst, d)
		b.sum += d
		b.loss -= 2 * s.p.near[other][slot]
	}
	return b
}

// keep stores a complete set if it is better than those before.
func (s *search) keep(a set) {
	if s.best.slots == nil || a.compare(s.best) < 0 {
		s.best = a
		s.best.slots = slices.Clone(a.slots)
	}
}

// exact tries all sets that contain a and otherwise only devices from fit[from] on.
func (s *search) exact(a set, from int) {
	if len(a.slots) == s.n {
		s.keep(a)
		return
	}
	for i := from; i <= len(s.fit)-(s.n-len(a.slots)); i++ {
		b := s.with(a, s.fit[i])
		if s.best.slots != nil && cmp.Or(cmp.Compare(b.worst, s.best.worst), cmp.Compare(b.sum, s.best.sum)) > 0 {
			continue // distances only grow
		}
		s.exact(b, i+1)
	}
}

// greedy grows a set from each of the first devices, adding the nearest device each time.
func (s *search) greedy() {
	for _, seed := range s.fit[:min(len(s.fit), greedySeeds)] {
		s.keep(s.grow(seed))
	}
}

func (s *search) grow(seed int) set {
	a := s.with(set{slots: make([]int, 0, s.n)}, seed)
	worst, sum := make([]int, len(s.p.slots)), make([]int, len(s.p.slots)) // the distances to the set, by slot
	in := make([]bool, len(s.p.slots))
	in[seed] = true
	last := seed
	for len(a.slots) < s.n {
		next := -1
		for _, i := range s.fit {
			if in[i] {
				continue
			}
			d := s.p.distances[last][i]
			worst[i] = max(worst[i], d)
			sum[i] += d
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
