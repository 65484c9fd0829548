package scheduler

// Gangs: the members are offered to hosts until as many hosts as the gang has members hold a place each. Then all are
// started.
//
// A gang that lacks places may keep those that it has, because a gang that ranks before it can always take them: the
// hosts decide that by the one order of all offers. It keeps them no longer than Config.GangHold.
// See docs/adr, ADR 89.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// gangs gathers hosts for gangs.
type gangs struct {
	*step.Turn
	entries    *entries
	hosts      *hosts
	pending    *pending
	placement  *placement
	offers     *offers
	dispatches *dispatches
	seats      *seats
	starts     *gangStarts
	neighbours *neighbours
}

// begin offers the members of a gang to hosts, if enough hosts have room for a member or a place in their queues.
func (gs *gangs) begin(t *task) place.Verdict {
	size := t.e.job.Gang()
	if !gs.hosts.fleet.EnoughOpen(&t.shape.Shape) {
		return place.Blocked
	}
	racks := gs.placement.racks(t)
	if gs.neighbours.ofRacks(t, racks, size) {
		return place.Pauses
	}
	g := &gang{size: size, home: place.HomeOf(racks, size)}
	fits, queue, again := gs.placement.gather(t, g, nil, size, g.most(), gs.hosts.anySlot())
	for _, a := range again {
		gs.hosts.askAgain(gs.hosts.workers[a.Host.Peer], a.At)
	}
	if len(fits)+len(queue) < size {
		if until := gs.placement.until(t); !until.IsZero() {
			gs.pending.pause(t, until)
			return place.Pauses
		}
		return place.Blocked
	}
	gs.pending.dispatched(t)
	d := gs.dispatches.begin(t, "")
	d.gang = g
	gs.pending.queued.add(t)
	gs.seats.offerFits(d, fits)
	gs.seats.offerQueue(d, queue)
	gs.offers.changed(d)
	if len(fits) == size {
		return place.Fits
	}
	return place.Queues
}

// look goes on with the gangs whose offers have changed.
func (gs *gangs) look() {
	due := gs.offers.due
	gs.offers.due = nil
	for _, d := range due {
		d.gang.due = false
		if d.task.dispatch == d {
			gs.lookAt(d)
		}
	}
}

func (gs *gangs) lookAt(d *dispatch) {
	t, g := d.task, d.gang
	n := d.seats()
	if n[seated] != g.shown {
		t.e.showSeated(g, n[seated])
		gs.entries.changed(t)
	}
	gs.watchHold(d, n)
	switch {
	case t.phase == offering && n[seated] == g.size:
		gs.starts.assign(d)
	case t.phase != offering && n[seated] < g.size: // a host has taken its place back while the record was under way
		gs.giveBack(d, "a place was lost before the record was committed")
	case t.phase != offering:
	case n[seated]+n[promised] == g.size:
		gs.firm(d)
	default:
		gs.refill(d)
	}
	gs.dispatches.elections.look(d)
}

// watchHold bounds for how long the gang holds places while others are missing.
func (gs *gangs) watchHold(d *dispatch, n [seated + 1]int) {
	g := d.gang
	switch {
	case n[seated]+n[promised] == 0:
		g.since = time.Time{}
		d.gather(false)
	case g.since.IsZero():
		since := gs.Now
		g.since = since
		d.gather(gs.pending.shares.Counts())
		gs.After(gs.Config.GangHold, func() {
			if d.task.dispatch == d && g.since.Equal(since) {
				n := d.seats()
				gs.giveBack(d, fmt.Sprintf("%d of %d nodes held a place for %s, the others had no room", n[seated]+n[promised], g.size, job.Duration(gs.Config.GangHold)))
			}
		})
	}
}

// gather notes whether the gang keeps its places in queues. Where usage does not count, age alone decides at hosts and
// here, and there is nothing to keep.
func (d *dispatch) gather(keeps bool) {
	d.gang.gathers = keeps
	for _, o := range d.offers {
		fleet.Gather(o.worker.Host, &o.claim, keeps)
	}
}

// giveBack releases all places and offers of a gang. The gang waits for a while, and gathers again with the age that it has.
func (gs *gangs) giveBack(d *dispatch, why string) {
	t := d.task
	t.declines++
	t.wait(gs.Turn, backoff(t.declines), why)
	gs.dispatches.abandon(d)
}

// refill looks for hosts for the members that have none: hosts with room, then hosts where preemptible tasks can make room
// for all of them, then the queues of full hosts.
func (gs *gangs) refill(d *dispatch) {
	t := d.task
	missing := d.missing()
	if missing == 0 {
		return
	}
	gs.hosts.fleet.Count(gs.Now)
	from := gs.hosts.anySlot()
	fits, queue, again := gs.placement.gather(t, d.gang, d.offers, missing, d.gang.most()-len(d.offers), from)
	for _, a := range again {
		gs.hosts.askAgain(gs.hosts.workers[a.Host.Peer], a.At)
	}
	gs.seats.offerFits(d, fits)
	if missing -= len(fits); missing > 0 && !gs.preempt(d, missing, from) {
		gs.unpromise(d)
		gs.seats.offerQueue(d, queue)
	}
	if len(d.offers) == 0 {
		if t.pause.why == "" {
			t.pause.why = "no node had room for a member"
		}
		gs.giveBack(d, t.pause.why)
	}
}

// preempt has preemptible tasks make room for all members that are missing, or for none.
func (gs *gangs) preempt(d *dispatch, missing int, from int) bool {
	hosts := gs.placement.preemptAt(d, from, missing)
	fresh, spare := slices.Clone(hosts), d.gang.most()-len(d.offers)
	var queued []*offer
	for _, o := range d.offers {
		if i := slices.Index(fresh, o.worker.Host); i >= 0 {
			queued, fresh = append(queued, o), slices.Delete(fresh, i, i+1)
		} else if o.replaceable() {
			spare++
		}
	}
	if len(hosts) == 0 || len(fresh) > spare {
		return false
	}
	for _, o := range queued { // first, so that makeRoom does not take these back
		o.seat.preempt = true
		o.markElsewhere(false)
		gs.offers.sendOffer(o, queueWait)
	}
	for _, h := range fresh {
		gs.seats.makeRoom(d)
		gs.seats.offer(d, gs.hosts.workers[h.Peer], &seat{state: inQueue, waits: true, preempt: true}, nil)
	}
	return true
}

// unpromise takes back the offers for which hosts would preempt tasks, because not all members can have a place that
// way. The members queue there instead.
func (gs *gangs) unpromise(d *dispatch) {
	for _, o := range slices.Clone(d.offers) {
		if o.seat.preempt && !o.seat.firm && o.seat.state != seated {
			w := o.worker
			gs.offers.release(o)
			gs.offers.drop(o)
			gs.seats.queueAt(d, w)
		}
	}
}

// firm tells the hosts to end the tasks that they have named, because each member now has a place, or the promise of
// one.
func (gs *gangs) firm(d *dispatch) {
	for _, o := range d.offers {
		if o.seat.state == promised && !o.seat.firm {
			o.seat.firm = true
			gs.offers.sendOffer(o, queueWait)
		}
	}
}

// gangReason returns why a gang waits although its members are offered to hosts.
func (d *dispatch) gangReason() job.Reason {
	n := d.seats()
	var names []string
	for _, o := range d.offers {
		if o.seat.state < promised {
			names = append(names, o.worker.Name())
		}
	}
	text := fmt.Sprintf("%d of %d nodes hold a place", n[seated]+n[promised], d.gang.size)
	switch more := len(names) - namedHosts; {
	case len(names) == 0:
		text += "; waiting for room on others"
	case more > 0:
		text += fmt.Sprintf("; waiting for %s and %d more", strings.Join(names[:namedHosts], ", "), more)
	default:
		text += "; waiting for " + strings.Join(names, ", ")
	}
	return job.Reason{Word: job.ReasonGangWaiting, Detail: contract.Clip(text)}
}

// namedHosts bounds the hosts that the reason of a waiting gang names.
const namedHosts = 4
