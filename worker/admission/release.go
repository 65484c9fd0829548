package admission

// When tasks release what they hold.

import (
	"math"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Never is later than any other time.
const Never = leaseclock.BootTime(math.MaxInt64)

// lastsUntil returns until when a task holds what it gets at a time; never if it has no limit.
func lastsUntil(at leaseclock.BootTime, limit time.Duration) leaseclock.BootTime {
	if limit <= 0 {
		return Never
	}
	return at.Add(StartWithin + limit)
}

// Release is what an attempt gives back, and when at the latest; never: that is not known.
type Release struct {
	At      leaseclock.BootTime
	Attempt job.Attempt
	Need    job.Resources
	Devices []string
}
