package scheduler

// Attempts that may be running: what their workers tell of them, when they are
// asked for, and when they may be given up.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// tasksAt are the tasks assigned to a host, in a fixed order.
func (c *Core) tasksAt(p job.Peer) []*task {
	out := make([]*task, 0, len(c.byNode[p]))
	for t := range c.byNode[p] {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.e.job.ID, b.e.job.ID), cmp.Compare(a.index, b.index))
	})
	return out
}

// sameStore says whether the host still has the data directory that was given
// the task's attempt: only that one may speak of it (R6).
func (c *Core) sameStore(t *task, w *worker) bool {
	return w.Profile.Store == t.durable().Store
}

// current says whether the attempt is the one that the host was given and that
// may be running.
func (c *Core) current(e *entry, w *worker, a job.Attempt) bool {
	if !e.job.Has(a.Task) {
		return false
	}
	d := e.job.Brief(a.Task)
	return d.Assigned && d.Attempt == a.N && d.Node == w.Peer && d.Store == w.Profile.Store
}

// reached says whether the attempt's own host has a session.
func (c *Core) reached(t *task) *worker {
	w := c.workers[t.durable().Node]
	if w == nil || !w.Up || !c.sameStore(t, w) {
		return nil
	}
	return w
}

// giveUp proposes that the attempt be ended, and from here on never starts or
// keeps it (R7): it only proposes again until a record settles it.
func (c *Core) giveUp(t *task, proof job.Proof, detail string) {
	a := t.attempt()
	if t.givenUp == a.N {
		return
	}
	t.givenUp = a.N
	c.changed(t.e)
	hold := ""
	switch proof {
	case job.ProofDead, job.ProofExpired, job.ProofOperator:
		hold = c.holdAfterLoss(t)
	case job.ProofDeclined, job.ProofNeverStarted:
	}
	c.repropose(t, a.N, job.UnassignRecord{Attempt: a, Proof: proof, Detail: lease.Clip(detail), At: c.now, Hold: hold})
}

// repropose proposes a record about an attempt until the attempt is settled.
func (c *Core) repropose(t *task, n int, r job.Record) {
	if c.lead {
		c.propose(r)
	}
	c.after(reproposeGap, func() {
		if d := t.durable(); d.Assigned && d.Attempt == n && c.jobs[t.e.job.ID] == t.e {
			c.repropose(t, n, r)
		}
	})
}

func (c *Core) taskEvent(w *worker, m lease.Event) {
	if m.Group != c.cfg.Group || !c.lead {
		return // before this daemon leads it cannot judge; it will ask
	}
	e := c.jobs[m.Attempt.Job]
	switch {
	case e == nil || !e.job.Has(m.Attempt.Task):
		c.ackNow(w, m) // purged, or never ours: nobody waits for it
	case c.current(e, w, m.Attempt):
		c.currentEvent(w, e.task(m.Attempt.Task), m)
	case m.State == job.Succeeded && m.Exit != nil && e.job.WouldTakeLate(job.ResultRecord{Attempt: m.Attempt, Exit: *m.Exit}):
		c.resultOf(w, e.task(m.Attempt.Task), m)
	default:
		c.ackNow(w, m)
	}
}

func (c *Core) ackNow(w *worker, m lease.Event) {
	c.send(w.Peer, lease.Ack{Attempt: m.Attempt, Group: c.cfg.Group, Epoch: c.epoch, N: m.N})
}

func (c *Core) currentEvent(w *worker, t *task, m lease.Event) {
	switch {
	case m.Refused != "":
		c.ground(t)
		c.owe(w, m)
		c.giveUp(t, job.ProofNeverStarted, m.Refused)
	case m.State.Ended():
		c.resultOf(w, t, m)
	default:
		c.progress(w, t, m)
	}
}

// progress is a hint for people: it is acknowledged at once.
func (c *Core) progress(w *worker, t *task, m lease.Event) {
	c.ackNow(w, m)
	if m.State != job.Starting && m.State != job.Running && m.State != job.Completing {
		return // nothing that a worker can say of a task
	}
	switch {
	case !m.Began.IsZero():
		t.since = m.Began
	case m.State == job.Running && t.seen != job.Running:
		t.since = c.now // a worker of an older version
	}
	c.saw(t, m.State)
	t.detail = m.Detail
	if m.PID != 0 {
		t.pid, t.isolation = m.PID, m.Isolation
	}
	if len(m.Devices) > 0 {
		t.devices = m.Devices
	}
	c.hasReported(w, t)
}

// hasReported notes that the attempt is known to be with its worker.
func (c *Core) hasReported(w *worker, t *task) {
	t.reported = true
	c.changed(t.e)
	if t.e.job.Cancelled != "" && !t.cancelSent && w.Up {
		c.cancelAttempt(t)
	}
}

// resultOf proposes an attempt's end; its event is acknowledged only when the
// record is applied, whatever it then changes.
func (c *Core) resultOf(w *worker, t *task, m lease.Event) {
	if c.owe(w, m) {
		return
	}
	exit := job.Exit{State: m.State}
	if m.Exit != nil {
		exit = *m.Exit
	}
	exit.State = m.State
	exit.Reason, exit.Tail = lease.Clip(exit.Reason), tail(exit.Tail)
	if t.durable().Attempt == m.Attempt.N {
		c.saw(t, job.Completing)
		t.reported = true
		c.changed(t.e)
	}
	hold := ""
	if exit.State == job.NodeFail {
		hold = c.holdAfterLoss(t)
	}
	c.proposeResult(job.ResultRecord{Attempt: m.Attempt, Devices: m.Devices, Exit: exit, At: c.now, Hold: hold})
}

// holdAfterLoss is why the task is not to be run again by itself if its host is
// lost now, too: it may be what takes them down. Empty if it may run again.
func (c *Core) holdAfterLoss(t *task) string {
	d := t.durable()
	hosts := []job.Peer{d.Node}
	for _, p := range slices.Backward(t.e.job.Lost(t.index)) {
		if !slices.Contains(hosts, p) {
			hosts = append(hosts, p)
		}
	}
	if len(hosts) < c.cfg.LossLimit {
		return ""
	}
	names := make([]string, 0, len(hosts))
	for _, p := range slices.Backward(hosts) {
		names = append(names, c.nameOf(p))
	}
	return lease.Clip(fmt.Sprintf("%d hosts were lost while they ran it (%s); `muster release` runs it again", len(hosts), strings.Join(names, ", ")))
}

// proposeResult proposes an end whose event is owed an ack, until it is applied.
func (c *Core) proposeResult(r job.ResultRecord) {
	c.propose(r)
	k := c.acks[r.Attempt]
	k.timer = c.after(reproposeGap, func() {
		if _, waits := c.acks[r.Attempt]; waits && c.lead {
			c.proposeResult(r)
		}
	})
	c.acks[r.Attempt] = k
}

// owe notes that an event is to be acknowledged once its record is applied, and
// says whether one of its attempt was before.
func (c *Core) owe(w *worker, m lease.Event) bool {
	k, under := c.acks[m.Attempt]
	k.peer, k.n = w.Peer, m.N
	c.acks[m.Attempt] = k
	return under
}

// saw notes the state that an attempt was heard or guessed to be in.
func (c *Core) saw(t *task, s job.State) {
	t.seen = s
	c.stop(t.report)
	t.report = nil
}

func tail(s string) string {
	if len(s) > job.TailBytes {
		return s[len(s)-job.TailBytes:]
	}
	return s
}

// cancelAttempt tells the worker, once a session.
func (c *Core) cancelAttempt(t *task) {
	w := c.reached(t)
	if w == nil || t.cancelSent {
		return
	}
	t.cancelSent = true
	c.send(w.Peer, lease.Cancel{
		Attempt: t.attempt(), Group: c.cfg.Group, Epoch: c.epoch, Grace: t.e.job.Spec.GraceOr(), Reason: t.e.job.Cancelled,
	})
}

// watch sees to it that the attempt is looked at again, at the latest then.
func (c *Core) watch(t *task, when time.Time) {
	if !t.checkAt.IsZero() && !when.Before(t.checkAt) {
		return
	}
	t.checkAt = when
	c.at(when, func() {
		if t.checkAt.Equal(when) {
			t.checkAt = time.Time{}
			c.check(t)
		}
	})
}

// check asks for an attempt of which nothing has been heard, or writes it off
// once its lease has run out for certain.
func (c *Core) check(t *task) {
	d := t.durable()
	if !c.lead || !d.Assigned || t.flight != nil || t.givenUp == d.Attempt || c.jobs[t.e.job.ID] != t.e {
		return
	}
	if w := c.reached(t); w != nil {
		if t.reported {
			return
		}
		c.send(w.Peer, lease.Query{Attempt: t.attempt(), Group: c.cfg.Group, Epoch: c.epoch, Store: d.Store})
		c.watch(t, c.now.Add(reportWait))
		return
	}
	if t.e.job.Spec.Partition == partitionHold {
		return // it may run on for ever; only its worker or a person ends it
	}
	due := c.writeOffAt(t)
	if c.now.Before(due) {
		c.watch(t, due)
		return
	}
	c.tell(Told{Kind: TaskWrittenOff, Attempt: t.attempt(), Peer: d.Node, Node: d.NodeName})
	c.giveUp(t, job.ProofExpired, fmt.Sprintf("%s was silent until the lease had run out", d.NodeName))
}

// partitionHold is what a job says that is never ended for lost contact.
const partitionHold = "hold"

// writeOffAt is when the attempt has ended for certain (R4): the last lease that
// it can have been given is 1.03 times over, by our clock, and a margin.
func (c *Core) writeOffAt(t *task) time.Time {
	last := c.leadAt
	if r := c.renewed[t.durable().Store]; r.After(last) {
		last = r
	}
	d := t.e.job.Spec.LeaseOr()
	return last.Add(d + d*3/100 + lease.ExpiryMargin)
}

// describe is how an attempt ended, in a few words.
func describe(x job.Exit) string {
	switch {
	case x.Reason != "":
		return x.Reason
	case x.Signal != 0:
		return fmt.Sprintf("signal %d", x.Signal)
	}
	return fmt.Sprintf("exit code %d", x.Code)
}
