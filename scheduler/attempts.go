package scheduler

// Attempts that are assigned to hosts: when a host is asked about an attempt, and when an attempt is given up.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	reportWait   = 5 * time.Second // for a word on an attempt, before it is asked for again
	reproposeGap = 5 * time.Second // before an Unassign or Result that was not applied is proposed again
)

// attempts watches the attempts that may be running on hosts.
type attempts struct {
	*step.Turn
	entries *entries
	hosts   *hosts
	contact *contact

	renewed renewed
}

// renewed holds when a renewal was last answered (R4), for each host and each of its data directories. A host names its
// directory itself, so its word counts for itself alone.
type renewed map[job.Peer][]answered

type answered struct {
	store string
	at    time.Time
}

func (r renewed) at(p job.Peer, store string) time.Time {
	for _, x := range r[p] {
		if x.store == store {
			return x.at
		}
	}
	return time.Time{}
}

// answer notes that a renewal was answered. For a new directory, it forgets the host's other directories that are not
// in use.
func (r renewed) answer(p job.Peer, store string, now time.Time, inUse func(store string) bool) {
	for i := range r[p] {
		if r[p][i].store == store {
			r[p][i].at = now
			return
		}
	}
	r[p] = append(slices.DeleteFunc(r[p], func(x answered) bool { return !inUse(x.store) }), answered{store, now})
}

// forget forgets the answers that were given before a time.
func (r renewed) forget(before time.Time) {
	for p, all := range r {
		if r[p] = slices.DeleteFunc(all, func(x answered) bool { return !x.at.After(before) }); len(r[p]) == 0 {
			delete(r, p)
		}
	}
}

// reached returns the host of the attempt if there is a session with it and it has the same data directory, else nil.
func (at *attempts) reached(t *task) *worker {
	w := at.hosts.workers[t.durable().Node]
	if w == nil || !w.Up || !t.sameStore(w) {
		return nil
	}
	return w
}

// giveUp gives the attempt up and proposes its Unassign. The attempt is never started or kept again (R7).
func (at *attempts) giveUp(t *task, proof job.Proof, detail string) {
	a := t.attempt()
	switch {
	case t.phase.over():
		return
	case t.phase == unknown && proof == job.ProofDeclined && t.e.job.Gang() > 1:
		at.giveUpGang(t, detail)
		return
	case t.phase == unknown:
		t.move(at.Turn, dropped)
	default:
		t.move(at.Turn, givenUp)
	}
	at.entries.changed(t)
	hold := ""
	switch proof {
	case job.ProofDead, job.ProofExpired, job.ProofOperator:
		hold = at.holdAfterLoss(t)
	case job.ProofDeclined, job.ProofNeverStarted:
	}
	at.repropose(t, a.N, job.UnassignRecord{Attempt: a, Proof: proof, Detail: contract.Clip(detail), At: at.Now, Hold: hold})
}

// giveUpGang gives up the attempts of all members of a gang for which no Start was sent.
func (at *attempts) giveUpGang(lead *task, detail string) {
	gang := lead.e.job.Element(lead.index)
	for i := gang.First; i <= gang.Last; i++ {
		t := lead.e.task(i)
		if t.phase == recorded {
			t.move(at.Turn, unknown)
		}
		if t.phase == unknown {
			t.move(at.Turn, dropped)
		}
		at.entries.changed(t)
	}
	a := lead.attempt()
	at.repropose(lead, a.N, job.UnassignGangRecord{Attempt: a, Proof: job.ProofDeclined, Detail: contract.Clip(detail), At: at.Now})
}

// repropose proposes a record about an attempt again and again, until the attempt is no longer assigned.
func (at *attempts) repropose(t *task, n int, r job.Record) {
	if at.Lead {
		at.Propose(r)
	}
	at.After(reproposeGap, func() {
		if d := t.durable(); d.Assigned && d.Attempt == n && at.entries.byID[t.e.job.ID] == t.e {
			at.repropose(t, n, r)
		}
	})
}

// alive notes that the host has reported the attempt in this session. The host is told if the attempt is to end.
func (at *attempts) alive(t *task) {
	t.setHeard(at.sessionOf(t))
	at.entries.changed(t)
	if t.e.job.Ending(t.index) != job.NotEnding {
		at.cancel(t)
	}
}

// sessionOf is the number of the session with the host of the attempt; 0 if there is none.
func (at *attempts) sessionOf(t *task) uint64 { return at.contact.sessions[t.durable().Node] }

// heard reports whether the host has reported the attempt in this session.
func (at *attempts) heard(t *task) bool { return t.heard != 0 && t.heard == at.sessionOf(t) }

// started reports whether a Start of the attempt was sent in this ownership.
func (at *attempts) started(t *task) bool {
	return t.phase.started() && t.e.job.Task(t.index).Epoch == at.Epoch
}

// assigned notes that the task is assigned in the journal. Without a dispatch this daemon knows nothing more.
func (at *attempts) assigned(t *task) {
	if t.phase == idle || t.phase == withdrawn {
		t.move(at.Turn, unknown)
	}
}

// left notes that the task is not assigned in the journal, and forgets what was known of an attempt.
func (at *attempts) left(t *task) {
	if t.phase.watched() || t.phase.over() {
		t.move(at.Turn, idle)
	}
	t.process, t.cancelled = process{}, 0 // the host was told to end this attempt, not the next one
	t.setHeard(0)
	at.stopReport(t)
}

func (at *attempts) stopReport(t *task) {
	at.Stop(t.report)
	t.report = nil
}

// holdAfterLoss returns why the task is to be held if its host is lost now: it has lost too many hosts and may be the
// cause. It is empty if the task may run again.
func (at *attempts) holdAfterLoss(t *task) string {
	hosts := at.lostBy(t)
	if len(hosts) < at.Config.LossLimit {
		return ""
	}
	return contract.Clip(fmt.Sprintf("%d hosts were lost while they ran it (%s); `muster release` runs it again", len(hosts), strings.Join(hosts, ", ")))
}

// lostBy names the hosts that the task has lost or that could not start it, with its present one.
func (at *attempts) lostBy(t *task) []string {
	hosts := []job.Peer{t.durable().Node}
	for _, p := range slices.Backward(t.e.job.Lost(t.index)) {
		if !slices.Contains(hosts, p) {
			hosts = append(hosts, p)
		}
	}
	names := make([]string, 0, len(hosts))
	for _, p := range slices.Backward(hosts) {
		names = append(names, at.hosts.nameOf(p))
	}
	return names
}

// maxFailedStarts bounds the attempts of a task that hosts could not start. It matters for a task that only few hosts
// can run.
const maxFailedStarts = 10

// afterFailedStart decides about a task whose host could not start it: it goes elsewhere without spending a retry. If
// that has happened on as many hosts as a task may lose, or maxFailedStarts times, the task fails with that reason. A
// task that has lost hosts while it ran may be held instead, as after another loss.
func (at *attempts) afterFailedStart(t *task, r *job.ResultRecord) {
	hosts, times := at.lostBy(t), len(t.e.job.Lost(t.index))+1
	lost := slices.ContainsFunc(state.Outcomes(t.e.job, t.index), func(o job.Outcome) bool {
		return o.N > t.e.job.Task(t.index).Settled && o.N < r.Attempt.N && o.Exit.State == job.NodeFail && !o.Exit.FailedStart()
	})
	switch {
	case lost:
		r.Hold = at.holdAfterLoss(t)
	case len(hosts) >= at.Config.LossLimit:
		r.Exit.State, r.Exit.Reason = job.Failed, contract.Clip(fmt.Sprintf("%d hosts could not start it (%s): %s", len(hosts), strings.Join(hosts, ", "), r.Exit.Reason))
	case times >= maxFailedStarts:
		r.Exit.State, r.Exit.Reason = job.Failed, contract.Clip(fmt.Sprintf("could not be started %d times (on %s): %s", times, strings.Join(hosts, ", "), r.Exit.Reason))
	}
	r.Elsewhere = r.Exit.State == job.NodeFail && r.Hold == ""
}

// saw notes the state that the host has reported of the attempt.
func (at *attempts) saw(t *task, s job.State) {
	t.setReported(s)
	at.stopReport(t)
	to := running
	if s == job.Completing {
		to = completing
	}
	if t.phase.watched() && t.phase != to {
		t.move(at.Turn, to)
	}
}

// cancel tells the host to end the attempt, once in a session.
func (at *attempts) cancel(t *task) {
	w := at.reached(t)
	if w == nil || t.cancelled == at.sessionOf(t) {
		return
	}
	t.cancelled = at.sessionOf(t)
	why := t.e.job.Cancelled
	if why == "" {
		why = t.e.job.Task(t.index).Reason.Detail
	}
	if why == "" && t.durable().Ending == job.EndsRequeued {
		why = "requeued"
	}
	at.Send(w.Peer, contract.Cancel{
		Attempt: t.attempt(), Group: at.Config.Group, Epoch: at.Epoch, Grace: t.e.job.Spec.GraceOr(), Reason: why,
	})
}

// watch plans a check of the attempt, unless an earlier one is planned.
func (at *attempts) watch(t *task, when time.Time) {
	if !t.checkAt.IsZero() && !when.Before(t.checkAt) {
		return
	}
	t.checkAt = when
	at.At(when, func() {
		if t.checkAt.Equal(when) {
			t.checkAt = time.Time{}
			at.check(t)
		}
	})
}

// check asks the host about an attempt that it has not reported in this session (R8). If there is no session, check
// gives the attempt up once its lease has run out for certain (R4), or once the host has restarted.
func (at *attempts) check(t *task) {
	d := t.durable()
	if !at.Lead || !d.Assigned || !t.phase.watched() || at.entries.byID[t.e.job.ID] != t.e {
		return
	}
	if w := at.reached(t); w != nil {
		if at.heard(t) {
			return
		}
		at.Send(w.Peer, contract.Query{Attempt: t.attempt(), Group: at.Config.Group, Epoch: at.Epoch, Store: d.Store})
		at.watch(t, at.Now.Add(reportWait))
		return
	}
	if at.restarted(t) {
		at.writeOff(t, job.ProofDead, d.NodeName+" has restarted, with another data directory")
		return
	}
	if !at.lapses(t) {
		return // only its host or an operator ends it
	}
	due := at.writeOffAt(t)
	if at.Now.Before(due) {
		at.watch(t, due)
		return
	}
	at.writeOff(t, job.ProofExpired, d.NodeName+" was silent until the lease had run out")
}

// writeOff gives up an attempt without a word of its host.
func (at *attempts) writeOff(t *task, proof job.Proof, detail string) {
	d := t.durable()
	at.Notify(step.Notice{Kind: step.TaskWrittenOff, Attempt: t.attempt(), Peer: d.Node, Node: d.NodeName})
	at.giveUp(t, proof, detail)
}

// lapses reports whether the attempt ends with its lease for certain. Otherwise it may go on for as long as its host is
// silent, because its job wants that or its host cannot fence it.
func (at *attempts) lapses(t *task) bool { return !t.e.job.Spec.Holds() && t.durable().Fencing.Certain }

// restarted reports whether the host of the attempt has been rebooted since, so that nothing of the attempt still runs.
func (at *attempts) restarted(t *task) bool {
	w := at.hosts.workers[t.durable().Node]
	return w != nil && t.durable().Fencing.Restarted(w.Profile.Fencing)
}

// writeOffAt is when the attempt has ended for certain (R4): 1.03 leases and a margin after the last moment at which
// its lease can have been renewed.
func (at *attempts) writeOffAt(t *task) time.Time {
	last := at.LeadAt
	if r := at.renewed.at(t.durable().Node, t.durable().Store); r.After(last) {
		last = r
	}
	d := t.e.job.Spec.LeaseOr()
	return last.Add(d + d*3/100 + contract.ExpiryMargin)
}

// refused returns the task of an attempt that the journal has refused to record. It notes that the task is no longer
// proposed, and makes it pause. It returns nil if no task waits for that record.
func refused(tn *step.Turn, es *entries, a job.Attempt) *task {
	e := es.byID[a.Job]
	if e == nil {
		return nil
	}
	i, soft := e.find(a.Task)
	if !soft || !e.tasks[i].proposes(a.N) {
		return nil
	}
	t := e.tasks[i]
	t.unpropose(tn)
	t.declines++
	t.pause.until, t.pause.why = tn.Now.Add(backoff(t.declines)), "the journal did not take the placement"
	return t
}
