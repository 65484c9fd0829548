package worker

// Commands of owners about attempts on this host: Query, Signal, Cancel, Ack and the verdicts of a renewal.

import (
	"log/slog"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// commands carries out the commands of owners about attempts, except Start.
type commands struct {
	cfg      *Config
	turn     *step.Turn
	reports  *reports
	leases   *leases
	attempts *attempts
}

// query reports the state of an attempt. Only the store to which an attempt was assigned may answer that it was never
// started (R6).
func (c *commands) query(now leaseclock.Moment, from job.Peer, m contract.Query) {
	g, ok := c.leases.checkEpoch(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	a := c.attempts.by[m.Attempt]
	switch {
	case a != nil && a.rec.Phase != contract.PhaseReserved:
		c.reports.retell(a)
	case m.Store != c.cfg.Profile.Store:
		c.turn.Log(slog.LevelWarn, "asked about an attempt of another store",
			slog.String("peer", string(from)), slog.String("attempt", m.Attempt.String()), slog.String("store", m.Store))
	case a != nil && a.phase == asked: // it starts or is refused soon
	default:
		c.attempts.tombstone(g, m.Attempt, "never started")
	}
}

func (c *commands) signal(now leaseclock.Moment, from job.Peer, m contract.Signal) {
	g, ok := c.leases.checkEpoch(now, from, m.Group, m.Epoch)
	if a := c.attempts.by[m.Attempt]; ok && a != nil && a.runs() {
		c.leases.signal(g, a, m.Number)
	}
}

// cancel ends an attempt. It does not answer for an unknown attempt, because a Cancel does not name the store. Only a
// Query can prove that an attempt was never started.
func (c *commands) cancel(now leaseclock.Moment, from job.Peer, m contract.Cancel) {
	g, ok := c.leases.checkEpoch(now, from, m.Group, m.Epoch)
	a := c.attempts.by[m.Attempt]
	if !ok || a == nil {
		return
	}
	switch a.rec.Phase {
	case contract.PhaseReserved:
		c.attempts.tombstone(g, m.Attempt, "cancelled before it was started")
	case contract.PhaseStarted:
		c.attempts.end(now, a, m.Grace, m.Reason)
	case contract.PhaseDone, contract.PhaseRefused:
		c.reports.retell(a)
	}
}

// ack drops an attempt when its owner has acknowledged the end. This deletes a result, so only the owner may do it. An
// older daemon names neither group nor epoch.
func (c *commands) ack(from job.Peer, m contract.Ack) {
	a := c.attempts.by[m.Attempt]
	if a == nil {
		return
	}
	switch g := a.group; {
	case m.Group != 0 && m.Group != g.id:
		return
	case from != g.owner:
		c.leases.claims.ignore(from, g.id, "the group belongs to "+string(g.owner))
		return
	case m.Group != 0 && m.Epoch.Less(g.epoch):
		c.leases.stale(from, g)
		return
	}
	a.rec.AckedN = max(a.rec.AckedN, min(m.N, a.sentEvent))
	if a.ended() && a.rec.AckedN >= a.rec.EventN {
		c.attempts.drop(a)
		if a.known {
			c.turn.Forget(m.Attempt)
		}
	}
}

// verdicts extends or ends the attempts that were named in a Renew, as the owner has decided.
func (c *commands) verdicts(now leaseclock.Moment, g *group, m contract.Renewed) {
	for _, v := range m.Verdicts {
		a := g.running[v.Attempt]
		switch {
		case a == nil:
		case !v.Keep:
			c.attempts.end(now, a, a.rec.File.Spec().GraceOr(), "not wanted by its owner any more")
		default:
			c.leases.keep(now, g, a, leaseclock.BootTime(m.Clock))
		}
	}
}
