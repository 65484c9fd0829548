// Package policy chooses among the hosts where a task fits. The scheduler finds those hosts. A policy only says which
// of them it prefers, which devices the task gets there, and why.
//
// To add a policy, write a type with the one method of Policy. A policy that rates each host by itself needs no more
// than a function that returns a score: see best.
package policy

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// Policy chooses hosts. It is pure: the same arguments give the same choices, so a decision can be replayed.
type Policy interface {
	// Choose appends to chosen the n candidates that it prefers, best first, or all if there are fewer. The need fits
	// at each candidate. Choose keeps nothing that it was given.
	Choose(chosen []Choice, need job.Resources, feasible []Candidate, n int) []Choice
}

// Candidate is a host where the need fits, as far as the scheduler knows. A policy may look at all of it, and changes
// nothing.
type Candidate struct {
	Peer    job.Peer
	Name    string
	Local   bool // the host of the scheduler itself
	Profile *lease.Profile
	Free    *lease.Free    // without what other tasks were offered or queue for
	Devices *fleet.Devices // says which of the free devices meet a need
}

// CandidateOf describes the host to a policy.
func CandidateOf(h *fleet.Host, free *lease.Free) Candidate {
	return Candidate{Peer: h.Peer, Name: h.Name(), Local: h.Local, Profile: &h.Profile, Free: free, Devices: &h.Devices}
}

// Choice is one of the candidates that a policy chose.
type Choice struct {
	Index   int      // of the candidate
	Devices []string // UUIDs of the devices that the task gets there
	Why     string   // for people, from what was free when the choice was made

	score float64
}

// best appends the n candidates with the highest score to chosen. Of equal ones the first by name and peer id wins.
func best(chosen []Choice, feasible []Candidate, n int, score func(*Candidate) float64) []Choice {
	begin := len(chosen)
	for i := range feasible {
		x := Choice{Index: i, score: score(&feasible[i])}
		at, _ := slices.BinarySearchFunc(chosen[begin:], x, func(a, b Choice) int { return compare(feasible, &a, &b) })
		if at >= n {
			continue
		}
		if len(chosen)-begin == n {
			chosen = chosen[:len(chosen)-1]
		}
		chosen = slices.Insert(chosen, begin+at, x)
	}
	return chosen
}

func compare(feasible []Candidate, a, b *Choice) int {
	x, y := &feasible[a.Index], &feasible[b.Index]
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Peer, y.Peer))
}
