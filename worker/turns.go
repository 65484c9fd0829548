package worker

// Turns: for how long what is free is kept for those who wait, and for how long others may have it.
// See docs/adr, ADR 104.

import "time"

// turns says whether what is free is kept for an offer now that has been blocked since a time without a booking, and when
// that changes. The first turn is for others: most offers find room by then. Each turn in which it is kept is twice
// as long as the one before, and as long as the one before it in which it is shared. So nothing lies idle for more than
// half of the time, and in the end a turn is longer than any task takes that runs here.
func turns(since, now BootTime, first time.Duration) (kept bool, until BootTime) {
	for at, d := since, first; ; d *= 2 {
		if at = at.Add(d); now < at {
			return false, at
		}
		if at = at.Add(d); now < at {
			return true, at
		}
	}
}
