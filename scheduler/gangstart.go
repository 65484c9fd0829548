package scheduler

// The start of a gang: once each member has a place, all are assigned with one record, and then started.
// See docs/adr, ADR 89.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// gangStarts assigns and starts gangs.
type gangStarts struct {
	*step.Turn
	entries    *entries
	contact    *contact
	pending    *pending
	attempts   *attempts
	offers     *offers
	dispatches *dispatches
}

// assign proposes to assign all members: each has a place.
func (gs *gangStarts) assign(d *dispatch) {
	t := d.task
	for _, o := range slices.Clone(d.offers) {
		if o.seat.state != seated {
			gs.offers.release(o)
			gs.offers.drop(o)
		}
	}
	gs.pending.setWaiting(t, false)
	gs.pending.queued.remove(t)
	t.move(gs.Turn, held)
	gs.dispatches.files.has(t.e) // the file is read meanwhile
	gs.proposeGang(d)
}

// proposeGang proposes the record that assigns all members of a gang. Each of them has a place.
func (gs *gangStarts) proposeGang(d *dispatch) {
	t := d.task
	t.move(gs.Turn, confirming)
	r := job.AssignGangRecord{Attempt: job.Attempt{Job: t.e.job.ID, Task: t.index, N: d.n}, Members: d.assignees(), At: gs.Now}
	d.target = r.Members[0].Node
	gs.Propose(r)
}

// assignees are the hosts of the members, by rank. Each member has one.
func (d *dispatch) assignees() []job.Assignee {
	out := make([]job.Assignee, d.gang.size)
	for _, o := range d.offers {
		out[o.seat.rank] = job.Assignee{Node: o.worker.Peer, NodeName: o.worker.Name(), Store: o.worker.Profile.Store, Fencing: o.worker.Profile.Fencing}
	}
	return out
}

// notAssigned handles a record that the journal has refused. It is proposed once more while the places are held.
func (gs *gangStarts) notAssigned(a job.Attempt) {
	t := refused(gs.Turn, gs.entries, a)
	if t == nil {
		return
	}
	d := t.dispatch
	if d == nil {
		gs.pending.requeue(t)
		return
	}
	gs.After(retryWait, func() {
		if t.dispatch == d && t.phase == held {
			gs.proposeGang(d)
		}
	})
}

// start sends the Starts of all members. Their record is in the journal (R1). If one of them cannot start, none does, and
// the gang is taken back.
func (gs *gangStarts) start(d *dispatch) {
	t := d.task
	lost := slices.ContainsFunc(d.offers, func(o *offer) bool { return o.seat.state != seated || !o.worker.Up })
	members := gs.members(d)
	if lost || members == nil || len(d.offers) != d.gang.size || t.e.job.Ending(t.index) != job.NotEnding {
		gs.dispatches.abandon(d)
		return
	}
	if !gs.dispatches.files.has(t.e) {
		return // start is called again once the file is read
	}
	t.endGang()
	t.dispatch, t.offered, t.declines = nil, false, 0
	offers := slices.Clone(d.offers)
	slices.SortFunc(offers, func(a, b *offer) int { return a.seat.rank - b.seat.rank })
	preempted := state.Preempted(t.e.job, t.index)
	for _, o := range offers {
		gs.startMember(t.e.task(t.index+o.seat.rank), o, members, preempted)
	}
}

func (gs *gangStarts) startMember(t *task, o *offer, members *contract.Gang, preempted bool) {
	t.move(gs.Turn, startSent)
	gs.offers.drop(o)
	t.setHeard(gs.attempts.sessionOf(t))
	t.setReported(job.Reserved)
	t.process.devices = o.seat.devices
	gs.Send(o.worker.Peer, contract.Start{
		Offer: o.id, Attempt: t.attempt(), Group: gs.Config.Group, Epoch: gs.Epoch, Session: o.seat.session, User: t.e.job.User,
		File: t.e.taskFile(), Element: t.e.element(t.index, preempted), Gang: members,
	})
	placed(gs.Turn, t)
	gs.Notify(step.Notice{Kind: step.TaskStarted, Attempt: t.attempt(), Peer: o.worker.Peer, Node: o.worker.Name(), Detail: o.seat.why})
	gs.entries.changed(t)
	t.report = gs.After(reportWait, func() {
		t.setHeard(0)
		gs.attempts.check(t)
	})
}

// members returns what all members are told of each other. It is nil if the address of one is not known. For this
// daemon's own host it gives the address of its end of the session with the first other member.
func (gs *gangStarts) members(d *dispatch) *contract.Gang {
	g := &contract.Gang{Members: make([]contract.Member, d.gang.size)}
	local := -1
	for _, o := range d.offers {
		s := o.seat
		g.Members[s.rank] = contract.Member{Node: o.worker.Peer, Name: o.worker.Name(), Address: s.address}
		if s.rank == 0 {
			g.Port = s.port
		}
		if s.address == "" {
			local = s.rank
		}
	}
	for i := range g.Members {
		if local >= 0 && i != local && g.Members[local].Address == "" {
			g.Members[local].Address = gs.contact.paths[g.Members[i].Node].Local
		}
	}
	if slices.ContainsFunc(g.Members, func(m contract.Member) bool { return m.Address == "" }) {
		return nil
	}
	return g
}
