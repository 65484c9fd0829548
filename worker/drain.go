package worker

// Drain: nothing new is taken; what runs goes on, to the deadline if there is
// one, and then somewhere else.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// drain begins, changes or ends a drain. Its end also gives the host and all
// its devices another chance: a person has looked at them.
func (c *Core) drain(now Moment, d Drain) {
	c.draining = d
	c.draining.Reason = lease.Clip(d.Reason)
	c.look, c.changed = true, true
	c.armDrain(now)
	if d.On {
		return
	}
	c.forgive(&c.breaker)
	c.mend()
	for _, dev := range c.devices {
		c.deviceRestored(dev.UUID)
	}
}

// armDrain sees to it that the deadline is kept. A person gave it by the wall
// clock; from when it is heard, at first and once after a restart, the boot-time
// clock counts.
func (c *Core) armDrain(now Moment) {
	c.timers.stop(c.deadline)
	c.deadline = nil
	if !c.draining.On || c.draining.Deadline.IsZero() {
		return
	}
	left := min(max(0, c.draining.Deadline.Sub(now.Wall)), maxDrain)
	c.deadline = c.timers.set(now.Boot.Add(left), func(now Moment) {
		c.evict(now, "node drained: "+cmp.Or(c.draining.Reason, "its deadline has passed"))
	})
}

// evict ends all that runs; its owners may run it elsewhere.
func (c *Core) evict(now Moment, why string) {
	for _, a := range c.byName() {
		if a.rec.Phase == lease.PhaseStarted {
			c.preempt(now, a, why)
		}
	}
}

// preempt ends an attempt for no fault of its own. One that was told to end
// before is what it was told to be.
func (c *Core) preempt(now Moment, a *attempt, why string) {
	a.rec.Preempted = a.rec.Preempted || a.rec.Reason == ""
	c.end(now, a, a.rec.Spec.GraceOr(), why)
}

// endMeant is the state of an attempt that was told to end.
func endMeant(rec *lease.Record) job.State {
	if rec.Preempted {
		return job.Preempted
	}
	return job.Cancelled
}

// String is why a draining host takes nothing, for people.
func (d Drain) String() string {
	text := cmp.Or(d.Reason, "no reason given")
	if !d.Deadline.IsZero() {
		text += fmt.Sprintf("; what still runs at %s is ended and run elsewhere", d.Deadline.UTC().Format(time.RFC3339))
	}
	return lease.Clip(text)
}
