package scheduler

// What hosts report of attempts, and when their reports are acknowledged.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// reports handles the events of attempts.
type reports struct {
	*step.Turn
	entries    *entries
	hosts      *hosts
	attempts   *attempts
	dispatches *dispatches

	acks map[job.Attempt]ack // events that are acknowledged once their record is applied
}

// ack is an event that is not acknowledged yet. The host keeps it until then.
type ack struct {
	peer  job.Peer
	n     uint64
	timer *step.Timer // proposes the record again
}

// acknowledge acknowledges the events of an attempt after their record was applied.
func (rs *reports) acknowledge(a job.Attempt) {
	k, there := rs.acks[a]
	if !there {
		return
	}
	rs.Stop(k.timer)
	delete(rs.acks, a)
	if w := rs.hosts.workers[k.peer]; w != nil && w.Up {
		rs.Send(k.peer, contract.Ack{Attempt: a, Group: rs.Config.Group, Epoch: rs.Epoch, N: k.n})
	}
}

func (rs *reports) ackNow(w *worker, m contract.Event) {
	rs.Send(w.Peer, contract.Ack{Attempt: m.Attempt, Group: rs.Config.Group, Epoch: rs.Epoch, N: m.N})
}

func (rs *reports) current(w *worker, t *task, m contract.Event) {
	switch {
	case m.Refused != "":
		rs.dispatches.takeBack(t)
		rs.owe(w, m)
		rs.attempts.giveUp(t, job.ProofNeverStarted, m.Refused)
	case m.State.Ended():
		rs.result(w, t, m)
	default:
		rs.progress(w, t, m)
	}
}

// progress handles an event that is not the end. It is acknowledged at once, because no record depends on it.
func (rs *reports) progress(w *worker, t *task, m contract.Event) {
	rs.ackNow(w, m)
	if m.State != job.Starting && m.State != job.Running && m.State != job.Completing {
		return // not a state that a host reports
	}
	switch {
	case !m.Began.IsZero():
		t.process.since, _ = ByOwnClock(m.Began, time.Time{}, t.e.job.Task(t.index).Placed, rs.Now)
	case m.State == job.Running && t.process.state != job.Running:
		t.process.since = rs.Now // the host has an older version
	}
	if t.e.began.IsZero() || t.process.since.Before(t.e.began) && !t.process.since.IsZero() {
		t.e.began = t.process.since
	}
	if t.Fresh && (m.State == job.Running || !m.Began.IsZero()) {
		t.Fresh = false
		rs.Totals.Started.Add(rs.Now.Sub(t.e.born))
	}
	rs.attempts.saw(t, m.State)
	t.process.detail = m.Detail
	if m.PID != 0 {
		t.process.pid, t.process.isolation = m.PID, m.Isolation
	}
	if len(m.Devices) > 0 {
		t.process.devices = m.Devices
	}
	rs.attempts.alive(t)
}

// result proposes the end of an attempt. The event is acknowledged when the record is applied, also if the record
// changes nothing.
func (rs *reports) result(w *worker, t *task, m contract.Event) {
	if rs.owe(w, m) {
		return
	}
	exit := job.Exit{State: m.State}
	if m.Exit != nil {
		exit = *m.Exit
	}
	exit.State = m.State
	exit.Reason, exit.Tail = contract.Clip(exit.Reason), tail(exit.Tail)
	if t.durable().Attempt == m.Attempt.N {
		exit.Began, exit.Ended = ByOwnClock(exit.Began, exit.Ended, t.e.job.Task(t.index).Placed, rs.Now)
		rs.attempts.saw(t, job.Completing)
		t.setHeard(rs.attempts.sessionOf(t))
		rs.entries.changed(t)
	}
	r := job.ResultRecord{Attempt: m.Attempt, Devices: m.Devices, Exit: exit, At: rs.Now}
	switch {
	case exit.FailedStart():
		rs.attempts.afterFailedStart(t, &r)
	case exit.State == job.NodeFail:
		r.Hold = rs.attempts.holdAfterLoss(t)
	}
	rs.proposeEnd(r)
}

// proposeEnd proposes the end of an attempt again and again, until its event is acknowledged.
func (rs *reports) proposeEnd(r job.ResultRecord) {
	rs.Propose(r)
	k := rs.acks[r.Attempt]
	k.timer = rs.After(reproposeGap, func() {
		if _, waits := rs.acks[r.Attempt]; waits && rs.Lead {
			rs.proposeEnd(r)
		}
	})
	rs.acks[r.Attempt] = k
}

// owe notes that an event is to be acknowledged once its record is applied. It reports whether an event of the same
// attempt was waiting for that already.
func (rs *reports) owe(w *worker, m contract.Event) bool {
	k, under := rs.acks[m.Attempt]
	k.peer, k.n = w.Peer, m.N
	rs.acks[m.Attempt] = k
	return under
}

func tail(s string) string {
	if len(s) > job.TailBytes {
		return s[len(s)-job.TailBytes:]
	}
	return s
}

// lostLead forgets the events that are not acknowledged. The hosts report them again to the new owner.
func (rs *reports) lostLead() {
	for _, k := range rs.acks {
		rs.Stop(k.timer)
	}
	clear(rs.acks)
}

func (rs *reports) event(w *worker, m contract.Event) {
	if m.Group != rs.Config.Group || !rs.Lead {
		return // this daemon asks the hosts when it becomes the owner
	}
	e := rs.entries.byID[m.Attempt.Job]
	switch {
	case e == nil || !e.job.Has(m.Attempt.Task):
		rs.ackNow(w, m) // the job was purged, or never was ours
	case e.current(w, m.Attempt):
		rs.current(w, e.task(m.Attempt.Task), m)
	case m.State == job.Succeeded && m.Exit != nil && state.RanAt(e.job, m.Attempt, w.Peer, w.Profile.Store) &&
		e.job.WouldTakeLate(job.ResultRecord{Attempt: m.Attempt, Exit: *m.Exit}):
		rs.result(w, e.task(m.Attempt.Task), m)
	default:
		rs.ackNow(w, m)
	}
}
