package worker

// Reports to schedulers: the numbered events of their attempts, declined offers, and what is free.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// reports sends events, declines and availability to schedulers.
type reports struct {
	turn     *step.Turn
	ledger   *ledger
	declines []decline
	seq      uint64              // number of the newest Availability
	sent     leaseclock.BootTime // when it was sent
	waiting  bool                // a timer is set, and none is sent before it fires

	forecasts admission.Forecasts
	keeping   admission.Keeping
}

// decline is a Decline that is not sent yet.
type decline struct {
	to  job.Peer
	msg contract.Decline
}

// states returns the states that an attempt has passed through, one for each event. The number of an event is its index
// in this list plus 1. The list depends only on the record, so a restarted worker uses the same numbers.
func states(rec *contract.Record) []job.State {
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

// tell sends the owner the events that were not sent in this session. They must be on disk, unless the ledger cannot be
// written. The refusal of an attempt for which this host had no offer must be on disk in any case (R6).
func (r *reports) tell(a *attempt) {
	g, unknown := a.group, a.phase == refused && a.offer == nil
	if a.dirty && (r.ledger.failed == nil || unknown) || !g.resynced || a.sentEvent >= a.rec.EventN {
		return
	}
	base := contract.Event{Attempt: a.rec.Attempt, Group: a.rec.Group, Devices: a.rec.Devices}
	if a.phase == refused {
		base.N, base.State, base.Refused = 1, job.Cancelled, a.rec.Reason
		a.sentEvent = 1
		r.turn.Send(g.owner, base)
		return
	}
	all := states(&a.rec)
	for n := a.sentEvent + 1; n <= a.rec.EventN && n <= uint64(len(all)); n++ {
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
		a.sentEvent = n
		r.turn.Send(g.owner, ev)
	}
}

// retell sends the newest event again.
func (r *reports) retell(a *attempt) {
	a.sentEvent = min(a.sentEvent, a.rec.EventN-1)
	r.tell(a)
}

// detail tells the owner what an attempt waits for before it starts. It repeats the first event with a new detail. The
// detail is not saved on disk, because it is soon out of date.
func (r *reports) detail(a *attempt, text string) {
	if text == "" || a.rec.PID > 0 || a.rec.Exit != nil {
		return
	}
	a.detail = contract.Clip(text)
	if !a.group.resynced || a.sentEvent == 0 {
		return // the first event will contain it
	}
	r.turn.Send(a.group.owner, contract.Event{
		Attempt: a.rec.Attempt, Group: a.rec.Group, N: 1, State: job.Starting, Devices: a.rec.Devices, Detail: a.detail,
	})
}

// decline declines an offer; with never, for good. The message is sent once all offers of this turn are decided, so that
// it says correctly what is free.
func (r *reports) decline(to job.Peer, m contract.Offer, why job.Reason, never bool) {
	r.declines = append(r.declines, decline{to: to, msg: contract.Decline{
		Offer: m.ID, Attempt: m.Attempt, Reason: why, Never: never,
	}})
}

// declineUser declines an offer because its user has no account on this host.
func (r *reports) declineUser(to job.Peer, m contract.Offer) {
	why := job.Reason{Word: job.ReasonNoMatch, Detail: contract.Clip("this node has no user " + m.User)}
	r.declines = append(r.declines, decline{to: to, msg: contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: why, Never: true, NoUser: true}})
}

func (r *reports) sendDeclines(a *resources.Account) {
	for _, d := range r.declines {
		d.msg.Free = a.Free()
		r.turn.Send(d.to, d.msg)
	}
	r.declines = r.declines[:0]
}

// due reports whether to send an Availability now. If one was sent less than announceEvery ago, it sets a timer instead.
func (r *reports) due(now leaseclock.Moment, q *resources.Refusals) bool {
	if r.waiting || !r.turn.Announces() && q.Untold()+r.forecasts.Unsent() == 0 {
		return false
	}
	if at := r.sent.Add(announceEvery); r.seq > 0 && now.Boot < at {
		r.again(at)
		return false
	}
	return true
}

// announce sends an Availability to every scheduler if what is free has changed. The message also tells a refused
// scheduler which users may hold more, and each scheduler what is expected of its offers.
func (r *reports) announce(now leaseclock.Moment, to []job.Peer, msg contract.Availability, q *resources.Refusals) {
	all := r.turn.Announces()
	r.turn.Announced()
	if all {
		r.keeping.Told()
	}
	r.sent = now.Boot
	for _, p := range to {
		msg.UnderQuota, msg.Forecasts = q.Take(p), r.forecasts.Take(now, p)
		if all || msg.UnderQuota != nil || msg.Forecasts != nil {
			r.turn.Send(p, msg)
		}
	}
	if q.Untold() > 0 { // one message was not enough
		r.again(now.Boot.Add(announceEvery))
	}
}

func (r *reports) again(at leaseclock.BootTime) {
	r.waiting = true
	r.turn.Timers.Set(at, func(leaseclock.Moment) { r.waiting = false })
}
