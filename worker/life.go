package worker

// The life of an attempt after its start: what the driver reports, and the
// numbered events that tell it to the owner.

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// states are the states that an attempt has passed through, one per event; the
// number of an event is its place, counted from 1. They follow from the record
// alone, so a restarted worker numbers them the same.
func states(rec *lease.Record) []job.State {
	all := make([]job.State, 1, 4)
	all[0] = job.Starting
	if rec.PID > 0 {
		all = append(all, job.Running)
	}
	if rec.Exit != nil {
		if rec.Exit.Started {
			all = append(all, job.Completing)
		}
		all = append(all, rec.Exit.State)
	}
	return all
}

// tell sends the owner what has not been sent in this session and is on disk.
func (c *Core) tell(a *attempt) {
	g := a.group
	if a.dirty || !g.greeted || a.told >= a.rec.EventN {
		return
	}
	base := lease.Event{Attempt: a.rec.Attempt, Group: a.rec.Group, Devices: a.rec.Devices}
	if a.rec.Phase == lease.PhaseRefused {
		base.N, base.State, base.Refused = 1, job.Cancelled, a.rec.Reason
		a.told = 1
		c.send(g.owner, base)
		return
	}
	all := states(&a.rec)
	for n := a.told + 1; n <= a.rec.EventN && n <= uint64(len(all)); n++ {
		ev := base
		ev.N, ev.State = n, all[n-1]
		if n > 1 {
			ev.PID, ev.Isolation, ev.Began = a.rec.PID, a.rec.Isolation, a.rec.Started
		} else if a.rec.EventN == 1 {
			ev.Detail = a.detail
		}
		if ev.State.Ended() {
			ev.Exit = a.rec.Exit
		}
		a.told = n
		c.send(g.owner, ev)
	}
}

// retell sends the newest event again.
func (c *Core) retell(a *attempt) {
	a.told = min(a.told, a.rec.EventN-1)
	c.tell(a)
}

// driver hears what became of a task.
func (c *Core) driver(now Moment, e DriverEvent) {
	a := c.attempts[e.Attempt]
	if a == nil || a.rec.Phase != lease.PhaseStarted {
		c.stray(a, e)
		return
	}
	switch e.Kind {
	case DriverStarting:
		c.waits(a, e.Detail)
	case DriverStarted:
		if a.rec.PID == 0 && a.rec.Exit == nil && e.PID > 0 {
			a.rec.PID, a.rec.Isolation, a.rec.Started = e.PID, lease.Clip(e.Isolation), e.Began
			if e.Began.IsZero() {
				a.rec.Started = now.Wall
			}
			a.rec.EventN++
			a.began = now.Boot
			c.put(a)
		}
	case DriverExited:
		e.Exit.Started = true
		c.complete(now, a, e.Exit)
	case DriverFailed:
		if a.rec.Exit == nil {
			e.Exit.Started = false
			exit := c.meant(now, a, e.Exit)
			c.judge(now, a, exit)
			c.finish(now, a, exit)
		}
	case DriverLost:
		c.complete(now, a, lost(e.Exit.Reason))
	}
}

// waits tells the owner what keeps an attempt from starting. It is the first
// event again with a sentence in it, which is not kept on disk: the next one has
// a newer.
func (c *Core) waits(a *attempt, detail string) {
	if detail == "" || a.rec.PID > 0 || a.rec.Exit != nil {
		return
	}
	a.detail = lease.Clip(detail)
	if !a.group.greeted || a.told == 0 {
		return // the first event will have it
	}
	c.send(a.group.owner, lease.Event{
		Attempt: a.rec.Attempt, Group: a.rec.Group, N: 1, State: job.Starting, Devices: a.rec.Devices, Detail: a.detail,
	})
}

func lost(reason string) job.Exit {
	if reason == "" {
		reason = "runner died"
	}
	return job.Exit{State: job.NodeFail, Started: true, Reason: reason}
}

// stray hears of a task that should not be there: it is ended, as nobody would
// answer for it.
func (c *Core) stray(a *attempt, e DriverEvent) {
	switch e.Kind {
	case DriverStarting, DriverStarted:
		c.say(slog.LevelWarn, "task runs that the ledger does not hold", slog.String("attempt", e.Attempt.String()))
		c.out.Stop = append(c.out.Stop, Stop{Attempt: e.Attempt, Grace: job.DefaultGrace, Reason: "not in the ledger"})
	case DriverExited, DriverFailed, DriverLost:
		if a == nil {
			c.out.Forget = append(c.out.Forget, e.Attempt)
		}
	}
}

// adopted ends a restart: whatever the ledger calls running and the driver does
// not know has ended, nobody knows how.
func (c *Core) adopted(now Moment, found []DriverEvent) {
	c.restoreAside(now)
	known := make(map[job.Attempt]bool, len(found))
	for _, e := range found {
		known[e.Attempt] = true
		c.driver(now, e)
	}
	for _, a := range c.byName() {
		switch {
		case a.rec.Phase != lease.PhaseStarted:
		case a.rec.Exit != nil:
			c.await(now, a)
		case !known[a.rec.Attempt] && a.rec.Boot != c.cfg.Boot:
			c.complete(now, a, lost("host restarted"))
		case !known[a.rec.Attempt]:
			c.complete(now, a, lost("runner died"))
		}
	}
	c.armDrain(now)
}

// complete hears that the processes of an attempt are gone. Its devices are not
// free before their memory is back.
func (c *Core) complete(now Moment, a *attempt, exit job.Exit) {
	if a.rec.Exit != nil {
		return
	}
	exit = c.meant(now, a, exit)
	c.judge(now, a, exit)
	a.rec.Exit = &exit
	a.rec.EventN++
	c.put(a)
	c.await(now, a)
}

// meant is the end as a user should read it: who was told to end did not fail.
func (c *Core) meant(now Moment, a *attempt, exit job.Exit) job.Exit {
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	wanted := wanted(&a.rec, exit)
	if exit.Ended.IsZero() {
		exit.Ended = now.Wall
	}
	if exit.Began.IsZero() && exit.Started {
		exit.Began = a.rec.Started
	}
	if wanted {
		exit.State = endMeant(&a.rec)
		exit.Reason = a.rec.Reason
	}
	return exit
}

// wanted says whether an attempt ended because it was told to. Its driver knows
// and says Cancelled; no clock is asked, as it may have been set meanwhile. A
// driver that does not know leaves the signal, or no moment of the end.
func wanted(rec *lease.Record, exit job.Exit) bool {
	if rec.Reason == "" || exit.State == job.Cancelled {
		return rec.Reason != ""
	}
	unsaid := exit.Ended.IsZero() || exit.Signal == int(unix.SIGTERM) || exit.Signal == int(unix.SIGKILL)
	return unsaid && (exit.State == job.Failed || exit.State == job.Succeeded)
}

// finish ends an attempt: its resources are free, and its end is told.
func (c *Core) finish(now Moment, a *attempt, exit job.Exit) {
	if a.rec.Exit == nil {
		exit = c.meant(now, a, exit)
		a.rec.Exit = &exit
	}
	a.waits = nil
	delete(c.awaiting, a.rec.Attempt)
	a.rec.EventN = uint64(len(states(&a.rec)))
	a.rec.Phase = lease.PhaseDone
	a.rec.Spec = job.Spec{Name: a.rec.Spec.Name} // the rest is of no use any more, and may be large
	delete(a.group.running, a.rec.Attempt)
	c.give(a)
	c.put(a)
	c.say(slog.LevelDebug, "attempt ended", slog.String("attempt", a.rec.Attempt.String()), slog.String("state", string(a.rec.Exit.State)),
		slog.Int("code", a.rec.Exit.Code), slog.String("reason", a.rec.Exit.Reason))
}
