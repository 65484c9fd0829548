package scheduler

// Renewals: a worker asks, and is answered only after a quorum round that began
// after it asked (R3). All that ask during a round are answered by the next.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// renewals are the requests that wait for a round.
type renewals struct {
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

func (c *Core) renew(w *worker, m lease.Renew) {
	if m.Group != c.cfg.Group || !c.lead || m.Store != w.Profile.Store {
		return
	}
	live := make(map[job.Attempt]bool, len(m.Live))
	for _, a := range m.Live {
		live[a] = true
	}
	for _, t := range c.tasksAt(w.Peer) {
		if !c.sameStore(t, w) || t.flight != nil {
			continue
		}
		if live[t.attempt()] {
			c.adopt(w, t)
		} else if t.givenUp != t.durable().Attempt && t.seen != job.Completing {
			t.reported = false
			c.check(t)
		}
	}
	if w.renewing < maxRenewals {
		w.renewing++
		c.renewals.next = append(c.renewals.next, renewal{worker: w, session: c.sessions[w.Peer], msg: m})
	}
	c.beginRound()
}

// adopt takes a live attempt as its own; if nothing is known but that it lives,
// the rest is asked for.
func (c *Core) adopt(w *worker, t *task) {
	if !t.reported && t.seen == "" {
		c.check(t) // a query; its answer tells state, devices and pid
	}
	c.hasReported(w, t)
}

func (c *Core) beginRound() {
	r := &c.renewals
	if r.round != 0 || len(r.next) == 0 || r.retryAt.After(c.now) {
		return
	}
	r.rounds++
	r.round = r.rounds
	r.waiting, r.next = r.next, nil
	c.fx.Read = r.round
}

// readDone answers those who asked before the round began.
func (c *Core) readDone(e ReadDone) {
	r := &c.renewals
	if e.Token != r.round || r.round == 0 {
		return
	}
	r.round = 0
	asked := r.waiting
	r.waiting = nil
	if e.Err != nil || e.Epoch != c.epoch || !c.lead {
		r.next = append(asked, r.next...)
		r.retryAt = c.now.Add(retryWait)
		c.at(r.retryAt, c.beginRound)
		return
	}
	for _, a := range asked {
		w := a.worker
		w.renewing--
		if !w.Up || c.sessions[w.Peer] != a.session {
			continue // its session is gone, and it asks anew
		}
		c.renewed[a.msg.Store] = c.now
		c.send(w.Peer, lease.Renewed{
			Group: c.cfg.Group, Epoch: c.epoch, Clock: a.msg.Clock, Session: a.msg.Session, Verdicts: c.verdicts(w, a.msg.Live),
		})
		w.Renewed()
		c.leased(w)
	}
	c.beginRound()
}

// verdicts keep the attempts that are assigned to this very host and store,
// wanted, and not given up (R7).
func (c *Core) verdicts(w *worker, live []job.Attempt) []lease.Verdict {
	out := make([]lease.Verdict, 0, len(live))
	for _, a := range live {
		keep := false
		if e := c.jobs[a.Job]; e != nil && c.current(e, w, a) {
			keep = e.job.Cancelled == "" && e.task(a.Task).givenUp != a.N
		}
		out = append(out, lease.Verdict{Attempt: a, Keep: keep})
	}
	return out
}
