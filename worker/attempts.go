package worker

// Attempts, from the reservation until the owner has acknowledged the end.

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/environment"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// attempts holds the attempts that are reserved, run, or are not acknowledged yet.
type attempts struct {
	cfg      *Config
	turn     *step.Turn
	account  *resources.Account
	health   *health.Health
	ledger   *ledger
	sessions *sessions
	reports  *reports
	queue    *admission.Queue
	ports    *ports
	by       map[job.Attempt]*attempt
	awaiting map[job.Attempt]*attempt // the attempts that wait until the memory of their devices is free again
	refusals refusals
	pace     admission.Pace
	polling  bool // a timer for the next poll is set
}

// reserve creates the attempt of an offer, with the devices that are held for it.
func (s *attempts) reserve(o *admission.Offer, devices []string) *attempt {
	m := &o.Msg
	need := s.account.Capacity.Allot(m.Need, devices)
	a := &attempt{group: s.refusals.claims.of(o), offer: o, rec: contract.Record{
		Attempt: m.Attempt, Group: m.Group, Epoch: m.Epoch, Owner: o.Key.Peer, Phase: contract.PhaseReserved,
		Offer: m.ID, User: m.User, Project: m.Project, Need: need, Devices: devices, Milli: gpu.Milli(need), Boot: s.cfg.Boot,
	}}
	s.by[m.Attempt] = a
	s.ledger.put(a)
	return a
}

// tombstone records that an attempt was not started here and never will be. The owner is told once the record is on disk
// (R6).
func (s *attempts) tombstone(g *group, id job.Attempt, why string) {
	a := s.by[id]
	if a == nil {
		if s.refusals.ended(g) >= maxEnded {
			s.dropOldest(g, s.turn.Now()+1)
		}
		if s.refusals.ended(g) >= maxEnded || len(s.by) >= 2*MaxRecords {
			s.turn.Log(slog.LevelWarn, "refusal of an attempt not recorded: too many attempts", slog.String("peer", string(g.owner)), slog.String("attempt", id.String()))
			return
		}
		a = &attempt{group: g, phase: refused, rec: contract.Record{
			Attempt: id, Group: g.id, Epoch: g.epoch, Owner: g.owner, Phase: contract.PhaseRefused, Boot: s.cfg.Boot,
		}}
		s.by[id] = a
	}
	if o := s.queue.LapsedOf(id); o != nil {
		s.queue.Forget(o)
	}
	s.refuse(a, why)
}

// refuse turns an attempt that has not started into a tombstone.
func (s *attempts) refuse(a *attempt, why string) {
	if a.phase != refused {
		s.account.Release(&a.rec)
		s.ports.release(a)
		s.queue.Forget(a.offer)
		a.move(s.turn, refused)
	}
	delete(a.group.running, a.rec.Attempt)
	a.start = nil
	a.rec.Reason, a.rec.EventN = contract.Clip(why), 1
	a.rec.Devices, a.rec.Milli, a.rec.File, a.rec.Gang, a.rec.Need = nil, 0, nil, nil, job.Resources{}
	a.group.kept[a.rec.Attempt] = a
	s.refusals.add(a, s.turn.Now())
	s.sessions.update(a.group)
	s.ledger.put(a)
	s.turn.Log(slog.LevelInfo, "attempt refused",
		slog.String("peer", string(a.group.owner)), slog.String("attempt", a.rec.Attempt.String()), slog.String("reason", why))
}

// launch asks the driver to start the attempt. The record of the start is on disk.
func (s *attempts) launch(now leaseclock.Moment, a *attempt) {
	a.move(s.turn, launched)
	a.known, a.began = true, now.Boot
	spec := a.rec.File.Spec()
	spec.Resources = a.rec.Need
	s.turn.Start(driver.Task{
		Attempt: a.rec.Attempt, Spec: spec, Number: environment.Number(&a.rec), Index: environment.Index(&a.rec), User: a.rec.User, Devices: a.rec.Devices,
		Env: environment.Of(s.cfg.Inherit, s.cfg.IP, a.rec), Hostfile: environment.Hostfile(s.cfg.IP, &a.rec),
		Deadline: a.deadline, Hold: a.rec.Hold,
		TimeLimit: spec.TimeLimit.D(), Grace: spec.GraceOr(), Warning: spec.Warning(),
	})
	s.turn.Log(slog.LevelDebug, "attempt starts",
		slog.String("attempt", a.rec.Attempt.String()), slog.String("user", a.rec.User), slog.Any("devices", a.rec.Devices))
}

// end asks the driver to stop an attempt that was started. It does not wait for the disk, because stopping a task is
// safe at any time.
func (s *attempts) end(now leaseclock.Moment, a *attempt, grace time.Duration, reason string) {
	if !a.runs() {
		return
	}
	reason = contract.Clip(cmp.Or(reason, "cancelled"))
	if a.phase == starting {
		s.finish(now, a, job.Exit{State: stoppedState(&a.rec), Reason: reason})
		return
	}
	if a.stop == nil {
		a.stop = &stopping{grace: grace, reason: reason}
		a.rec.Reason = reason
		s.setPreemptible(a, job.Spec{}) // it is ending already: schedulers need not ask for its preemption
		s.ledger.put(a)
	}
	a.stop.grace = min(a.stop.grace, grace)
	a.ends(now, a.stop.grace)
	s.turn.Stop(a.rec.Attempt, grace, a.stop.reason)
}

// setPreemptible notes whether the attempt may be preempted now, by the spec of its job.
func (s *attempts) setPreemptible(a *attempt, spec job.Spec) {
	if a.preemptible == spec.Preemptible {
		return
	}
	if a.preemptible {
		s.account.Yield(a.priority, a.level, &a.rec, -1)
		s.turn.Timers.Stop(a.relevel)
		a.preemptible, a.yielding = false, yielding{}
		return
	}
	a.preemptible, a.yielding = true, yielding{priority: spec.Priority}
	if a.offer != nil { // else a restart has lost the offer: the level stays 0, and no task of the same priority ends it
		m := &a.offer.Msg
		a.priority, a.work, a.offered, a.width = m.Priority, m.Work, m.Level, contract.Width(m.Need, m.Gang) // the offer's priority may differ from the job's
	}
	s.account.Yield(a.priority, a.level, &a.rec, 1)
}

// age sets the level of the attempt by how long it has run, and sets a timer for the next change of the level. It does
// nothing if offers are ordered by age.
func (s *attempts) age(now leaseclock.Moment, a *attempt) {
	if !a.preemptible || a.work.By == contract.ByAge {
		return
	}
	s.turn.Timers.Stop(a.relevel)
	level, keeps := a.work.Present(a.offered, a.width, now.Boot.Sub(a.began))
	if level != a.level {
		s.account.Yield(a.priority, a.level, &a.rec, -1)
		a.level = level
		s.account.Yield(a.priority, a.level, &a.rec, 1)
		s.turn.Arbitrate()
	}
	if keeps > 0 {
		a.relevel = s.turn.Timers.Set(now.Boot.Add(keeps), func(now leaseclock.Moment) { s.age(now, a) })
	}
}

// preempt ends an attempt so that it can run elsewhere. It has its grace to end, but at most Config.PreemptGrace. An attempt
// that was told to end before keeps its first reason.
func (s *attempts) preempt(now leaseclock.Moment, a *attempt, why string) {
	a.rec.Preempted = a.rec.Preempted || a.rec.Reason == ""
	s.end(now, a, min(a.rec.File.Spec().GraceOr(), s.cfg.PreemptGrace), why)
}

// stopFailed repeats a Stop that the driver could not take, after retryStop.
func (s *attempts) stopFailed(now leaseclock.Moment, id job.Attempt) {
	a := s.by[id]
	if a == nil || a.stop == nil {
		return
	}
	s.turn.Timers.Stop(a.stop.retry)
	a.stop.retry = s.turn.Timers.Set(now.Boot.Add(retryStop), func(leaseclock.Moment) {
		if s.by[id] == a && a.runs() {
			s.turn.Stop(id, a.stop.grace, a.stop.reason)
		}
	})
}

// reported handles an event of the driver.
func (s *attempts) reported(now leaseclock.Moment, e driver.Event) {
	a := s.by[e.Attempt]
	if a == nil || !a.runs() && a.phase != completing {
		s.stray(a, e)
		return
	}
	switch e.Kind {
	case driver.Starting:
		s.reports.detail(a, e.Detail)
	case driver.Started:
		if a.rec.PID == 0 && a.rec.Exit == nil && e.PID > 0 {
			a.rec.PID, a.rec.Isolation, a.rec.Started = e.PID, contract.Clip(e.Isolation), e.Began
			if e.Began.IsZero() {
				a.rec.Started = now.Wall
			}
			a.rec.EventN++
			a.begun(now)
			s.steady(now, a)
			s.age(now, a)
			s.ledger.put(a)
		}
	case driver.Exited:
		e.Exit.Started = true
		s.complete(now, a, e.Exit)
	case driver.Failed:
		if a.rec.Exit == nil {
			e.Exit.Started = false
			exit := exitOf(now, a, e.Exit)
			s.health.Attribute(now, &a.rec, a.began, exit)
			s.finish(now, a, exit)
		}
	case driver.Lost:
		s.complete(now, a, lost(e.Exit.Reason))
	}
}

// steady tells the breakers that the process of the attempt has begun, and again once it has run for FastFailure.
func (s *attempts) steady(now leaseclock.Moment, a *attempt) {
	if !s.health.Started(now, a.rec.Devices) {
		return
	}
	s.turn.Timers.Set(now.Boot.Add(health.FastFailure), func(leaseclock.Moment) {
		if a.runs() {
			s.health.Held(a.began, a.rec.Devices)
		}
	})
}

// stray handles an event about a task that should not run here. It stops such a task, because no owner would learn of
// its end.
func (s *attempts) stray(a *attempt, e driver.Event) {
	switch e.Kind {
	case driver.Starting, driver.Started:
		s.turn.Log(slog.LevelWarn, "running task is not in the ledger, stopping it", slog.String("attempt", e.Attempt.String()))
		s.turn.Stop(e.Attempt, job.DefaultGrace, "not in the ledger")
	case driver.Exited, driver.Failed, driver.Lost:
		if a == nil {
			s.turn.Forget(e.Attempt)
		}
	}
}

// adopted completes a restart. If an attempt runs according to the ledger but the driver does not know it, it has ended,
// and its exit is lost. Or it never began, because the daemon ended after it had recorded the start and before it started
// the task.
func (s *attempts) adopted(now leaseclock.Moment, e Adopted) {
	for _, a := range s.by {
		a.readopt(now)
	}
	known := make(map[job.Attempt]bool, len(e.Found))
	for _, e := range e.Found {
		known[e.Attempt] = true
		s.reported(now, e)
	}
	for _, a := range inOrder(s.by) {
		switch {
		case a.phase == completing:
			s.await(now, a)
		case a.phase != launched || known[a.rec.Attempt]:
		case a.rec.Boot != s.cfg.Boot:
			s.complete(now, a, lost("host restarted"))
		case a.rec.PID == 0 && slices.Contains(e.NeverBegun, a.rec.Attempt):
			s.finish(now, a, exitOf(now, a, neverStarted()))
		default:
			s.complete(now, a, lost("runner died"))
		}
	}
}

// complete records that an attempt has no process left. Its devices become free once their memory is.
func (s *attempts) complete(now leaseclock.Moment, a *attempt, exit job.Exit) {
	if a.rec.Exit != nil {
		return
	}
	exit = exitOf(now, a, exit)
	if a.began != 0 && exit.Started {
		s.pace.Ended(now.Boot.Sub(a.began))
	}
	s.health.Attribute(now, &a.rec, a.began, exit)
	a.rec.Exit = &exit
	a.rec.EventN++
	a.move(s.turn, completing)
	s.ledger.put(a)
	s.await(now, a)
}

// await finishes a completing attempt as soon as the memory of its devices is free again.
func (s *attempts) await(now leaseclock.Moment, a *attempt) {
	waits := s.health.ToWaitFor(a.rec.Devices)
	if len(waits) == 0 || !a.rec.Exit.Started {
		s.finish(now, a, *a.rec.Exit)
		return
	}
	a.waits = waits
	a.ends(now, backWithin)
	s.awaiting[a.rec.Attempt] = a
	s.poll(now)
	s.turn.Timers.Set(now.Boot.Add(backWithin), func(now leaseclock.Moment) {
		if s.awaiting[a.rec.Attempt] != a {
			return
		}
		for uuid := range a.waits {
			s.health.NotBack(uuid, a.rec.Attempt)
		}
		s.finish(now, a, *a.rec.Exit)
	})
}

// returned finishes attempts whose devices all have their memory free again. back says by UUID whether the memory of a
// device is free.
func (s *attempts) returned(now leaseclock.Moment, back map[string]bool) {
	for _, a := range inOrder(s.awaiting) {
		for uuid := range a.waits {
			if back[uuid] {
				delete(a.waits, uuid)
			}
		}
		if len(a.waits) == 0 {
			s.finish(now, a, *a.rec.Exit)
		}
	}
}

// poll requests a device status now, and again as long as an attempt waits for one.
func (s *attempts) poll(now leaseclock.Moment) {
	s.turn.Poll()
	if s.polling {
		return
	}
	s.polling = true
	s.turn.Timers.Set(now.Boot.Add(pollAgain), func(now leaseclock.Moment) {
		s.polling = false
		if len(s.awaiting) > 0 {
			s.poll(now)
		}
	})
}

// finish ends an attempt: it frees the resources, and reports the end to the owner.
func (s *attempts) finish(now leaseclock.Moment, a *attempt, exit job.Exit) {
	if a.rec.Exit == nil {
		exit = exitOf(now, a, exit)
		a.rec.Exit = &exit
	}
	a.waits = nil
	delete(s.awaiting, a.rec.Attempt)
	a.rec.EventN = uint64(len(states(&a.rec)))
	a.move(s.turn, done)
	a.rec.File, a.rec.Gang = nil, nil // they are not needed any more
	delete(a.group.running, a.rec.Attempt)
	s.setPreemptible(a, job.Spec{})
	s.account.Release(&a.rec)
	s.ports.release(a)
	s.ledger.put(a)
	s.turn.Log(slog.LevelDebug, "attempt ended", slog.String("attempt", a.rec.Attempt.String()), slog.String("state", string(a.rec.Exit.State)),
		slog.Int("code", a.rec.Exit.Code), slog.String("reason", a.rec.Exit.Reason))
}

// holding returns the records of the attempts that hold resources, by name.
func (s *attempts) holding() (out []contract.Record) {
	for _, a := range inOrder(s.by) {
		if !a.ended() {
			out = append(out, a.rec)
		}
	}
	return out
}

// drop removes an attempt, also from the disk.
func (s *attempts) drop(a *attempt) {
	delete(s.by, a.rec.Attempt)
	delete(a.group.running, a.rec.Attempt)
	delete(a.group.kept, a.rec.Attempt)
	if a.phase == refused {
		s.refusals.forget(a)
	}
	s.sessions.update(a.group)
	s.ledger.drop(a)
}

// dropOldest drops the oldest attempt of a group that was refused before a time, and reports whether there was one. That
// is safe: a Start is accepted only for an attempt for which something is reserved.
func (s *attempts) dropOldest(g *group, before leaseclock.BootTime) bool {
	a := s.refusals.oldest(g, before)
	if a != nil {
		s.drop(a)
	}
	return a != nil
}

// begin starts the sweeps of refused attempts.
func (s *attempts) begin(now leaseclock.Moment) {
	s.turn.Timers.Set(now.Boot.Add(refusalKept), s.sweep)
}

// sweep drops the attempts that were refused long ago. Attempts that an earlier run of the daemon refused count as old,
// because the time is not known.
func (s *attempts) sweep(now leaseclock.Moment) {
	groups := s.refusals.claims.groups
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		for s.dropOldest(groups[id], now.Boot.Add(-refusalKept)) {
		}
	}
	s.begin(now)
}

// restore loads one record of the ledger.
func (s *attempts) restore(g *group, rec contract.Record) {
	if rec.Phase == contract.PhaseReserved { // no Start can arrive for it: after a restart all leases are new
		s.ledger.gone[rec.Attempt] = struct{}{}
		return
	}
	a := &attempt{rec: rec, phase: phaseOf(rec), group: g, saved: true, known: true}
	if !a.ended() {
		g.running[rec.Attempt] = a
		s.ports.restore(a)
		if err := s.account.Adopt(rec); err != nil {
			s.turn.Log(slog.LevelError, "devices of a running attempt cannot be held",
				slog.String("attempt", rec.Attempt.String()), slog.Any("error", err))
		}
		if a.runs() {
			s.setPreemptible(a, rec.File.Spec())
		}
	}
	if a.phase == refused {
		s.refusals.add(a, 0)
	}
	g.kept[rec.Attempt] = a
	s.by[rec.Attempt] = a
}

// releases returns what the attempts that hold something give back, and when at the latest.
func (s *attempts) releases(now leaseclock.Moment) []admission.Release {
	out := make([]admission.Release, 0, len(s.by))
	for _, a := range s.by {
		if !a.ended() {
			out = append(out, admission.Release{At: a.freedBy(now), Attempt: a.rec.Attempt, Need: a.rec.Need, Devices: a.rec.Devices})
		}
	}
	return out
}
