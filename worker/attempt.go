package worker

// Attempts: how an owner starts one, asks about it and ends it.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// attempt is what a worker knows about one try at one task.
type attempt struct {
	rec      lease.Record
	group    *group
	offer    *offer       // whose reservation it is or was; nil after a restart
	dirty    bool         // rec is newer than on disk
	saved    bool         // some rec is, or may be, on disk
	lapses   bool         // the reservation has been told, and ends in time
	lapse    *timer       // that ends it
	asked    *lease.Start // the Start that waits for the host's policy
	launched bool         // the driver has been asked to start it
	began    BootTime     // when its start was asked for, then when it began; 0 after a restart
	told     uint64       // number of the newest event that was sent in this session
	deadline BootTime
	stop     *stopping
	detail   string          // what it waits for before it starts, for people
	waits    map[string]bool // devices whose memory is not back
}

// stopping says that an attempt is to end, and why.
type stopping struct {
	grace  time.Duration
	reason string
	retry  *timer // of a Stop that the driver did not take
}

// tombstone writes down that an attempt was never started here and never will
// be; the owner is told once that is on disk (R6).
func (c *Core) tombstone(g *group, id job.Attempt, why string) {
	a := c.attempts[id]
	if a == nil {
		if len(c.attempts) >= 2*MaxRecords {
			c.say(slog.LevelWarn, "no room to refuse an attempt", slog.String("attempt", id.String()))
			return
		}
		a = &attempt{group: g, rec: lease.Record{Attempt: id, Group: g.id, Epoch: g.epoch, Owner: g.owner, Boot: c.cfg.Boot}}
		c.attempts[id] = a
	}
	if o := c.lapsed[id]; o != nil {
		c.forgetLapsed(o)
	}
	c.refuse(a, why)
}

// refuse makes a tombstone of what has not begun.
func (c *Core) refuse(a *attempt, why string) {
	if a.rec.Phase == lease.PhaseReserved || a.rec.Phase == lease.PhaseStarted {
		c.give(a)
		if a.offer != nil {
			delete(c.offers, a.offer.key)
		}
	}
	delete(a.group.running, a.rec.Attempt)
	a.asked = nil
	a.rec.Phase, a.rec.Reason, a.rec.EventN = lease.PhaseRefused, lease.Clip(why), 1
	a.rec.Devices, a.rec.Milli, a.rec.Spec, a.rec.Need = nil, 0, job.Spec{}, job.Resources{}
	a.group.kept[a.rec.Attempt] = a
	c.seek(a.group)
	c.put(a)
	c.say(slog.LevelInfo, "attempt refused", slog.String("attempt", a.rec.Attempt.String()), slog.String("reason", why))
}

// query answers what became of an attempt. That one was never started can only
// be said by the store that it was given to (R6).
func (c *Core) query(now Moment, from job.Peer, m lease.Query) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	a := c.attempts[m.Attempt]
	switch {
	case a != nil && a.rec.Phase != lease.PhaseReserved:
		c.retell(a)
	case m.Store != c.cfg.Profile.Store:
		c.say(slog.LevelWarn, "asked about an attempt of another store", slog.String("attempt", m.Attempt.String()), slog.String("store", m.Store))
	case a != nil && a.asked != nil: // the host's policy answers for it in a moment
	default:
		c.tombstone(g, m.Attempt, "never started")
	}
}

func (c *Core) signal(now Moment, from job.Peer, m lease.Signal) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	a := c.attempts[m.Attempt]
	if !ok || a == nil || a.rec.Phase != lease.PhaseStarted || a.rec.Exit != nil {
		return
	}
	s := SignalTo{Attempt: m.Attempt, Number: m.Number}
	switch {
	case a.launched && !g.unsaved:
		c.out.Signal = append(c.out.Signal, s)
	case len(c.gated.Signal) < maxSignals:
		c.gated.Signal = append(c.gated.Signal, s)
	}
}

// cancel ends an attempt. About one that is unknown nothing is said: that it
// never started takes a Query and its store id to prove.
func (c *Core) cancel(now Moment, from job.Peer, m lease.Cancel) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	a := c.attempts[m.Attempt]
	if !ok || a == nil {
		return
	}
	switch a.rec.Phase {
	case lease.PhaseReserved:
		c.tombstone(g, m.Attempt, "cancelled before it was started")
	case lease.PhaseStarted:
		c.end(now, a, m.Grace, m.Reason)
	case lease.PhaseDone, lease.PhaseRefused:
		c.retell(a)
	}
}

// end asks the driver to end an attempt. Ending is always safe, so it waits for
// nothing to be on disk.
func (c *Core) end(now Moment, a *attempt, grace time.Duration, reason string) {
	if a.rec.Exit != nil {
		return
	}
	reason = lease.Clip(cmp.Or(reason, "cancelled"))
	if !a.launched {
		c.finish(now, a, job.Exit{State: endMeant(&a.rec), Reason: reason})
		return
	}
	if a.stop == nil {
		a.stop = &stopping{grace: grace, reason: reason}
		a.rec.Reason = reason
		c.put(a)
	}
	a.stop.grace = min(a.stop.grace, grace)
	c.out.Stop = append(c.out.Stop, Stop{Attempt: a.rec.Attempt, Grace: grace, Reason: a.stop.reason})
}

// stopFailed tries again a moment later.
func (c *Core) stopFailed(now Moment, id job.Attempt) {
	a := c.attempts[id]
	if a == nil || a.stop == nil {
		return
	}
	c.timers.stop(a.stop.retry)
	a.stop.retry = c.timers.set(now.Boot.Add(retryStop), func(Moment) {
		if c.attempts[id] == a && a.rec.Phase == lease.PhaseStarted && a.rec.Exit == nil {
			c.out.Stop = append(c.out.Stop, Stop{Attempt: id, Grace: a.stop.grace, Reason: a.stop.reason})
		}
	})
}

// ack drops an attempt whose end is known to its owner. It erases a result, so
// only the owner's word counts. An older daemon names neither group nor epoch.
func (c *Core) ack(from job.Peer, m lease.Ack) {
	a := c.attempts[m.Attempt]
	if a == nil {
		return
	}
	switch g := a.group; {
	case m.Group != 0 && m.Group != g.id:
		return
	case m.Group != 0 && m.Epoch.Less(g.epoch):
		c.send(from, lease.Stale{Group: g.id, Epoch: g.epoch, Owner: g.owner})
		return
	case from != g.owner:
		c.say(slog.LevelWarn, "acknowledged by another than the owner", slog.String("attempt", m.Attempt.String()), slog.String("peer", string(from)))
		return
	}
	a.rec.AckedN = max(a.rec.AckedN, min(m.N, a.told))
	if (a.rec.Phase == lease.PhaseDone || a.rec.Phase == lease.PhaseRefused) && a.rec.AckedN >= a.rec.EventN {
		c.drop(a)
		if a.launched {
			c.out.Forget = append(c.out.Forget, m.Attempt)
		}
	}
}

// launch asks the driver for the process; the record of the attempt is on disk.
func (c *Core) launch(now Moment, a *attempt) {
	if a.launched || a.rec.Exit != nil {
		return
	}
	a.launched, a.began = true, now.Boot
	c.out.Start = append(c.out.Start, Task{
		Attempt: a.rec.Attempt, Spec: a.rec.Spec, User: a.rec.User, Devices: a.rec.Devices, Simulated: c.simulated(a.rec.Devices),
		Env: c.environment(a.rec), Hostfile: hostfile(c.cfg, a.rec),
		Deadline: a.deadline, Hold: a.rec.Hold,
		TimeLimit: a.rec.Spec.TimeLimit.D(), Grace: a.rec.Spec.GraceOr(), Warning: a.rec.Spec.Warning(),
	})
	c.say(slog.LevelDebug, "attempt starts",
		slog.String("attempt", a.rec.Attempt.String()), slog.String("user", a.rec.User), slog.Any("devices", a.rec.Devices))
}

// simulated says whether any of the devices has no hardware behind it.
func (c *Core) simulated(uuids []string) bool {
	return slices.ContainsFunc(c.cfg.Profile.GPUs, func(d gpu.Device) bool { return d.Simulated && slices.Contains(uuids, d.UUID) })
}

func hostfile(cfg Config, rec lease.Record) string {
	return fmt.Sprintf("%s slots=%d\n", cfg.IP, max(1, gpu.Count(rec.Need)))
}
