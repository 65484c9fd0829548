package scheduler

// How long an election waits before hosts are told of it, as elections have changed lately.
// See docs/adr, ADR 168.

import "time"

const (
	// electionPatience is for how long hosts that are elected must be so before the others are told, if that has changed once
	// before. It doubles with each further time, up to electionPatienceMost. After electionCalm without a change it is none again.
	electionPatience     = 5 * time.Second
	electionPatienceMost = 30 * time.Second
	electionCalm         = 2 * time.Minute
)

// calm is how often an election has changed lately. The more often, the longer the hosts that are not elected keep something.
type calm struct {
	from    time.Time // since when these hosts are elected
	flips   int       // how often hosts had to keep something again
	flipped time.Time // when they had to last
	timer   *timer    // tells the others that they need not
}

// patience is how long the same hosts must be elected before the others are told.
func (c *calm) patience(now time.Time) time.Duration {
	if now.Sub(c.flipped) > electionCalm {
		c.flips = 0
	}
	if c.flips == 0 {
		return 0
	}
	return min(electionPatience<<min(c.flips-1, 8), electionPatienceMost)
}
