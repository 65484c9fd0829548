package fleet

// Distance: what the path to a host costs.
// See docs/adr, ADR 109.

import (
	"math"
	"math/bits"
	"time"
)

// Distance is the cost of the path from this daemon's host to another one: the round trip of a message, in steps of the
// square root of two, because measurements vary. The zero value says that the cost is not known. It never counts as a
// short path: see Rank.
type Distance uint8

// DistanceOf returns the distance of a round trip. It is unknown if the round trip is not positive.
func DistanceOf(roundTrip time.Duration) Distance {
	if roundTrip <= 0 {
		return 0
	}
	n := bits.Len64(uint64(roundTrip))
	d := Distance(2 * n)
	if float64(roundTrip) >= math.Ldexp(math.Sqrt2, n-1) {
		d++
	}
	return d
}

// Known says whether the cost of the path is known.
func (d Distance) Known() bool { return d != 0 }

// String is for people: an upper bound of the round trip.
func (d Distance) String() string {
	if !d.Known() {
		return "unknown"
	}
	most := math.Exp2(float64(d-1) / 2)
	unit := math.Pow10(max(0, int(math.Log10(most))-1))
	return time.Duration(math.Ceil(most/unit) * unit).String()
}

// unknownRank is the rank of a distance that is not known.
const unknownRank = math.MaxUint8

// Rank orders distances: one that is not known comes after all others. It is never 0.
func (d Distance) Rank() int {
	if !d.Known() {
		return unknownRank
	}
	return int(d)
}
