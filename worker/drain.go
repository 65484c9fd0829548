package worker

// Drain: nothing new is taken. What runs goes on, to the deadline if there is one, and is run elsewhere then.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/lease"
)

// drainage is the drain of this host.
type drainage struct {
	turn     *turn
	health   *health
	attempts *attempts
	now      Drain
	deadline *timer
}

// set begins, changes or ends a drain. Its end also gives the host and all its devices another chance: a person has
// looked at them.
func (d *drainage) set(now Moment, to Drain) {
	d.now = to
	d.now.Reason = lease.Clip(to.Reason)
	d.turn.reopen()
	d.arm(now)
	if !to.On {
		d.health.restore()
	}
}

// arm sets the timer for the deadline. A person gave it by the wall clock; from when it is heard, at first and once after
// a restart, the lease clock counts.
func (d *drainage) arm(now Moment) {
	d.turn.timers.stop(d.deadline)
	d.deadline = nil
	if !d.now.On || d.now.Deadline.IsZero() {
		return
	}
	left := min(max(0, d.now.Deadline.Sub(now.Wall)), maxDrain)
	d.deadline = d.turn.timers.set(now.Boot.Add(left), func(now Moment) {
		d.evict(now, "node drained: "+cmp.Or(d.now.Reason, "its deadline has passed"))
	})
}

// evict ends all that runs; its owners may run it elsewhere.
func (d *drainage) evict(now Moment, why string) {
	for _, a := range inOrder(d.attempts.by) {
		if a.runs() {
			d.attempts.preempt(now, a, why)
		}
	}
}

// String is why a draining host takes nothing, for people.
func (d Drain) String() string {
	text := cmp.Or(d.Reason, "no reason given")
	if !d.Deadline.IsZero() {
		text += fmt.Sprintf("; what still runs at %s is ended and run elsewhere", d.Deadline.UTC().Format(time.RFC3339))
	}
	return lease.Clip(text)
}
