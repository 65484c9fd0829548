package fabric

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bruteForce fills all flows at the same speed, in small exact steps: each up to the next full link.
func bruteForce(paths [][]int32, room []float64) []float64 {
	rates := make([]float64, len(paths))
	fixed := make([]bool, len(paths))
	for i, p := range paths {
		fixed[i] = len(p) == 0
	}
	level := 0.0
	for slices.Contains(fixed, false) {
		next := math.Inf(1)
		limit := make([]float64, len(room)) // the level at which each link is full
		for l := range room {
			used, open := 0.0, 0
			for i, p := range paths {
				for _, x := range p {
					if int(x) != l {
						continue
					}
					if fixed[i] {
						used += rates[i]
					} else {
						open++
					}
				}
			}
			limit[l] = math.Inf(1)
			if open > 0 {
				limit[l] = max(level, (room[l]-used)/float64(open))
			}
			next = min(next, limit[l])
		}
		level = next
		for i, p := range paths {
			if fixed[i] {
				continue
			}
			rates[i] = level
			if slices.ContainsFunc(p, func(l int32) bool { return limit[l] <= level*(1+1e-12) }) {
				fixed[i] = true
			}
		}
	}
	return rates
}

func TestSharesAreMaxMinFair(t *testing.T) {
	s := newSolver(40)
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 7))
		links := 1 + r.IntN(40)
		room := make([]float64, links)
		for l := range room {
			room[l] = float64(r.IntN(20)) // some are dead, many are equal
		}
		var flows []*flow
		var paths [][]int32
		for range r.IntN(60) {
			var p []int32
			for range r.IntN(6) {
				if l := int32(r.IntN(links)); !slices.Contains(p, l) {
					p = append(p, l)
				}
			}
			paths = append(paths, p)
			flows = append(flows, &flow{path: p})
		}
		s.solve(flows, func(l int32) float64 { return room[l] })
		want := bruteForce(paths, room)
		used := make([]float64, links)
		for i, fl := range flows {
			if diff := math.Abs(fl.rate - want[i]); diff > 1e-9*(1+want[i]) {
				t.Fatalf("seed %d: flow %d has %v, want %v", seed, i, fl.rate, want[i])
			}
			for _, l := range fl.path {
				used[l] += fl.rate
			}
		}
		for l := range room {
			if used[l] > room[l]+1e-9 {
				t.Fatalf("seed %d: link %d carries %v of %v, want at most %v", seed, l, used[l], room[l], room[l]+1e-9)
			}
		}
		checkMaxMin(t, seed, flows, room, used)
	}
}

// checkMaxMin checks the definition: each flow has a full link on which no flow has more.
func checkMaxMin(t *testing.T, seed uint64, flows []*flow, room, used []float64) {
	for i, fl := range flows {
		if len(fl.path) == 0 {
			continue
		}
		if !slices.ContainsFunc(fl.path, func(l int32) bool {
			if used[l] < room[l]-1e-9 {
				return false
			}
			return !slices.ContainsFunc(flows, func(o *flow) bool { return slices.Contains(o.path, l) && o.rate > fl.rate+1e-9 })
		}) {
			t.Fatalf("seed %d: flow %d could have more without reducing a flow that has less", seed, i)
		}
	}
}
