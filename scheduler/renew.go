package scheduler

// Renewals: a host asks for one, and it is answered after a quorum round that began later (R3). The next round answers all
// that ask during a round.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// renewals are those that wait for a round.
type renewals struct {
	*turn
	entries    *entries
	assigned   *assigned
	contact    *contact
	attempts   *attempts
	dispatches *dispatches

	round   Token // under way, 0 if none
	waiting []renewal
	next    []renewal // came after the round began
	retryAt time.Time
	rounds  Token
}

type renewal struct {
	worker  *worker
	session uint64 // in which it was asked
	msg     lease.Renew
}

// maxRenewals bounds the renewals of one host that wait for a round; one asks
// every few seconds at most.
const maxRenewals = 4

func (rn *renewals) renew(w *worker, m lease.Renew) {
	if m.Group != rn.cfg.Group || !rn.lead || m.Store != w.Profile.Store {
		return
	}
	live := make(map[job.Attempt]bool, len(m.Live))
	for _, a := range m.Live {
		live[a] = true
	}
	for _, t := range rn.assigned.at(w.Peer) {
		if !t.sameStore(w) || t.dispatch != nil {
			continue
		}
		if live[t.attempt()] {
			rn.adopt(w, t)
		} else if t.givenUp != t.durable().Attempt && t.seen != job.Completing {
			t.reported = false
			rn.attempts.check(t)
		}
	}
	if w.renewing < maxRenewals {
		w.renewing++
		rn.next = append(rn.next, renewal{worker: w, session: rn.contact.sessions[w.Peer], msg: m})
	}
	rn.begin()
}

// adopt takes a live attempt as its own; if nothing is known but that it lives,
// the rest is asked for.
func (rn *renewals) adopt(w *worker, t *task) {
	if !t.reported && t.seen == "" {
		rn.attempts.check(t) // a query; its answer tells state, devices and pid
	}
	rn.attempts.hasReported(w, t)
}

func (rn *renewals) begin() {
	if rn.round != 0 || len(rn.next) == 0 || rn.retryAt.After(rn.now) {
		return
	}
	rn.rounds++
	rn.round = rn.rounds
	rn.waiting, rn.next = rn.next, nil
	rn.fx.Read = rn.round
}

// readDone answers those who asked before the round began.
func (rn *renewals) readDone(e ReadDone) {
	if e.Token != rn.round || rn.round == 0 {
		return
	}
	rn.round = 0
	asked := rn.waiting
	rn.waiting = nil
	if e.Err != nil || e.Epoch != rn.epoch || !rn.lead {
		rn.next = append(asked, rn.next...)
		rn.retryAt = rn.now.Add(retryWait)
		rn.at(rn.retryAt, rn.begin)
		return
	}
	for _, a := range asked {
		w := a.worker
		w.renewing--
		if !w.Up || rn.contact.sessions[w.Peer] != a.session {
			continue // its session is gone, and it asks anew
		}
		rn.attempts.renewed[a.msg.Store] = rn.now
		rn.send(w.Peer, lease.Renewed{
			Group: rn.cfg.Group, Epoch: rn.epoch, Clock: a.msg.Clock, Session: a.msg.Session, Verdicts: rn.verdicts(w, a.msg.Live),
		})
		w.Renewed()
		rn.dispatches.leased(w)
	}
	rn.begin()
}

// verdicts keep the attempts that are assigned to this very host and store,
// wanted, and not given up (R7).
func (rn *renewals) verdicts(w *worker, live []job.Attempt) []lease.Verdict {
	out := make([]lease.Verdict, 0, len(live))
	for _, a := range live {
		keep := false
		if e := rn.entries.byID[a.Job]; e != nil && e.current(w, a) {
			keep = e.job.Cancelled == "" && e.task(a.Task).givenUp != a.N
		}
		out = append(out, lease.Verdict{Attempt: a, Keep: keep})
	}
	return out
}

// lostLead forgets the renewals that are not answered. Their hosts ask again.
func (rn *renewals) lostLead() {
	for _, a := range slices.Concat(rn.waiting, rn.next) {
		a.worker.renewing--
	}
	rn.round, rn.rounds, rn.retryAt = 0, 0, time.Time{}
	rn.waiting, rn.next = nil, nil
}
