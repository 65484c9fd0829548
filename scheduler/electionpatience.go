package scheduler

// How long hosts must stay elected before the other hosts are told. It is longer if elections have changed often
// lately.
// See docs/adr, ADR 168.

import (
	"time"

	"github.com/musterhq/muster/scheduler/step"
)

const (
	// electionPatience is how long hosts must stay elected before the others are told, once an election has changed. It
	// doubles with each further change, up to electionPatienceMost. After electionCalm without a change, the wait is zero
	// again.
	electionPatience     = 5 * time.Second
	electionPatienceMost = 30 * time.Second
	electionCalm         = 2 * time.Minute
)

// flapping counts how often an election has changed lately. The more often it has, the longer the hosts that are not
// elected keep something.
type flapping struct {
	from    time.Time   // since when the present hosts are elected
	flips   int         // how often hosts were told to keep something again
	flipped time.Time   // when that happened last
	timer   *step.Timer // tells the other hosts that they need not keep anything
}

// patience returns how long the same hosts must stay elected before the others are told.
func (c *flapping) patience(now time.Time) time.Duration {
	if now.Sub(c.flipped) > electionCalm {
		c.flips = 0
	}
	if c.flips == 0 {
		return 0
	}
	return min(electionPatience<<min(c.flips-1, 8), electionPatienceMost)
}
