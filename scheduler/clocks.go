package scheduler

// Times that hosts tell by their own clocks, which may be wrong by hours. No time that people see is a difference of two
// clocks. If the owner restarts while a task runs and the host's clock is ahead, the task seems to have begun when the
// owner heard of it again; its end has the true length.

import "time"

// ByOwnClock shifts a span of time that a host has measured by its own clock. The result does not end after now and, if
// its length allows that, does not begin before the task was placed, both by the clock of this daemon. The span keeps
// its length. A zero to means that it has not ended. Zero times are not shifted.
func ByOwnClock(from, to, placed, now time.Time) (time.Time, time.Time) {
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
