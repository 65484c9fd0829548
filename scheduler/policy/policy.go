// Package policy chooses among the hosts where a task fits. The scheduler finds those hosts. A policy only says which
// of them it prefers, which devices the task gets there, and why.
//
// To add a policy, write a type with the one method of Policy, and add it to Named. A policy that rates each host by
// itself needs no more than a function that returns a score: see rated. See docs/policies.md.
package policy

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// Policy chooses hosts. The same arguments give the same choices, so a decision can be replayed.
type Policy interface {
	// Choose appends to chosen the n candidates that it prefers, best first, or all if there are fewer. The need fits
	// at each candidate. Choose keeps nothing that it was given.
	Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice
}

// Nearer is a Policy that goes by the cost of the path to a host. If more hosts have room than a policy is shown, a
// Nearer is shown the nearest ones, and any other policy random ones.
type Nearer interface {
	Policy
	Nearer()
}

// Ask is what is to be placed.
type Ask struct {
	Need    job.Resources // its GPUModel is as contract.ModelName returns it
	Gang    bool          // the choices are for the members of one gang; otherwise they are alternatives for one task
	Typical *Typical      // what users usually ask for; nil if that is not known
}

// Candidate is a host where the need fits, as far as the scheduler knows. A policy may look at all of it, and changes
// nothing.
type Candidate struct {
	Host    *fleet.Host
	Local   bool        // the host of the scheduler itself
	Room    *fleet.Room // says the same as the next three in less memory, which makes a choice of many hosts faster
	Profile *contract.Profile
	Free    *contract.Free // without what other tasks were offered or queue for
	Devices *fleet.Devices // says which of the free devices meet a need
}

// CandidateOf describes the host to a policy.
func CandidateOf(h *fleet.Host, free *contract.Free) Candidate {
	room := fleet.RoomOf(&h.Profile, &h.Devices, free)
	return Candidate{Host: h, Local: h.Local, Room: &room, Profile: &h.Profile, Free: free, Devices: &h.Devices}
}

// Choice is one of the candidates that a policy chose.
type Choice struct {
	Index   int      // of the candidate
	Devices []string // UUIDs of the devices that the task gets there
	Why     string   // for people, from what was free when the choice was made

	score float64
}

// rated appends the n candidates with the highest score to chosen; score gets the index of a candidate. The reason of
// each choice is the claim, and what the task leaves there. The task gets the devices that fleet.Devices.Fit chooses.
func rated(chosen []Choice, ask Ask, feasible []Candidate, n int, claim string, score func(int) float64) []Choice {
	begin := len(chosen)
	chosen = best(chosen, feasible, n, score)
	for i := begin; i < len(chosen); i++ {
		c := &feasible[chosen[i].Index]
		chosen[i].Devices, _ = c.Devices.Fit(ask.Need, c.Free)
		chosen[i].Why = leaves(claim, ask.Need, c)
	}
	return chosen
}

// best appends the n candidates with the highest score to chosen; one whose score is not a number comes last. Of equal
// ones the first by name and peer id wins.
func best(chosen []Choice, feasible []Candidate, n int, score func(int) float64) []Choice {
	begin := len(chosen)
	for i := range feasible {
		x := Choice{Index: i, score: score(i)}
		if math.IsNaN(x.score) {
			x.score = math.Inf(-1)
		}
		if len(chosen)-begin == n && n > 0 && x.score < chosen[len(chosen)-1].score {
			continue
		}
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
	if a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	return byName(&feasible[a.Index], &feasible[b.Index])
}

func byName(a, b *Candidate) int {
	return cmp.Or(cmp.Compare(a.Host.Name(), b.Host.Name()), cmp.Compare(a.Host.Peer, b.Host.Peer))
}

// leaves returns a reason for people: the claim, and what the task leaves of the host. It allocates memory once. An
// example: "least waste: leaves 3.5 of 8 GPUs".
func leaves(claim string, need job.Resources, c *Candidate) string {
	text := append(make([]byte, 0, 128), claim...)
	text = append(text, ": leaves "...)
	if gpu.Count(need) == 0 {
		text = strconv.AppendInt(text, int64(c.Free.CPUs-need.CPUs), 10)
		text = append(text, " of "...)
		text = strconv.AppendInt(text, int64(c.Profile.CPUs), 10)
		return string(append(text, " CPUs"...))
	}
	text = strconv.AppendFloat(text, float64(c.Room.Milli-milliOf(need))/gpu.Whole, 'f', -1, 64)
	text = append(text, " of "...)
	text = strconv.AppendInt(text, int64(len(c.Profile.GPUs)), 10)
	return string(append(text, " GPUs"...))
}

// milliOf returns how many thousandths of devices the need takes in all.
func milliOf(need job.Resources) int { return gpu.Count(need) * gpu.Milli(need) }

// ratio returns the part of the whole, from 0 to 1. A host that claims to have more free than it has at all gains
// nothing by this.
func ratio[N int | job.Size](part, whole N) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(min(max(part, 0), whole)) / float64(whole)
}
