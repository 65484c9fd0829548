package sim

// The properties that are checked while the simulation runs.

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

const (
	// maxOffers bounds the offers of one task to one host in a virtual minute: a queued one is renewed every 30 s, and
	// a declined one is tried again with a pause that doubles from one second.
	maxOffers = 12
	// fitBound is the time within which a job starts that is first in line at an idle host: a pause after a failure is
	// at most a minute and a quarter.
	fitBound = 2 * time.Minute
	// turnBound is the time within which a job starts that is first in line everywhere once a host has capacity for it.
	turnBound = 3 * time.Minute
)

// starts checks a Start against the journal (R1, R7).
func (w *world) starts(o *owner, to job.Peer, s contract.Start) {
	j := w.byID[s.Attempt.Job]
	if j != nil && j.spec.Nodes > 1 {
		if b := w.tables[o].Job(j.id).Brief(s.Attempt.Task); !b.Assigned || b.Attempt != s.Attempt.N || b.Node != to {
			w.fail("R1: %s sends a Start of %s to %s, of which its journal says otherwise", o.peer, s.Attempt, to)
		}
		return
	}
	if j == nil || !j.assigned || j.attempt != s.Attempt.N || j.node != to {
		w.fail("R1: %s sends a Start of %s to %s, of which its journal says otherwise", o.peer, s.Attempt, to)
	}
}

// offered counts offers (P2), and checks that the device of a share is one of the host.
func (w *world) offered(o *owner, h *host, m contract.Offer) {
	j := w.byID[m.Attempt.Job]
	if j == nil {
		w.fail("%s offers %s, which its journal does not have", o.peer, m.Attempt)
		return
	}
	if m.Device != "" && (m.Need.GPUShare == 0 || !slices.ContainsFunc(h.cfg.Profile.GPUs, func(d gpu.Device) bool { return d.UUID == m.Device })) {
		w.fail("%s offers %s to %s with the device %q", o.peer, m.Attempt, h.peer, m.Device)
	}
	w.stats.offers++
	w.offerOf[m.ID] = j
	a := asked{id: m.ID, at: w.now, since: w.now, queued: w.now, elsewhere: m.Elsewhere, preempt: m.Preempt, spare: m.Spare}
	if b := j.newest[h]; b.id == a.id {
		if a.since = b.since; b.spare == a.spare && b.elsewhere == a.elsewhere {
			a.queued = b.queued
		}
		if b.elsewhere && !a.elsewhere {
			j.again = w.now
		}
	}
	j.newest[h] = a
	j.offers++
	j.bornAt, j.bornIn = w.now-m.Age, o.life
	j.priority, j.level, j.leveled = m.Priority, m.Level, true
	if minute := w.now / time.Minute; minute != j.minute || j.perHost == nil {
		j.minute, j.perHost = minute, map[*host]int{}
	}
	j.perHost[h]++
	if n := j.perHost[h]; n > j.mostOffer {
		j.mostOffer = n
		w.stats.mostOffers = max(w.stats.mostOffers, n)
		if n == w.opt.maxOffers+1 {
			w.fail("P2: %s was offered to %s %d times within a minute", j, h.peer, n)
		}
	}
}

// committed sees each record that enters a journal. A table of the owner's jobs follows the journal.
func (w *world) committed(o *owner, r job.Record, seq uint64, epoch job.Epoch) {
	over := false
	if r, ok := r.(job.RequeueRecord); ok {
		if t := w.tables[o].Job(r.Job); t != nil {
			over = t.Ended()
		}
	}
	c := w.tables[o].Apply(r, seq, epoch)
	switch r := r.(type) {
	case job.SubmitRecord:
		w.inJournal(r)
	case job.AssignRecord:
		w.assigned(o, r, c.Moved)
	case job.AssignGangRecord:
		for k := range r.Members {
			a := r.Attempt
			a.Task += k
			w.assigned(o, job.AssignRecord{Attempt: a, Node: r.Members[k].Node}, c.Moved)
		}
	case job.UnassignGangRecord:
		w.takenBack(r)
	case job.UnassignRecord:
		w.unassigned(r)
	case job.ResultRecord:
		w.result(r)
	case job.RequeueRecord:
		if j := w.byID[r.Job]; j != nil && c.Moved {
			j.requeued = j.attempt
			if j.assigned {
				j.asked = append(j.asked, j.attempt)
			}
			if over { // it gets a new age, and a cancel before its end has no effect
				j.cancelled = false
				j.acceptAt, j.bornAt, j.bornIn = w.now, w.now, o.life
			}
			w.stats.requeued++
		}
	}
	if c.Job != nil {
		if j, d := w.byID[c.Job.ID], c.Job.Brief(0); j != nil {
			j.assigned, j.attempt, j.node = d.Assigned, d.Attempt, d.Node
		}
	}
}

func (w *world) inJournal(r job.SubmitRecord) {
	j := w.byKey[r.Key]
	switch {
	case j == nil:
		w.fail("the journal has job %s with key %q, which nobody submitted", r.Job, r.Key)
	case j.id != "" && j.id != r.Job:
		w.fail("job %d is in the journal twice: %s and %s", j.index, j.id, r.Job)
	default:
		j.acceptAt, j.bornAt, j.bornIn, j.state = w.now, w.now, j.owner.life, job.Pending
		w.byID[r.Job] = j
	}
}

// assigned checks that no healthy task runs again (P4).
func (w *world) assigned(o *owner, r job.AssignRecord, moved bool) {
	j := w.byID[r.Attempt.Job]
	if j == nil {
		return
	}
	if moved {
		j.alone, j.turnAt, j.dueBy = 0, w.now, 0 // it has had its turn, whatever the result
		clear(j.newest)
		w.retried(o, j, r.Node)
	}
	for _, p := range j.tries {
		if p.attempt.Task != r.Attempt.Task || j.spec.Nodes > 1 && p.over || p.attempt.N >= r.Attempt.N || p.attempt.N <= j.requeued || p.why == byHost || p.why == byLease || p.why == byStop {
			continue // checked when it ended
		}
		if !p.over || p.exit.State == job.Succeeded {
			l := o.links[p.h.peer]
			window := j.spec.LeaseOr()*2 + settleTime
			lostHost := p.h.gone || !p.h.power || p.h.powerAt > 0 && p.h.powerAt >= p.overAt || j.stores[p] != p.h.store
			if !lostHost && l.usable() > window {
				w.fail("P4: %s is to run again as %s, though %s at %s was healthy and could be reached for %v",
					j.id, r.Attempt, p.attempt, p.h.peer, l.usable())
			}
		}
	}
}

// retried checks that a job does not return to a host where it failed while it fits at another one (P12): one that has
// been idle for a while, and for which nothing else waits.
func (w *world) retried(o *owner, j *work, to job.Peer) {
	if j.spec.Nodes > 1 || !j.failedAt(o.links[to].h) {
		return
	}
	for _, h := range w.hosts {
		if l := o.links[h.peer]; !j.could(h) || j.failedAt(h) || !l.oUp || l.usable() < longestPause || !h.takes(o) || j.overQuota(h) || h.idleFor() < longestPause {
			continue
		}
		free := h.free()
		wanted := slices.ContainsFunc(w.works, func(other *work) bool {
			return other != j && other.state == job.Pending && other.could(h)
		})
		if !wanted && j.fits(&free) && h.closedWhy(j, &free) == "" {
			w.fail("P12: %s returns to %s, where it failed, though %s has been idle for %v", j, to, h.peer, h.idleFor())
		}
	}
}

// waitsElsewhere reports whether the job may wait for another host than this one, where it failed. If it is offered
// there, it has waited for that long enough.
func (j *work) waitsElsewhere(h *host) bool {
	return j.failedAt(h) && j.newest[h].id == 0 && slices.ContainsFunc(j.world().hosts, func(other *host) bool {
		return j.could(other) && other.takes(j.owner) && !j.failedAt(other)
	})
}

// failedAt reports whether the job failed at the host by itself: not because its user ended the attempt or its owner
// wrote it off.
func (j *work) failedAt(h *host) bool {
	return slices.ContainsFunc(j.tries, func(p *proc) bool {
		return p.h == h && p.over && (p.exit.State == job.Failed || p.exit.State == job.Timeout) && !j.spec.Saved(p.exit) && !slices.Contains(j.asked, p.attempt.N) && !slices.Contains(j.lost, p.attempt.N)
	})
}

// idleFor returns for how long nothing has run at the host.
func (h *host) idleFor() time.Duration {
	last := time.Duration(0)
	for _, j := range h.ref().works {
		for _, p := range j.tries {
			switch {
			case p.h != h:
			case !p.over:
				return 0
			default:
				last = max(last, p.overAt)
			}
		}
	}
	return h.w.now - last
}

// unassigned checks that no living attempt is written off (R4).
func (w *world) unassigned(r job.UnassignRecord) {
	j := w.byID[r.Attempt.Job]
	if j == nil {
		return
	}
	j.lost = append(j.lost, r.Attempt.N)
	for _, p := range j.tries {
		if p.attempt == r.Attempt && !p.over && r.Proof != job.ProofOperator {
			w.fail("R4: %s was written off (%s, %s) while it runs at %s", r.Attempt, r.Proof, r.Detail, p.h.peer)
		}
	}
}

// result checks that the results in a journal are true.
func (w *world) result(r job.ResultRecord) {
	j := w.byID[r.Attempt.Job]
	if j == nil {
		return
	}
	if r.Exit.State != job.Succeeded {
		return
	}
	for _, p := range j.tries {
		if p.attempt == r.Attempt && p.over && p.exit.State == job.Succeeded {
			return
		}
	}
	w.fail("the journal says that %s succeeded, which it did not", r.Attempt)
}

// saves checks a job's row that its owner has just saved.
func (w *world) saves(o *owner, id job.ID) {
	j := w.byID[id]
	if j == nil {
		return
	}
	row, ok := o.core.View().Durable(id)
	if !ok {
		return
	}
	before := j.state
	j.state, j.reason = row.State(), row.Tasks[0].Reason
	if j.state.Ended() && !before.Ended() {
		j.endAt = w.now
		w.stats.ended++
	}
}

// checkProc checks each process that starts (P5): no attempt starts twice, no task runs twice at once, no device has
// two holders, the host does not use more CPUs than it has, and nothing runs beside an exclusive task.
func (w *world) checkProc(p *proc) {
	h := p.h
	if p.j == nil {
		w.fail("P5: %s starts %s, whose job no journal has", h.peer, p.attempt)
		return
	}
	j := p.work()
	w.logf("%s starts %s on %v until %v", h.peer, p.attempt, p.task.Devices, time.Duration(p.deadline))
	for _, other := range j.tries {
		if other.attempt == p.attempt {
			w.fail("P5: %s starts %s, which was started before at %s", h.peer, p.attempt, other.h.peer)
		}
		if other.attempt.Task != p.attempt.Task {
			if !other.over && (other.h == h || other.attempt.N != p.attempt.N) {
				w.fail("P5: %s starts %s while %s of the same gang runs at %s", h.peer, p.attempt, other.attempt, other.h.peer)
			}
			continue
		}
		if !other.over {
			w.fail("P5: %s starts %s while %s runs at %s", h.peer, p.attempt, other.attempt, other.h.peer)
		}
	}
	need := p.task.Spec.Resources
	if want := gpu.Count(j.spec.Resources); len(p.task.Devices) != want && (!j.spec.Exclusive || len(p.task.Devices) < want) {
		w.fail("P5: %s starts %s with %d devices, want %d", h.peer, p.attempt, len(p.task.Devices), want)
	}
	if j.spec.Exclusive && need.CPUs != h.cfg.Profile.CPUs {
		w.fail("P5: %s starts %s for itself with %d CPUs", h.peer, p.attempt, need.CPUs)
	}
	cpus := need.CPUs
	milli := map[string]int{}
	share := gpu.Milli(need)
	for _, d := range p.task.Devices {
		milli[d] = share
	}
	for _, other := range h.procs {
		if other.over {
			continue
		}
		if j.spec.Exclusive || other.j.spec.Exclusive {
			w.fail("P5: %s starts %s beside %s, and one of them is exclusive", h.peer, p.attempt, other.attempt)
		}
		cpus += other.task.Spec.Resources.CPUs
		for _, d := range other.task.Devices {
			if _, mine := milli[d]; mine {
				milli[d] += gpu.Milli(other.task.Spec.Resources)
			}
		}
	}
	if cpus > h.cfg.Profile.CPUs {
		w.fail("P5: %s starts %s, and gives away %d CPUs of %d", h.peer, p.attempt, cpus, h.cfg.Profile.CPUs)
	}
	for d, n := range milli {
		if n > gpu.Whole {
			w.fail("P5: %s starts %s on %s, of which others hold %d thousandths", h.peer, p.attempt, d, n-share)
		}
	}
}

// fenced checks that a task is not ended for lack of a lease while its owner and its host can reach each other (P4).
func (w *world) fenced(p *proc) {
	l := p.j.owner.links[p.h.peer]
	w.stats.fenced++
	if usable := l.usable(); usable > settleTime {
		w.fail("P4: the lease of %s at %s ran out, though %s could reach it for %v", p.attempt, p.h.peer, l.o.peer, usable)
	}
}

// stopped checks that a healthy task is told to end only for a reason (P4).
func (w *world) stopped(p *proc, reason string) {
	j := p.work()
	if p.over || p.killing || j.cancelled || j.spec.Preemptible && strings.HasPrefix(reason, "preempted by") || p.attempt.N <= j.requeued || p.h.draining.On {
		return
	}
	for _, other := range j.tries {
		if other != p && other.over && other.exit.State == job.Succeeded {
			return // its work is already done
		}
	}
	if t := w.tables[j.owner].Job(j.id); t != nil && j.spec.Nodes > 1 && t.Ending(p.attempt.Task) == job.EndsGang {
		return // another member has ended badly
	}
	if j.attempt != p.attempt.N || !j.assigned || j.spec.Nodes > 1 && !w.tables[j.owner].Job(j.id).Brief(p.attempt.Task).Assigned {
		return // written off; the reason is checked there
	}
	w.fail("P4: %s at %s is told to end: %s", p.attempt, p.h.peer, reason)
}
