package placing

// The policies of the paper "Beware of Fragmentation" (USENIX ATC 2023), with the integer arithmetic and the order of
// machines of its published code. A policy scores each machine from 0 to 100, and the highest score wins. Of equal
// scores, the machine with the smallest rank wins.

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/gpu"
)

// The published policies.
const (
	Random        = "Random"
	DotProd       = "DotProd"
	GpuClustering = "GpuClustering"
	GpuPacking    = "GpuPacking"
	BestFit       = "BestFit"
	FGD           = "FGD"
)

// Published returns the names of the published policies.
func Published() []string { return []string{Random, DotProd, GpuClustering, GpuPacking, BestFit, FGD} }

// The largest machine, by which the published code divides.
const (
	largestCPU   = 128_000
	largestMilli = 8 * gpu.Whole
)

// published is one of the published policies.
type published struct {
	c          *cluster
	ranks      []int
	candidates int
	random     *rand.Rand
	score      func(m *machine, r *request) int // nil: a random machine
	stretch    bool                             // the scores of the candidates are stretched from 0 to 100
	fgd        *fgd                             // if the policy is FGD

	fits   []int // where the request fits
	scores []int // there
	chosen []int
	open   []int
}

func newPublished(cfg *Config, c *cluster, workload []*request) (*published, error) {
	p := &published{c: c, ranks: cfg.Ranks, candidates: cfg.Candidates, random: rand.New(rand.NewPCG(uint64(cfg.Seed), 1))}
	if p.ranks == nil {
		p.ranks = make([]int, len(cfg.Machines))
		for rank, i := range byName(cfg.Machines) {
			p.ranks[i] = rank
		}
	}
	if len(p.ranks) != len(c.machines) {
		return nil, fmt.Errorf("%d ranks for %d machines", len(p.ranks), len(c.machines))
	}
	switch cfg.Policy {
	case BestFit:
		p.score, p.stretch = bestFit, true
	case DotProd:
		p.score = dotProd
	case GpuPacking:
		p.score = p.gpuPacking
	case GpuClustering:
		p.score = gpuClustering
	case FGD:
		p.fgd = newFGD(c, targetOf(c, workload))
	}
	return p, nil
}

// choose scores the machines where the request fits.
func (p *published) choose(r *request) (at int, devices []int) {
	p.fits = p.fits[:0]
	for i := range p.c.machines {
		if p.c.machines[i].fits(r) {
			p.fits = append(p.fits, i)
		}
	}
	if len(p.fits) == 0 {
		return -1, nil
	}
	if n := p.candidates; n > 0 && n < len(p.fits) {
		p.random.Shuffle(len(p.fits), func(i, j int) { p.fits[i], p.fits[j] = p.fits[j], p.fits[i] })
		p.fits = p.fits[:n]
	}
	switch {
	case p.fgd != nil:
		at = p.best(p.fgd.scoresOf(r, p.fits, p.scores[:0]))
		return at, p.devices(r, at, p.fgd.device(at))
	case p.score == nil:
		at = p.fits[p.random.IntN(len(p.fits))]
		return at, p.devices(r, at, p.anyDevice(r, at))
	}
	p.scores = p.scores[:0]
	for _, i := range p.fits {
		p.scores = append(p.scores, p.score(&p.c.machines[i], r))
	}
	if p.stretch {
		stretch(p.scores)
	}
	at = p.best(p.scores)
	return at, p.devices(r, at, tightest(&p.c.machines[at], r))
}

func (p *published) placed(*request, int, []int) {}

// best returns the machine with the highest score; of equal ones, that with the smallest rank.
func (p *published) best(scores []int) int {
	p.scores = scores
	best := 0
	for i := range scores {
		if cmp.Or(cmp.Compare(scores[i], scores[best]), cmp.Compare(p.ranks[p.fits[best]], p.ranks[p.fits[i]])) > 0 {
			best = i
		}
	}
	return p.fits[best]
}

// devices returns the devices that the request gets at the machine: device if the request is for a share, otherwise the
// first devices that are wholly free.
func (p *published) devices(r *request, at, device int) []int {
	p.chosen = p.chosen[:0]
	if r.share() {
		return append(p.chosen, device)
	}
	for i, left := range p.c.machines[at].left {
		if len(p.chosen) < r.gpus && left >= r.milli {
			p.chosen = append(p.chosen, i)
		}
	}
	return p.chosen
}

// tightest returns the device with the least left where a share fits.
func tightest(m *machine, r *request) int {
	best := -1
	for i, left := range m.left {
		if left >= r.milli && (best < 0 || left < m.left[best]) {
			best = i
		}
	}
	return best
}

// anyDevice returns a random device where a share fits.
func (p *published) anyDevice(r *request, at int) int {
	if !r.share() {
		return 0
	}
	p.open = p.open[:0]
	for i, left := range p.c.machines[at].left {
		if left >= r.milli {
			p.open = append(p.open, i)
		}
	}
	return p.open[p.random.IntN(len(p.open))]
}

// bestFit prefers the machine with the least left.
func bestFit(m *machine, r *request) int {
	return int(100 * (1 - 0.5*float64(m.cpu-r.cpu)/largestCPU - 0.5*float64(m.idle-r.all())/largestMilli))
}

// stretch spreads the scores over 0 to 100, in whole numbers.
func stretch(scores []int) {
	least, most := slices.Min(scores), slices.Max(scores)
	for i := range scores {
		if most == least {
			scores[i] = 0
		} else {
			scores[i] = (scores[i] - least) * 100 / (most - least)
		}
	}
}

// dotProd prefers the machine with the least dot product of what is left and what is asked for.
func dotProd(m *machine, r *request) int {
	return int(100 * (1 - (float64(m.cpu)/largestCPU*float64(r.cpu)/largestCPU+
		float64(m.idle)/largestMilli*float64(r.all())/largestMilli)/2))
}

// gpuPacking prefers devices in use, then other devices of machines in use, then empty machines with few devices.
func (p *published) gpuPacking(m *machine, r *request) int {
	if r.gpus == 0 {
		return 0
	}
	free := m.count(gpu.Whole)
	if free == len(m.left) {
		return max(33-free, free)
	}
	p.open = p.open[:0]
	for _, left := range m.left {
		if left >= r.milli {
			p.open = append(p.open, left)
		}
	}
	slices.Sort(p.open)
	whole, sum := 0, 0
	for _, left := range p.open[:r.gpus] {
		if left == gpu.Whole {
			whole++
		}
		sum += left * 100 / gpu.Whole
	}
	if whole > 0 {
		return max(50-whole, 33)
	}
	return max(100-sum/10, 50)
}

// gpuClustering prefers machines that have requests of the same kind, and only those.
func gpuClustering(m *machine, r *request) int {
	if r.gpus == 0 {
		return 0
	}
	t := 25 * (largestMilli - m.idle) / largestMilli
	same := r.sort()
	switch {
	case m.kinds == same:
		return 75 + t
	case m.kinds&same != 0:
		return 50 + t
	case m.kinds == 0:
		return 25 + t
	}
	return t
}
