package scheduler

// Attempts that are assigned to hosts: when their hosts are asked about them, and when they are given up.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/place"
)

// attempts are those that may be running on hosts.
type attempts struct {
	*turn
	entries *entries
	hosts   *hosts

	renewed map[string]time.Time // by store: when a renewal was last answered (R4)
}

// lostHost has a task wait whose host was lost, longer with every host.
func (at *attempts) lostHost(t *task, p job.Peer, name string) {
	t.pause.until = at.now.Add(at.jitter(doubled(lossFirst, len(t.e.job.Lost(t.index)), lossMost)))
	t.pause.why = "after " + name + " was lost"
	t.avoid.Add(at.now, place.Avoidance{Peer: p, Until: at.now.Add(avoidFor)})
}

// reached returns the attempt's own host if it has a session, and else nil.
func (at *attempts) reached(t *task) *worker {
	w := at.hosts.workers[t.durable().Node]
	if w == nil || !w.Up || !t.sameStore(w) {
		return nil
	}
	return w
}

// giveUp proposes that the attempt be ended, and from here on never starts or
// keeps it (R7): it only proposes again until a record settles it.
func (at *attempts) giveUp(t *task, proof job.Proof, detail string) {
	a := t.attempt()
	if t.givenUp == a.N {
		return
	}
	t.givenUp = a.N
	at.entries.changed(t.e)
	hold := ""
	switch proof {
	case job.ProofDead, job.ProofExpired, job.ProofOperator:
		hold = at.holdAfterLoss(t)
	case job.ProofDeclined, job.ProofNeverStarted:
	}
	at.repropose(t, a.N, job.UnassignRecord{Attempt: a, Proof: proof, Detail: lease.Clip(detail), At: at.now, Hold: hold})
}

// repropose proposes a record about an attempt until the attempt is settled.
func (at *attempts) repropose(t *task, n int, r job.Record) {
	if at.lead {
		at.propose(r)
	}
	at.after(reproposeGap, func() {
		if d := t.durable(); d.Assigned && d.Attempt == n && at.entries.byID[t.e.job.ID] == t.e {
			at.repropose(t, n, r)
		}
	})
}

// hasReported notes that the attempt is known to be with its worker.
func (at *attempts) hasReported(w *worker, t *task) {
	t.reported = true
	at.entries.changed(t.e)
	if t.e.job.Cancelled != "" && !t.cancelSent && w.Up {
		at.cancel(t)
	}
}

// holdAfterLoss is why the task is not to be run again by itself if its host is
// lost now, too: it may be what takes them down. Empty if it may run again.
func (at *attempts) holdAfterLoss(t *task) string {
	d := t.durable()
	hosts := []job.Peer{d.Node}
	for _, p := range slices.Backward(t.e.job.Lost(t.index)) {
		if !slices.Contains(hosts, p) {
			hosts = append(hosts, p)
		}
	}
	if len(hosts) < at.cfg.LossLimit {
		return ""
	}
	names := make([]string, 0, len(hosts))
	for _, p := range slices.Backward(hosts) {
		names = append(names, at.hosts.nameOf(p))
	}
	return lease.Clip(fmt.Sprintf("%d hosts were lost while they ran it (%s); `muster release` runs it again", len(hosts), strings.Join(names, ", ")))
}

// saw notes the state that an attempt was heard or guessed to be in.
func (at *attempts) saw(t *task, s job.State) {
	t.seen = s
	at.stop(t.report)
	t.report = nil
}

// cancel tells the worker, once a session.
func (at *attempts) cancel(t *task) {
	w := at.reached(t)
	if w == nil || t.cancelSent {
		return
	}
	t.cancelSent = true
	at.send(w.Peer, lease.Cancel{
		Attempt: t.attempt(), Group: at.cfg.Group, Epoch: at.epoch, Grace: t.e.job.Spec.GraceOr(), Reason: t.e.job.Cancelled,
	})
}

// watch sees to it that the attempt is looked at again, at the latest then.
func (at *attempts) watch(t *task, when time.Time) {
	if !t.checkAt.IsZero() && !when.Before(t.checkAt) {
		return
	}
	t.checkAt = when
	at.at(when, func() {
		if t.checkAt.Equal(when) {
			t.checkAt = time.Time{}
			at.check(t)
		}
	})
}

// check asks for an attempt of which nothing has been heard, or writes it off
// once its lease has run out for certain.
func (at *attempts) check(t *task) {
	d := t.durable()
	if !at.lead || !d.Assigned || t.dispatch != nil || t.givenUp == d.Attempt || at.entries.byID[t.e.job.ID] != t.e {
		return
	}
	if w := at.reached(t); w != nil {
		if t.reported {
			return
		}
		at.send(w.Peer, lease.Query{Attempt: t.attempt(), Group: at.cfg.Group, Epoch: at.epoch, Store: d.Store})
		at.watch(t, at.now.Add(reportWait))
		return
	}
	if t.e.job.Spec.Partition == partitionHold {
		return // it may run on for ever; only its worker or a person ends it
	}
	due := at.writeOffAt(t)
	if at.now.Before(due) {
		at.watch(t, due)
		return
	}
	at.notify(Notice{Kind: TaskWrittenOff, Attempt: t.attempt(), Peer: d.Node, Node: d.NodeName})
	at.giveUp(t, job.ProofExpired, fmt.Sprintf("%s was silent until the lease had run out", d.NodeName))
}

// partitionHold is what a job says that is never ended for lost contact.
const partitionHold = "hold"

// writeOffAt is when the attempt has ended for certain (R4): the last lease that
// it can have been given is 1.03 times over, by our clock, and a margin.
func (at *attempts) writeOffAt(t *task) time.Time {
	last := at.leadAt
	if r := at.renewed[t.durable().Store]; r.After(last) {
		last = r
	}
	d := t.e.job.Spec.LeaseOr()
	return last.Add(d + d*3/100 + lease.ExpiryMargin)
}
