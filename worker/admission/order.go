package admission

// The order of offers: by priority, turn and use, and then by rank. Gangs keep their rank among themselves.
// See docs/adr, ADR 89 and ADR 90.

import (
	"cmp"
)

// precede orders all offers of this host: by priority, then by turn, then by what their users and projects have used of
// this host, then by rank.
//
// An offer gets its turn when it is the first of its priority and has to wait. Of one priority, the offer that has had
// its turn for longest goes first, whatever its user has used. A gang that holds a place has its turn, too. Otherwise
// users who use little would break up every gang of a user who uses much, and the gang would lose the places that it has
// gathered on other hosts.
//
// Gangs go by rank alone among themselves: usage differs from host to host, but of two gangs the same one must go first
// everywhere. So the order is a merge of two lists, that of gangs and that of single tasks: the heads of both are
// compared, and the first of them goes next. To compare one gang with a single task directly, precede uses the last one,
// by use, of that gang and the gangs before it. A gang also has its turn for at least as long as the gangs after it.
// Otherwise it might wait for a single task that waits for the place of a gang after it.
func precede(a, b *Offer) int {
	switch x, y := a.Msg.Gang > 0, b.Msg.Gang > 0; {
	case x == y && x:
		return rank(a, b)
	case x:
		return byUse(a.last, b)
	case y:
		return byUse(a, b.last)
	}
	return byUse(a, b)
}

// byUse orders two offers by priority, turn, use and rank, even if both are of gangs.
func byUse(a, b *Offer) int {
	if n := cmp.Compare(b.Msg.Precedence(), a.Msg.Precedence()); n != 0 {
		return n
	}
	return cmp.Or(compareTurns(a.inTurn(), b.inTurn()), a.standing.Compare(b.standing), rank(a, b))
}

// compareTurns orders turns, the earliest one first. No turn, which is 0, comes last.
func compareTurns(a, b uint64) int { return cmp.Compare(a-1, b-1) }

// inTurn returns the turn by which an offer is ordered.
func (o *Offer) inTurn() uint64 {
	if o.Msg.Gang > 0 {
		return o.lead
	}
	return o.turn
}
