package placing

// FGD, fragmentation gradient descent: the machine and the device where the fragmentation grows the least, in steps of a
// hundredth of a sigmoid.

import (
	"math"
	"slices"
)

// fgd remembers the score of each machine for each kind of request, until something is placed on the machine.
type fgd struct {
	c      *cluster
	target *target
	now    []float64 // the fragmentation of each machine
	at     []int     // the version of the machine for which now was computed
	kinds  map[gpuKind][]scored
	last   []scored // of the last request
	after  []int
}

// gpuKind is what a score depends on.
type gpuKind struct{ cpu, gpus, milli int }

// scored is a score, and for a share its device.
type scored struct {
	version int // of the machine, plus one; 0: none yet
	score   int16
	device  int16
}

func newFGD(c *cluster, t *target) *fgd {
	f := &fgd{c: c, target: t, now: make([]float64, len(c.machines)), at: make([]int, len(c.machines)), kinds: map[gpuKind][]scored{}}
	for i := range f.at {
		f.at[i] = -1
	}
	return f
}

// scoresOf appends the scores of these machines.
func (f *fgd) scoresOf(r *request, machines, scores []int) []int {
	k := gpuKind{r.cpu, r.gpus, r.milli}
	all := f.kinds[k]
	if all == nil {
		all = make([]scored, len(f.c.machines))
		f.kinds[k] = all
	}
	f.last = all
	for _, i := range machines {
		m := &f.c.machines[i]
		if all[i].version != m.version+1 {
			all[i] = f.score(i, m, r)
		}
		scores = append(scores, int(all[i].score))
	}
	return scores
}

// device returns the device that a share gets at the machine.
func (f *fgd) device(machine int) int { return int(f.last[machine].device) }

// score computes the score of one machine.
func (f *fgd) score(i int, m *machine, r *request) scored {
	if f.at[i] != m.version {
		f.now[i], f.at[i] = f.target.fragment(m.model, m.cpu, m.left), m.version
	}
	s := scored{version: m.version + 1, score: -1}
	f.after = append(f.after[:0], m.left...)
	if !r.share() {
		n := r.gpus
		for d, left := range f.after {
			if n > 0 && left >= r.milli {
				f.after[d] -= r.milli
				n--
			}
		}
		s.score = gradient(f.now[i] - f.target.fragment(m.model, m.cpu-r.cpu, f.after))
		return s
	}
	for d, left := range m.left {
		if left < r.milli || slices.Contains(m.left[:d], left) {
			continue // too little is left, or as much as on an earlier device, which scores the same
		}
		f.after[d] -= r.milli
		if x := gradient(f.now[i] - f.target.fragment(m.model, m.cpu-r.cpu, f.after)); x > s.score {
			s.score, s.device = x, int16(d)
		}
		f.after[d] = left
	}
	return s
}

// gradient returns the score of a placement that lowers the fragmentation by this much.
func gradient(by float64) int16 { return int16(100 / (1 + math.Exp(-by/1000))) }
