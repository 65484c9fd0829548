package scheduler

// Renewals of leases: a host asks for one, and the answer follows a quorum round that began after the request (R3).
// Requests that come during a round are answered after the next one.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// renewals answers the requests for renewal.
type renewals struct {
	*step.Turn
	entries    *entries
	assigned   *assigned
	contact    *contact
	attempts   *attempts
	dispatches *dispatches

	round   step.Token // the round under way; 0 if there is none
	waiting []renewal  // for the round under way
	next    []renewal  // for the next round
	retryAt time.Time  // no round begins before, because the last one failed
	rounds  step.Token // how many rounds have begun
}

type renewal struct {
	worker  *worker
	session uint64 // in which the host asked
	msg     contract.Renew
}

const (
	// maxRenewals bounds the renewals of one host that wait for a round. A host asks once in a few seconds at most.
	maxRenewals = 4
	// renewGap is how often a host may ask in the long run, and renewBurst how many requests may come at once. For each
	// request all tasks of the host are looked at, and a Query is sent for each task that the request does not name.
	// Requests that come too often are ignored; the host asks again.
	renewGap   = time.Second / 4
	renewBurst = 8
)

func (rn *renewals) renew(w *worker, m contract.Renew) {
	if m.Group != rn.Config.Group || !rn.Lead || m.Store != w.Profile.Store || !w.mayRenew(rn.Now) {
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
		switch {
		case live[t.attempt()]:
			rn.adopt(t)
		case t.phase.over(), t.phase == completing:
		default:
			t.setHeard(0)
			rn.attempts.check(t)
		}
	}
	if w.renewing < maxRenewals {
		w.renewing++
		rn.next = append(rn.next, renewal{worker: w, session: rn.contact.sessions[w.Peer], msg: m})
	}
	rn.begin()
}

// mayRenew counts a request of the host for renewal. It returns false if too many have come.
func (w *worker) mayRenew(now time.Time) bool {
	from := w.renewAllowance
	if from.Before(now) {
		from = now
	}
	if from.Sub(now) >= renewBurst*renewGap {
		return false
	}
	w.renewAllowance = from.Add(renewGap)
	return true
}

// adopt notes that an attempt is alive. If only its assignment is known, the host is asked about it.
func (rn *renewals) adopt(t *task) {
	if t.phase == unknown && !rn.attempts.heard(t) {
		rn.attempts.check(t) // the answer has the state, the devices and the PID
	}
	rn.attempts.alive(t)
}

func (rn *renewals) begin() {
	if rn.round != 0 || len(rn.next) == 0 || rn.retryAt.After(rn.Now) {
		return
	}
	rn.rounds++
	rn.round = rn.rounds
	rn.waiting, rn.next = rn.next, nil
	rn.Effects.Read = rn.round
}

// readDone answers the hosts that had asked when the round began.
func (rn *renewals) readDone(e step.ReadDone) {
	if e.Token != rn.round || rn.round == 0 {
		return
	}
	rn.round = 0
	asked := rn.waiting
	rn.waiting = nil
	if e.Err != nil || e.Epoch != rn.Epoch || !rn.Lead {
		rn.next = append(asked, rn.next...)
		rn.retryAt = rn.Now.Add(retryWait)
		rn.At(rn.retryAt, rn.begin)
		return
	}
	for _, a := range asked {
		w := a.worker
		w.renewing--
		if !w.Up || rn.contact.sessions[w.Peer] != a.session {
			continue // the session has ended; the host asks again in the next one
		}
		rn.attempts.renewed.answer(w.Peer, a.msg.Store, rn.Now, func(store string) bool {
			return slices.ContainsFunc(rn.assigned.at(w.Peer), func(t *task) bool { return t.durable().Store == store })
		})
		rn.Send(w.Peer, contract.Renewed{
			Group: rn.Config.Group, Epoch: rn.Epoch, Clock: a.msg.Clock, Session: a.msg.Session, Verdicts: rn.verdicts(w, a.msg.Live),
		})
		w.Renewed()
		rn.dispatches.leased(w)
	}
	rn.begin()
}

// verdicts says which attempts the host keeps: those that are assigned to this host with this data directory, that
// were not told to end, and that are not given up (R7).
func (rn *renewals) verdicts(w *worker, live []job.Attempt) []contract.Verdict {
	out := make([]contract.Verdict, 0, len(live))
	for _, a := range live {
		keep := false
		if e := rn.entries.byID[a.Job]; e != nil && e.current(w, a) {
			keep = e.job.Ending(a.Task) == job.NotEnding && !e.task(a.Task).phase.over()
		}
		out = append(out, contract.Verdict{Attempt: a, Keep: keep})
	}
	return out
}

// lostLead forgets the renewals that are not answered. The hosts ask again.
func (rn *renewals) lostLead() {
	for _, a := range slices.Concat(rn.waiting, rn.next) {
		a.worker.renewing--
	}
	rn.round, rn.rounds, rn.retryAt = 0, 0, time.Time{}
	rn.waiting, rn.next = nil, nil
}
