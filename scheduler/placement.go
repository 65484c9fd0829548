package scheduler

// Placement: where a waiting task goes, and which waiting task may go to a host that got room.
// See docs/adr, ADR 78.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/policy"
	"github.com/musterhq/muster/scheduler/step"
)

// placement puts the questions of a step to the placer. It changes nothing: the caller acts on the answers.
type placement struct {
	*step.Turn
	policies *policies
	hosts    *hosts
	pending  *pending
	placer   *place.Placer
	leftOut  *leftOut
}

// newPlacer returns the placer of an owner.
func newPlacer(cfg *step.Config, hs *hosts, ps *policies) *place.Placer {
	p := place.New(&hs.fleet, &ps.typical)
	if cfg.Candidates > 0 {
		p.Sample = cfg.Candidates
	}
	return p
}

// asks returns what the placer needs to know of the task.
func (pl *placement) asks(t *task) place.Task {
	x := place.Task{Request: t.request(), Policy: pl.policies.named[pl.policies.of(&t.e.job.Spec)], Avoid: pl.leftOut.add(t.e, t.avoid, pl.Now)}
	if len(t.e.avoidedHosts) > 0 {
		x.Avoid = append(slices.Clone(t.e.avoidedHosts), x.Avoid...)
	}
	if d := t.dispatch; d != nil && d.gang != nil {
		x.Home = d.gang.homeAt(pl.Now.Sub(t.e.born), pl.Config.GangHold)
	}
	pl.placer.FindElsewhere(&x, pl.Now)
	return x
}

// leaves reports whether the job of the task leaves the host out while another host could take the task, and until when.
func (pl *placement) leaves(t *task, p job.Peer) (until time.Time, leaves bool) {
	until, leaves = pl.leftOut.refuses(t, p, pl.Now)
	if leaves {
		leaves = pl.asks(t).Elsewhere
	}
	return until, leaves
}

// near reports whether the policy of the task goes by the cost of paths.
func (pl *placement) near(t *task) bool {
	_, near := pl.policies.named[pl.policies.of(&t.e.job.Spec)].(policy.Nearer)
	return near
}

// racks returns the racks where the members of a gang could go, the best first; none if its policy does not go by the
// cost of paths.
func (pl *placement) racks(t *task) []place.Part {
	if !pl.near(t) {
		return nil
	}
	x := pl.asks(t)
	return pl.placer.Parts(&x, policy.RackLabel, t.e.job.Gang())
}

// decide says where the task goes. The search of the hosts begins at the slot from. The decision is valid until the
// next question.
func (pl *placement) decide(t *task, from int) place.Decision {
	x := pl.asks(t)
	return pl.placer.Decide(&x, from, pl.Now)
}

// more returns one more full host at which the dispatch may queue, or nil, and the hosts where tasks of a lower priority
// would overtake its task. Both are valid until the next question.
func (pl *placement) more(d *dispatch, from int) (next *fleet.Host, passed []*fleet.Host) {
	x := pl.asks(d.task)
	for _, o := range d.offers {
		x.At = append(x.At, o.worker.Host)
	}
	if hosts := pl.placer.Queue(&x, from, pl.Now); len(hosts) > 0 {
		next = hosts[0]
	}
	return next, pl.placer.Passed(&x, 0)
}

// gather says where those members of a gang go that have no host yet: where they fit now, and where they may queue.
// Hosts that have an offer of the gang are left out. If all of these members fit somewhere now, they go there. Otherwise
// they go where homeAt says: to the home of the gang, or to any hosts, in turns.
func (pl *placement) gather(t *task, g *gang, offers []*offer, missing, more, from int) ([]place.Spot, []*fleet.Host, []place.Again) {
	x := pl.asks(t)
	home := g.homeAt(pl.Now.Sub(t.e.born), pl.Config.GangHold)
	for _, o := range offers {
		x.At = append(x.At, o.worker.Host)
	}
	if home != (place.Home{}) {
		x.Home = place.Home{}
		if fits, _, again := pl.placer.Gather(&x, from, pl.Now, missing, 0); len(fits) == missing {
			return fits, nil, again
		}
	}
	x.Home = home
	return pl.placer.Gather(&x, from, pl.Now, missing, more)
}

// until returns when a gang that found no room is placed again; zero: once a host gets room.
func (pl *placement) until(t *task) time.Time {
	x := pl.asks(t)
	return pl.placer.Until(&x, pl.Now)
}

// preemptAt returns the hosts where preemptible tasks can make room for the missing members of a gang; nil if there are
// not enough.
func (pl *placement) preemptAt(d *dispatch, from, missing int) []*fleet.Host {
	x := pl.asks(d.task)
	for _, o := range d.offers {
		if o.seat.state != inQueue || o.seat.preempt {
			x.At = append(x.At, o.worker.Host)
		}
	}
	return pl.placer.PreemptAt(&x, from, pl.Now, missing)
}

// preempt returns the host where preemptible tasks are to make room for the task; nil if there is none. If the task
// already queues at as many hosts as it may, the host is one of these.
func (pl *placement) preempt(d *dispatch, from int) *fleet.Host {
	x := pl.asks(d.task)
	if d.wantsMore() {
		return pl.placer.Preempt(&x, from, pl.Now)
	}
	hosts := make([]*fleet.Host, len(d.offers))
	for i, o := range d.offers {
		hosts[i] = o.worker.Host
	}
	return pl.placer.PreemptAmong(&x, hosts, pl.Now)
}

// devicesAt chooses devices for a task that is offered to the host in any case; none if it does not fit there now.
func (pl *placement) devicesAt(t *task, h *fleet.Host) []string {
	x := pl.asks(t)
	return pl.placer.DevicesAt(&x, h)
}

// pick is the result of a search for a waiting task that a host may take.
type pick struct {
	task    *task       // that the host may take; nil if none was found
	stopped *fleet.Rank // the last task that was looked at, if the search stopped at the bound of looks; else nil
	again   time.Time   // when the host is to be compared with the waiting tasks again; zero: not for these tasks
}

// askAgain notes that the host is to be compared with a task again at this time; zero: it is not.
func (p *pick) askAgain(at time.Time) {
	if p.again.IsZero() || !at.IsZero() && at.Before(p.again) {
		p.again = at
	}
}

// nextParked finds the first parked task, beyond those that were looked at before, that fits at the host now or may
// queue there. It subtracts the tasks that it looked at from looks.
func (pl *placement) nextParked(w *worker, looks *int) pick {
	lim := limits{left: pl.hosts.fleet.Row(w.Slot()).Left, most: pl.hosts.fleet.Most(w.Host)}
	lim.queues, lim.before = pl.hosts.fleet.Queue(w.Host)
	var found pick
	found.task, found.stopped = pl.pending.parked.next(w.resume.parked, lim, looks, func(t *task) bool {
		if !pl.hosts.fleet.Could(&t.shape.Shape, w.Host) { // rules out most tasks before more of them is read
			return false
		}
		x := pl.asks(t)
		may, again := pl.placer.MayTake(&x, w.Host, pl.Now)
		found.askAgain(again)
		return may
	})
	return found
}

// nextQueued finds the first task, beyond those that were looked at before, that queues at other hosts and fits at this
// one now. It subtracts the tasks that it looked at from looks.
func (pl *placement) nextQueued(w *worker, looks *int) pick {
	lim := limits{left: pl.hosts.fleet.Row(w.Slot()).Left}
	var found pick
	found.task, found.stopped = pl.pending.queued.next(w.resume.queued, lim, looks, func(t *task) bool {
		if t.dispatch.at(w.Host) || !t.dispatch.wantsMore() {
			return false
		}
		x := pl.asks(t)
		may, again := pl.placer.MayTakeQueued(&x, w.Host, pl.Now)
		found.askAgain(again)
		return may
	})
	return found
}
