// Package policy scores the hosts that a task could go to: the feasible set in,
// a score and a reason out. The scheduler finds out what is feasible; a policy
// only prefers.
package policy

import (
	"cmp"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Host is one feasible host as the scheduler believes it to be.
type Host struct {
	Peer    job.Peer
	Name    string
	Local   bool // the scheduler's own host
	Profile *lease.Profile
	Free    lease.Free // less what is already offered
	// Alike is a device that all of the profile are like, as far as a need can tell; nil if they differ.
	Alike *gpu.Device
}

// Policy prefers one host to another. It is pure: the same request and host get
// the same score, so a decision can be replayed.
type Policy interface {
	// Score rates placing the need on the host; the highest wins.
	Score(need job.Resources, h Host) float64
	// Why says in a few words what the score of the chosen host rests on.
	Why(need job.Resources, h Host) string
}

// Compare orders scored hosts, best first: by score, then by name and peer.
func Compare(a, b Host, scoreA, scoreB float64) int {
	return cmp.Or(cmp.Compare(scoreB, scoreA), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Peer, b.Peer))
}
