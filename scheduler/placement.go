package scheduler

// Placement: which host is the best for a task, or at which full hosts it queues.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// placement chooses hosts for tasks. It changes nothing but when hosts are compared again with the tasks that avoid them.
type placement struct {
	*turn
	hosts   *hosts
	pending *pending
	policy  policy.Policy
}

// soonest is when to try again to place a task that avoids hosts: when its first pause is over, or sooner if a host
// that it does not avoid may get room before. It is zero for a task that avoids no host.
func (pl *placement) soonest(t *task) time.Time {
	var until time.Time
	for _, a := range t.avoid {
		w := pl.hosts.workers[a.peer]
		if !a.hard || !a.until.After(pl.now) || w == nil || !w.Open() || !pl.hosts.fleet.Could(&t.shape.Shape, w.Host) {
			continue
		}
		if until.IsZero() || a.until.Before(until) {
			until = a.until
		}
	}
	if until.IsZero() {
		return until
	}
	if soon := pl.now.Add(retryWait); until.After(soon) && pl.askable(t) {
		return soon
	}
	return until
}

// askable says whether there is an open host that the task does not avoid.
func (pl *placement) askable(t *task) bool {
	for h := range pl.hosts.fleet.Candidates(&t.shape.Shape) {
		if a, against := t.avoid.at(pl.now, h.Peer); h.Open() && (!against || !a.hard) {
			return true
		}
	}
	return false
}

// policyHost is the host in the words of a policy.
func policyHost(h *fleet.Host, free *lease.Free) policy.Host {
	return policy.Host{
		Peer: h.Peer, Name: h.Name(), Local: h.Local, Profile: &h.Profile, Free: *free, Alike: h.Devices.Alike(),
	}
}

// nextParked is the first parked task, of those not looked at yet, that fits at the host now or may queue there.
func (pl *placement) nextParked(w *worker, b *budget) (t *task, stopped bool) {
	pl.hosts.fleet.Count(pl.now)
	lim := limits{left: pl.hosts.fleet.Left(w.Host), most: pl.hosts.fleet.Most(w.Host)}
	lim.queues, lim.before = pl.hosts.fleet.Queue(w.Host)
	t, at := pl.pending.parked.next(w.resume.parked, lim, &b.looks, func(t *task) bool { return pl.mayTry(t, w) })
	if t == nil {
		w.resume.parked = at
	}
	return t, at != nil
}

// mayTry says whether the parked task would find room at the host, or a place in its queue.
func (pl *placement) mayTry(t *task, w *worker) bool {
	if !pl.hosts.fleet.Could(&t.shape.Shape, w.Host) || t.shape.OverQuota(w.Host) != "" {
		return false
	}
	if a, against := t.avoid.at(pl.now, w.Peer); against && a.hard {
		pl.hosts.askAgain(w, a.until)
		return false
	}
	r := t.request()
	if pl.hosts.fleet.MayQueue(w.Host, &r.Rank) {
		return true
	}
	if a, against := t.avoid.at(pl.now, w.Peer); against && a.kept {
		return false
	}
	return r.Foot.Within(pl.hosts.fleet.Left(w.Host)) && r.FitsNow(w.Host)
}

// nextQueued is the first task, of those not looked at yet, that queues at other hosts and fits at this one now.
func (pl *placement) nextQueued(w *worker, b *budget) (t *task, stopped bool) {
	pl.hosts.fleet.Count(pl.now)
	t, at := pl.pending.queued.next(w.resume.queued, limits{left: pl.hosts.fleet.Left(w.Host)}, &b.looks, func(t *task) bool {
		return len(t.dispatch.offers) < spreadMost && pl.couldAlso(t, w)
	})
	if t == nil {
		w.resume.queued = at
	}
	return t, at != nil
}

// couldAlso says whether a task that queues elsewhere fits at this host now.
func (pl *placement) couldAlso(t *task, w *worker) bool {
	if t.dispatch.at(w.Host) {
		return false
	}
	r := t.request()
	if !pl.hosts.fleet.Could(r.Shape, w.Host) || r.OverQuota(w.Host) != "" || !r.FitsNow(w.Host) {
		return false
	}
	a, against := t.avoid.at(pl.now, w.Peer)
	if against && !a.kept {
		pl.hosts.askAgain(w, a.until)
		return false
	}
	return true
}

// anySlot is where a search of the fleet begins: at a random slot if there are many hosts, so that schedulers do not
// all choose the same one.
func (pl *placement) anySlot() int {
	if n := pl.hosts.fleet.Slots(); n > sampleSize {
		return pl.rng.IntN(n)
	}
	return 0
}

// choice is a host where a task fits, and its score.
type choice struct {
	host    *fleet.Host
	rated   policy.Host // the same, in the words of the policy
	score   float64
	shunned bool // the task avoids it while there is another
}

// better says whether a is to be taken rather than b: shunned hosts come last, others in the policy's order.
func (a *choice) better(b *choice) bool {
	if b.host == nil || a.shunned != b.shunned {
		return b.host == nil || b.shunned
	}
	return policy.Compare(a.rated, b.rated, a.score, b.score) < 0
}

// bestFit is the host that the policy prefers of those where the task fits now, and the devices that the task gets
// there; nil if it fits nowhere. It looks at this daemon's own host and at up to sampleSize others.
func (pl *placement) bestFit(t *task) (*worker, []string) {
	r := t.request()
	var best choice
	fitting := 0
	consider := func(h *fleet.Host) {
		if x, ok := pl.fitsAt(t, &r, h); ok {
			fitting++
			if x.better(&best) {
				best = x
			}
		}
	}
	if own := pl.hosts.workers[pl.cfg.Self]; own != nil && pl.hosts.fleet.Could(r.Shape, own.Host) {
		consider(own.Host)
	}
	table := &pl.hosts.fleet
	for h := range table.WithRoom(r.Shape, pl.anySlot()) {
		if !h.Local {
			consider(h)
		}
		if fitting >= sampleSize && !best.shunned {
			break
		}
	}
	if best.host == nil {
		return nil, nil
	}
	devices, _ := best.host.Devices.Fit(r.Need, &best.rated.Free)
	return pl.hosts.workers[best.host.Peer], devices
}

// fitsAt says whether the task, whose request is r, fits at the host now, and how well.
func (pl *placement) fitsAt(t *task, r *fleet.Request, h *fleet.Host) (choice, bool) {
	if !r.Foot.Within(pl.hosts.fleet.Left(h)) {
		return choice{}, false
	}
	against := false
	if len(t.avoid) > 0 {
		var a avoidance
		if a, against = t.avoid.at(pl.now, h.Peer); against && a.hard {
			pl.hosts.askAgain(pl.hosts.workers[h.Peer], a.until)
		}
		if against && (a.hard || a.kept) {
			return choice{}, false
		}
	}
	free := h.LeftFor(&r.Rank)
	if r.OverQuota(h) != "" || !h.Devices.Suffices(r.Need, free) {
		return choice{}, false
	}
	x := policyHost(h, free)
	return choice{host: h, rated: x, score: pl.policy.Score(r.Need, x), shunned: against}, true
}

// queueAt chooses the full hosts at which the task queues. Of up to sampleSize hosts it takes those with the fewest
// queued tasks; those where the task has just failed come last.
func (pl *placement) queueAt(t *task) []*worker {
	type spot struct {
		host    *fleet.Host
		against bool
	}
	var spots []spot
	r := t.request()
	for h := range pl.hosts.fleet.WithQueue(&r, pl.anySlot()) {
		a, against := t.avoid.at(pl.now, h.Peer)
		if against && a.hard || r.OverQuota(h) != "" || t.dispatch != nil && t.dispatch.at(h) {
			continue
		}
		if spots = append(spots, spot{h, against && !a.kept}); len(spots) >= sampleSize {
			break
		}
	}
	slices.SortStableFunc(spots, func(a, b spot) int {
		if a.against != b.against {
			if b.against {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.host.Claims.Queued(), b.host.Claims.Queued())
	})
	hosts := make([]*worker, 0, queueHosts)
	for _, s := range spots[:min(len(spots), queueHosts)] {
		hosts = append(hosts, pl.hosts.workers[s.host.Peer])
	}
	return hosts
}

// budget bounds what one step tries. The rest is left to the next step.
type budget struct {
	tries int // placements
	looks int // parked and queued tasks that are compared with a host that got room
}

func (b *budget) spent(t *turn) bool {
	return b.tries <= 0 || b.looks <= 0 || t.outgoing >= maxOutgoing
}
