package gossip

// Whether and when a worker answers an announcement.

import (
	"math"
	"math/rand/v2"
	"time"
)

// spread is the time over which the answers to one announcement are spread. In this time a scheduler can greet a few
// hundred workers.
const spread = 500 * time.Millisecond

// Answer decides at random whether a worker that has what is wanted should open a session, and after how long. asked
// is Announcement.Sessions. matching is the number of workers in the cluster that have what is wanted, as far as this
// worker knows. On average slightly more workers answer than asked (by one standard deviation), because workers that are
// missing would come only after the next announcement, 10 s later.
func Answer(asked, matching int, r *rand.Rand) (after time.Duration, open bool) {
	if asked < 1 {
		return 0, false
	}
	enough := float64(asked) + math.Sqrt(float64(asked))
	if r.Float64()*float64(max(matching, 1)) >= enough {
		return 0, false
	}
	return time.Duration(r.Int64N(int64(spread))), true
}
