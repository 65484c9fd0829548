package worker

// Reports to schedulers: the numbered events of their attempts, declined offers, and what is free.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// reports sends what schedulers have to know.
type reports struct {
	turn     *turn
	declines []decline
	seq      uint64 // of the newest news of what is free
	sent     BootTime
	waiting  bool // for the timer that sends the next
}

// decline is a Decline on its way.
type decline struct {
	to  job.Peer
	msg lease.Decline
}

// states are the states that an attempt has passed through, one per event; the number of an event is its place, counted
// from 1. They follow from the record alone, so a restarted worker numbers them the same.
func states(rec *lease.Record) []job.State {
	all := make([]job.State, 1, 4)
	all[0] = job.Starting
	if rec.PID > 0 {
		all = append(all, job.Running)
	}
	if rec.Exit != nil {
		if rec.Exit.Started {
			all = append(all, job.Completing)
		}
		all = append(all, rec.Exit.State)
	}
	return all
}

// tell sends the owner the events that are on disk and were not sent in this session.
func (r *reports) tell(a *attempt) {
	g := a.group
	if a.dirty || !g.greeted || a.told >= a.rec.EventN {
		return
	}
	base := lease.Event{Attempt: a.rec.Attempt, Group: a.rec.Group, Devices: a.rec.Devices}
	if a.phase == refused {
		base.N, base.State, base.Refused = 1, job.Cancelled, a.rec.Reason
		a.told = 1
		r.turn.send(g.owner, base)
		return
	}
	all := states(&a.rec)
	for n := a.told + 1; n <= a.rec.EventN && n <= uint64(len(all)); n++ {
		ev := base
		ev.N, ev.State = n, all[n-1]
		if n > 1 {
			ev.PID, ev.Isolation, ev.Began = a.rec.PID, a.rec.Isolation, a.rec.Started
		} else if a.rec.EventN == 1 {
			ev.Detail = a.detail
		}
		if ev.State.Ended() {
			ev.Exit = a.rec.Exit
		}
		a.told = n
		r.turn.send(g.owner, ev)
	}
}

// retell sends the newest event again.
func (r *reports) retell(a *attempt) {
	a.told = min(a.told, a.rec.EventN-1)
	r.tell(a)
}

// detail tells the owner what keeps an attempt from starting. It is the first event again with a sentence in it, which
// is not kept on disk: the next sentence is newer.
func (r *reports) detail(a *attempt, text string) {
	if text == "" || a.rec.PID > 0 || a.rec.Exit != nil {
		return
	}
	a.detail = lease.Clip(text)
	if !a.group.greeted || a.told == 0 {
		return // the first event will have it
	}
	r.turn.send(a.group.owner, lease.Event{
		Attempt: a.rec.Attempt, Group: a.rec.Group, N: 1, State: job.Starting, Devices: a.rec.Devices, Detail: a.detail,
	})
}

// decline refuses an offer, with never for good. It is sent when the offers of this turn are decided, so that what it
// says about free resources is true.
func (r *reports) decline(to job.Peer, m lease.Offer, why job.Reason, never bool) {
	r.declines = append(r.declines, decline{to: to, msg: lease.Decline{
		Offer: m.ID, Attempt: m.Attempt, Reason: why, Never: never,
	}})
}

func (r *reports) sendDeclines(a *account) {
	for _, d := range r.declines {
		d.msg.Free = a.free()
		r.turn.send(d.to, d.msg)
	}
	r.declines = r.declines[:0]
}

// due says whether schedulers have to be told now what is free. If they were told a moment ago, it sets a timer.
func (r *reports) due(now Moment, q *refusals) bool {
	if r.waiting || !r.turn.announce && len(q.eased) == 0 {
		return false
	}
	if at := r.sent.Add(announceEvery); r.seq > 0 && now.Boot < at {
		r.again(at)
		return false
	}
	return true
}

// announce tells every scheduler what is free, if that has changed. Those that were refused for a user's quota hear in
// the same message that the user may hold more.
func (r *reports) announce(now Moment, to []job.Peer, msg lease.Availability, q *refusals) {
	all := r.turn.announce
	r.turn.announce = false
	r.sent = now.Boot
	for _, p := range to {
		if msg.UnderQuota = q.take(p); all || msg.UnderQuota != nil {
			r.turn.send(p, msg)
		}
	}
	if len(q.eased) > 0 { // more than one message holds
		r.again(now.Boot.Add(announceEvery))
	}
}

func (r *reports) again(at BootTime) {
	r.waiting = true
	r.turn.timers.set(at, func(Moment) { r.waiting = false })
}
