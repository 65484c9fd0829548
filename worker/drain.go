package worker

// Drain: the host accepts no new tasks. Running tasks go on. At the deadline, if there is one, they are stopped and run
// elsewhere.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// drainState is the drain of this host.
type drainState struct {
	turn     *step.Turn
	health   *health.Health
	attempts *attempts
	now      Drain
	deadline *step.Timer
	drained  bool // no task holds a GPU, and none gets one before the drain ends
}

// set begins, changes or ends a drain. The end of a drain also resets the health of the host and its devices, because a
// person has checked them.
func (d *drainState) set(now leaseclock.Moment, to Drain) {
	d.now = to
	d.now.Reason = contract.Clip(to.Reason)
	d.turn.Reopen()
	d.arm(now)
	if !to.On {
		d.health.Reset()
	}
}

// settle reports a change of drained.
func (d *drainState) settle() {
	if drained := d.now.On && d.attempts.account.Idle(); drained != d.drained {
		d.drained = drained
		d.turn.Drained(drained)
	}
}

// arm sets the timer for the deadline. A person gave the deadline on the wall clock. It is converted to the lease clock
// when the drain is set, and again after a restart.
func (d *drainState) arm(now leaseclock.Moment) {
	d.turn.Timers.Stop(d.deadline)
	d.deadline = nil
	if !d.now.On || d.now.Deadline.IsZero() {
		return
	}
	left := min(max(0, d.now.Deadline.Sub(now.Wall)), maxDrain)
	d.deadline = d.turn.Timers.Set(now.Boot.Add(left), func(now leaseclock.Moment) {
		d.evict(now, "node drained: "+cmp.Or(d.now.Reason, "its deadline has passed"))
	})
}

// evict preempts all running tasks. Their owners may run them elsewhere.
func (d *drainState) evict(now leaseclock.Moment, why string) {
	for _, a := range inOrder(d.attempts.by) {
		if a.runs() {
			d.attempts.preempt(now, a, why)
		}
	}
}

// String returns why the host drains, for people.
func (d Drain) String() string {
	text := cmp.Or(d.Reason, "no reason given")
	if !d.Deadline.IsZero() {
		text += fmt.Sprintf("; tasks that still run at %s are stopped and run elsewhere", d.Deadline.UTC().Format(time.RFC3339))
	}
	return contract.Clip(text)
}
