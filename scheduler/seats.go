package scheduler

// Seats: what hosts answer to the offers of a gang, and the start of all its members.

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/place"
)

// commit handles a Commit to an offer of a gang. A host answers each renewal of an offer with a Commit again.
func (gs *gangs) commit(w *worker, o *offer, m lease.Commit) {
	d, s := o.dispatch, o.seat
	switch wrong := wrong(w, o, &m); {
	case wrong != "":
		gs.offers.release(o)
		d.task.declines++
		d.task.pause.why = w.Name() + " " + wrong
		gs.dispatches.offerGone(o, gs.dispatches.avoidHard(o))
		return
	case m.Session == 0 && !m.Conditional:
		gs.sessionless(o)
		return
	}
	if other := d.holder(s.rank); other != nil && other != o {
		gs.offers.release(o)
		gs.offers.drop(o)
		gs.offer(d, w, &seat{why: s.why}, m.Devices) // of a rank that is open, if any is
		return
	}
	before := s.state
	s.state, s.session, s.address, s.port, s.devices = seated, m.Session, m.Address, m.Port, m.Devices
	if m.Conditional {
		s.state = promised
	}
	if s.state == before {
		return
	}
	if s.state == seated {
		w.Hold(&o.claim, m.Devices)
	}
	gs.hosts.probed(o)
	gs.hosts.offerToFreed(w) // another task may queue there
	gs.renew(o)
	gs.offers.changed(d)
}

// wrong says what is wrong with a Commit; empty if nothing is.
func wrong(w *worker, o *offer, m *lease.Commit) string {
	t, s := o.dispatch.task, o.seat
	a := job.Attempt{Job: t.e.job.ID, Task: t.index + s.rank, N: o.dispatch.n}
	switch {
	case m.Attempt != a:
		return fmt.Sprintf("committed to %s, and was offered %s", m.Attempt, a)
	case m.Conditional && (!s.preempt || s.firm || s.state == seated):
		return "committed on a condition that it was not asked for"
	case !m.Conditional && s.rank == 0 && (m.Port < 1 || m.Port > 65535):
		return fmt.Sprintf("named port %d for the gang", m.Port)
	case w.Local && m.Address == "":
		return ""
	case !sameAddress(m.Address, w.Address):
		return fmt.Sprintf("says that its address is %q, and is reached at %q", lease.Clip(m.Address), w.Address)
	}
	for _, other := range o.dispatch.offers { // 127.0.0.1 of one host is not that of another
		if x := other.seat; other != o && x.state >= promised && x.address != "" && loopback(x.address) != loopback(m.Address) {
			return fmt.Sprintf("is reached at %s, where %s does not reach it", m.Address, other.worker.Name())
		}
	}
	return ""
}

func sameAddress(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err1 == nil && err2 == nil && x.Unmap() == y.Unmap()
}

func loopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Unmap().IsLoopback()
}

// sessionless handles a Commit of a host without a live lease. The host is offered a member again once it has one.
func (gs *gangs) sessionless(o *offer) {
	w := o.worker
	gs.offers.release(o)
	if w.Leases > o.leases { // the answer to its renewal crossed the Commit
		w.Leased()
	} else {
		w.Leaseless()
		gs.after(sessionWait, func() { gs.hosts.trusted(w) })
	}
	gs.offers.drop(o)
}

// decline handles a Decline of an offer of a gang. A host may take back a place that it held: an older gang gets it.
func (gs *gangs) decline(w *worker, o *offer, m lease.Decline) {
	w.SetFree(m.Free)
	gs.hosts.offerToFreed(w)
	d, t := o.dispatch, o.dispatch.task
	held, preempts := o.seat.state >= promised, o.seat.preempt
	gs.offers.drop(o)
	a := place.Avoidance{Peer: w.Peer, Hard: true}
	switch {
	case m.Never:
		t.shape.Refuse(w.Host)
		return
	case held:
		t.pause.why = w.Name() + ": " + m.Reason.String()
		d.gang.revokes++
		if _, lack := w.Devices.Fit(t.shape.Need, &m.Free); lack != "" && d.gang.revokes <= maxRevokes {
			if t.phase == offering { // it waits there for the gang that got the place
				gs.queueAt(d, w)
			}
			return
		}
		a.Until = gs.now.Add(backoff(d.gang.revokes))
		gs.lookLater(d, a.Until)
	case preempts:
		a.Until = gs.now.Add(keptFor)
	default:
		a = afterDecline(gs.dispatches, w, o, m)
	}
	t.avoid.Add(gs.now, a)
	if a.Hard {
		gs.hosts.askAgain(w, a.Until)
	}
}

// maxRevokes is how often hosts may take places of a gang back before it avoids each that does so for a while. Else a
// host that gives and takes could keep the owner busy.
const maxRevokes = 32

// lookLater looks at the gang again when it no longer avoids a host.
func (gs *gangs) lookLater(d *dispatch, at time.Time) {
	gs.after(at.Sub(gs.now), func() {
		if d.task.dispatch == d {
			gs.offers.changed(d)
		}
	})
}

// assign proposes to assign all members: each has a place.
func (gs *gangs) assign(d *dispatch) {
	t := d.task
	for _, o := range slices.Clone(d.offers) {
		if o.seat.state != seated {
			gs.offers.release(o)
			gs.offers.drop(o)
		}
	}
	gs.pending.setWaiting(t, false)
	gs.pending.queued.remove(t)
	t.move(gs.turn, held)
	gs.proposeGang(d)
}

// proposeGang proposes the record of a gang of which each member has a place.
func (gs *gangs) proposeGang(d *dispatch) {
	t := d.task
	t.move(gs.turn, confirming)
	r := job.AssignGangRecord{Attempt: job.Attempt{Job: t.e.job.ID, Task: t.index, N: d.n}, Members: d.assignees()}
	d.target = r.Members[0].Node
	gs.propose(r)
}

// assignees are the hosts of the members, by rank. Each member has one.
func (d *dispatch) assignees() []job.Assignee {
	out := make([]job.Assignee, d.gang.size)
	for _, o := range d.offers {
		out[o.seat.rank] = job.Assignee{Node: o.worker.Peer, NodeName: o.worker.Name(), Store: o.worker.Profile.Store}
	}
	return out
}

// notAssigned handles a record that the journal has refused. It is proposed once more while the places are held.
func (gs *gangs) notAssigned(a job.Attempt) {
	e := gs.entries.byID[a.Job]
	if e == nil {
		return
	}
	i, soft := e.find(a.Task)
	if !soft || !e.tasks[i].proposes(a.N) {
		return
	}
	t := e.tasks[i]
	t.unpropose(gs.turn)
	t.declines++
	t.pause.until, t.pause.why = gs.now.Add(backoff(t.declines)), "the journal did not take the placement"
	d := t.dispatch
	if d == nil {
		gs.pending.requeue(t)
		return
	}
	gs.after(retryWait, func() {
		if t.dispatch == d && t.phase == held {
			gs.proposeGang(d)
		}
	})
}

// start sends the Starts of all members. Their record is in the journal (R1). If one of them cannot start, none does, and
// the gang is taken back.
func (gs *gangs) start(d *dispatch) {
	t := d.task
	lost := slices.ContainsFunc(d.offers, func(o *offer) bool { return o.seat.state != seated || !o.worker.Up })
	members := gs.members(d)
	if lost || members == nil || len(d.offers) != d.gang.size || t.e.job.Ending(t.index) != job.NotEnding {
		gs.dispatches.abandon(d)
		return
	}
	t.endGang()
	t.dispatch, t.going, t.declines = nil, false, 0
	offers := slices.Clone(d.offers)
	slices.SortFunc(offers, func(a, b *offer) int { return a.seat.rank - b.seat.rank })
	for _, o := range offers {
		gs.startMember(t.e.task(t.index+o.seat.rank), o, members)
	}
}

func (gs *gangs) startMember(t *task, o *offer, members *lease.Gang) {
	t.move(gs.turn, startSent)
	gs.offers.drop(o)
	t.hear(gs.attempts.sessionOf(t))
	t.see(job.Reserved)
	t.process.devices = o.seat.devices
	gs.send(o.worker.Peer, lease.Start{
		Offer: o.id, Attempt: t.attempt(), Group: gs.cfg.Group, Epoch: gs.epoch, Session: o.seat.session, User: t.e.job.User,
		File: t.e.taskFile(), Element: t.e.element(t.index), Gang: members,
	})
	gs.notify(Notice{Kind: TaskStarted, Attempt: t.attempt(), Peer: o.worker.Peer, Node: o.worker.Name(), Detail: o.seat.why})
	gs.entries.changed(t)
	t.report = gs.after(reportWait, func() {
		t.hear(0)
		gs.attempts.check(t)
	})
}

// members is what all members are told of each other. It is nil if the address of one is not known. This daemon's own
// host has the address at which the first of the others reaches it.
func (gs *gangs) members(d *dispatch) *lease.Gang {
	g := &lease.Gang{Members: make([]lease.Member, d.gang.size)}
	local := -1
	for _, o := range d.offers {
		s := o.seat
		g.Members[s.rank] = lease.Member{Node: o.worker.Peer, Name: o.worker.Name(), Address: s.address}
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
	if slices.ContainsFunc(g.Members, func(m lease.Member) bool { return m.Address == "" }) {
		return nil
	}
	return g
}
