package worker

// The order of offers: by priority, turn and use, and then by rank. Gangs keep their rank among themselves.
// See docs/adr, ADR 89 and ADR 90.

import (
	"cmp"
)

// precede orders all offers of this host: by priority, then by turn, then by what their users and projects have used of
// this host, then by rank.
//
// An offer has its turn since it was the first of its priority and had to wait. Whoever has it longest goes first,
// whatever others use. A gang that holds a place has its turn, too: else users who use little would break up each gang of
// one who uses much, and what it has gathered elsewhere would be lost.
//
// Gangs go by rank alone among themselves: what was used differs from host to host, and of two gangs one must go first
// everywhere. So their list and that of single tasks are merged, by a comparison of the first of both. That is the same as
// the comparison with the last gang by use of those up to this one. And a gang has its turn at least as long as those
// after it: else it might wait for a single task, and that one for the place of a gang after it.
func precede(a, b *offer) int {
	switch x, y := a.msg.Gang > 0, b.msg.Gang > 0; {
	case x == y && x:
		return rank(a, b)
	case x:
		return byUse(a.last, b)
	case y:
		return byUse(a, b.last)
	}
	return byUse(a, b)
}

// byUse is precede for two offers that are not both of gangs, or not of gangs that wait for each other.
func byUse(a, b *offer) int {
	if n := cmp.Compare(b.msg.Precedence(), a.msg.Precedence()); n != 0 {
		return n
	}
	return cmp.Or(compareTurns(a.inTurn(), b.inTurn()), a.standing.Compare(b.standing), rank(a, b))
}

// compareTurns orders turns: the first one first, and none, which is 0, last.
func compareTurns(a, b uint64) int { return cmp.Compare(a-1, b-1) }

// inTurn returns the turn by which an offer goes.
func (o *offer) inTurn() uint64 {
	if o.msg.Gang > 0 {
		return o.lead
	}
	return o.turn
}
