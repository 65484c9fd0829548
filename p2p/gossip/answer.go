package gossip

// Whether a worker answers an announcement: enough come, and not all at once.

import (
	"math"
	"math/rand/v2"
	"time"
)

// spread is how far apart the answers to one announcement are at most: a
// scheduler greets some hundred workers in it.
const spread = 500 * time.Millisecond

// Answer says whether a worker that has what is wanted should open a session,
// and after how long. asked is Announcement.Sessions, matching how many
// workers of the cluster have what is wanted, as far as this one knows. All
// that decide alike come to asked and a standard deviation more, so that
// seldom too few do: those that are missing would come 10 s later.
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
