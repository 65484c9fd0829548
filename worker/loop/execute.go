package loop

// Carrying out the effects of a turn.

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// executor carries out effects.
type executor struct {
	parts Parts
	log   *slog.Logger
	disk  disk
	keep  *health.Quarantine // the quarantine that is not on disk yet; nil: none
	next  []worker.Event     // results of the effects, for the next turn
}

// carryOut carries out the effects of a turn. The results are events for the next turn.
func (x *executor) carryOut(ctx context.Context, e worker.Effects) {
	x.writeLog(ctx, e.Log)
	x.callDriver(e)
	x.keepQuarantine(e.Keep)
	x.keepUsage(e.KeepUsage)
	x.send(e)
	x.admit(e.Admit)
	x.search(e.Ports)
	if len(e.LookUp) > 0 && x.parts.LookUp != nil {
		x.parts.LookUp(e.LookUp)
	}
}

// search looks for ports.
func (x *executor) search(ports []step.PortSearch) {
	for _, s := range ports {
		found := worker.PortFound{Attempt: s.Attempt}
		for _, port := range s.Try {
			if x.parts.PortFree == nil || x.parts.PortFree(port) {
				found.Port = port
				break
			}
		}
		x.next = append(x.next, found)
	}
}

// writeLog writes the lines to the log.
func (x *executor) writeLog(ctx context.Context, lines []step.Line) {
	for _, s := range lines {
		x.log.LogAttrs(ctx, s.Level, s.Msg, s.Attrs...) //nolint:sloglint // the core fixes the message
	}
}

// admit asks the host's policy.
func (x *executor) admit(asked []step.Admission) {
	for _, a := range asked {
		answer := worker.Admitted{Attempt: a.Attempt}
		if x.parts.Admit != nil {
			if err := x.parts.Admit(a.User, a.Spec); err != nil {
				answer.Refused = cmp.Or(contract.Clip(err.Error()), "no reason given")
			}
		}
		x.next = append(x.next, answer)
	}
}

// keepQuarantine saves the quarantine. After an error it tries again with the next turn.
func (x *executor) keepQuarantine(now *health.Quarantine) {
	if now != nil {
		x.keep = now
	}
	if x.keep == nil || x.parts.Keep == nil {
		return
	}
	q := *x.keep
	err := x.disk.write(func() error { return x.parts.Keep(q) })
	switch {
	case err == nil:
		x.keep = nil
	case now != nil:
		x.log.Error("quarantine cannot be written: a restart would lose it", "error", err)
	}
}

// keepUsage saves the usage. After an error the next one is saved a minute later.
func (x *executor) keepUsage(now *resources.Usage) {
	if now == nil || x.parts.KeepUsage == nil {
		return
	}
	if err := x.disk.write(func() error { return x.parts.KeepUsage(*now) }); err != nil {
		x.log.Warn("usage of users cannot be written", "error", err)
	}
}

// callDriver carries out the effects for the driver.
func (x *executor) callDriver(e worker.Effects) {
	for _, t := range e.Start {
		if err := x.parts.Driver.Start(t); err != nil {
			x.log.Error("task cannot be started", "attempt", t.Attempt.String(), "error", err)
			x.next = append(x.next, driver.Event{Attempt: t.Attempt, Kind: driver.Failed, Exit: job.Exit{
				State: job.NodeFail, Code: job.ExitMuster, Reason: contract.Clip(err.Error()),
			}})
		}
	}
	for _, s := range e.Stop {
		if err := x.parts.Driver.Stop(s.Attempt, s.Grace, s.Reason); err != nil {
			x.log.Warn("task cannot be stopped now", "attempt", s.Attempt.String(), "error", err)
			x.next = append(x.next, worker.StopFailed{Attempt: s.Attempt})
		}
	}
	for _, s := range e.Signal {
		if err := x.parts.Driver.Signal(s.Attempt, s.Number); err != nil {
			x.log.Warn("task cannot be signalled", "attempt", s.Attempt.String(), "signal", s.Number, "error", err)
		}
	}
	if len(e.Extend) > 0 {
		if err := x.parts.Driver.Extend(e.Extend); err != nil {
			x.log.Warn("leases cannot be extended now", "attempts", len(e.Extend), "error", err)
		}
	}
	for _, a := range e.Forget {
		if err := x.parts.Driver.Forget(a); err != nil {
			x.log.Warn("attempt cannot be forgotten", "attempt", a.String(), "error", err)
		}
	}
}

func (x *executor) send(e worker.Effects) {
	for _, p := range e.Want {
		x.parts.Sender.Want(p)
	}
	for _, p := range e.Unwant {
		x.parts.Sender.Unwant(p)
	}
	for _, m := range e.Send {
		if err := x.parts.Sender.Send(m.To, m.Msg); err != nil {
			x.log.Debug("message not sent", "peer", string(m.To), "error", err)
		}
	}
	if e.Poll && x.parts.Poll != nil {
		x.parts.Poll()
	}
	if e.Drained != nil && x.parts.Drained != nil {
		x.parts.Drained(*e.Drained)
	}
}
