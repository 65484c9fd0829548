package scheduler

// Times that hosts tell by their own clocks, which may be wrong by hours.

import "time"

// byOwnClock moves what lasted from one time to another, or still lasts, by the clock of a host: so that it does not end after
// now and, if there is room for that, does not begin before a task was placed, both by the clock of this daemon. How long
// it lasted stays. A zero time says nothing.
func byOwnClock(from, to, placed, now time.Time) (time.Time, time.Time) {
	last := to
	if last.IsZero() {
		last = from
	}
	if last.IsZero() {
		return from, to
	}
	move := min(0, now.Sub(last))
	if early := placed.Sub(from.Add(move)); !from.IsZero() && !placed.IsZero() && early > 0 {
		move += min(early, now.Sub(last.Add(move)))
	}
	if !from.IsZero() {
		from = from.Add(move)
	}
	if !to.IsZero() {
		to = to.Add(move)
	}
	return from, to
}
