package scheduler

// What this scheduler believes of the hosts: who has a session, what is free
// there, and what is offered.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/policy"
)

// worker is one host. All of it is soft: a hint that a Decline may correct.
type worker struct {
	peer     job.Peer
	profile  lease.Profile
	devices  map[string]gpu.Device
	free     lease.Free    // as it said last
	freeOf   []*gpu.Device // the device of each of free.GPUs; nil for one that it does not list
	seq      uint64
	hellos   uint64
	leases   uint64    // renewals answered
	renewing int       // renewals that wait for a round
	waiting  []*flight // that wait for a lease there
	up       bool      // has a session and said Hello in it
	draining bool
	detail   string
	seen     time.Time
	quotas   map[string]*quota // by user

	offers   []*offer // in flight, oldest first
	standing int      // of them queued there
	owed     []claim  // committed since it last said what is free

	table *hosts // that it is in; nil once it was forgotten
	slot  int    // there
	stale bool   // in hosts.stale
	room  *lease.Free
	rest  *lease.Free // room less what is set aside for all that queue there
	last  *task       // of those the last by rank
	// lastOut is the offer that gives way to a task that ranks before it; nil where
	// there is a place.
	lastOut *offer

	misses    int       // offers in a row that it declined for lack of the room that it had told
	refusals  int       // offers in a row that it did not let queue
	leaseless bool      // has committed without a live lease: it is offered nothing before it has one
	deafUntil time.Time // it is offered nothing before
	askAt     time.Time // a timer compares the waiting tasks with it then

	roomy  bool   // in Core.roomy
	again  bool   // has got more room since resume began
	resume resume // in Core.fill
}

// claim is what an offer takes from what is free.
type claim struct {
	need    job.Resources
	devices []string
}

// open says whether the host takes new tasks, as far as this scheduler goes.
func (w *worker) open() bool { return w.up && !w.draining && w.profile.Worker }

func (w *worker) name() string {
	if w.profile.Name != "" {
		return w.profile.Name
	}
	return w.peer.Short()
}

// setFree takes the host's own word, which has all its commits in it.
func (w *worker) setFree(f lease.Free) {
	w.free, w.owed = f, nil
	w.freeOf = w.freeOf[:0]
	for _, g := range f.GPUs {
		var listed *gpu.Device
		if i := slices.IndexFunc(w.profile.GPUs, func(d gpu.Device) bool { return d.UUID == g.UUID }); i >= 0 {
			listed = &w.profile.GPUs[i]
		}
		w.freeOf = append(w.freeOf, listed)
	}
	w.table.touch(w)
}

func (w *worker) addOffer(o *offer) {
	w.offers = append(w.offers, o)
	if o.standing {
		w.standing++
	}
	w.probes(o)
	w.table.touch(w)
}

func (w *worker) dropOffer(o *offer) {
	i := slices.Index(w.offers, o)
	if i < 0 {
		return
	}
	w.offers = slices.Delete(w.offers, i, i+1)
	if o.standing {
		w.standing--
	}
	w.table.touch(w)
}

// holdOffer turns an offer into something that the host holds; until it next
// says what is free, that must be counted here.
func (w *worker) holdOffer(o *offer, devices []string) {
	if o.standing {
		o.standing = false
		w.standing--
	}
	o.held = true
	w.owed = append(w.owed, claim{need: o.claim.need, devices: devices})
	w.table.touch(w)
}

// roomFor is what is free for the task: less what is committed and offered, and
// less what is set aside for those queued there before it.
func (w *worker) roomFor(t *task) lease.Free {
	if w.standing == 0 {
		return *w.less()
	}
	if w.rest == nil {
		rest, last := w.lessQueued(nil)
		w.rest, w.last = &rest, last
	}
	if w.last == nil || w.last != t && rank(w.last, t) < 0 {
		return *w.rest
	}
	free, _ := w.lessQueued(t)
	return free
}

// lessQueued is what is left when all that queue at the host before the task have
// what they need, or as much of it as there is; nil stands behind all. last is
// the last of them.
func (w *worker) lessQueued(t *task) (free lease.Free, last *task) {
	free = *w.less()
	free.GPUs = slices.Clone(free.GPUs)
	for _, o := range w.offers {
		queued := o.flight.task
		if !o.standing || queued == t || t != nil && rank(queued, t) > 0 {
			continue
		}
		if last == nil || rank(last, queued) < 0 {
			last = queued
		}
		if need := queued.group.need; w.sound(need) {
			able := choose(need, &free, w.devices)
			take(need, &free, able[:min(len(able), gpusOf(need))])
		}
	}
	return free, last
}

// fitsNow says whether the task fits there now.
func (w *worker) fitsNow(t *task) bool {
	if w.full() {
		return false
	}
	free := w.roomFor(t)
	return w.suffices(t.group.need, &free)
}

// suffices says whether the need could be met from what is free, as fits does,
// without choosing devices.
func (w *worker) suffices(need job.Resources, free *lease.Free) bool {
	if free.CPUs < need.CPUs || free.Memory < need.Memory {
		return false
	}
	n := gpusOf(need)
	if n == 0 {
		return true
	}
	milli := shareMilli(need)
	var like *gpu.Device // the device that was looked at last, and what came of it
	meets := false
	for i := range free.GPUs {
		g, d := &free.GPUs[i], w.freeOf[i]
		if d == nil || g.Milli < milli || g.Memory < need.GPUMemory {
			continue
		}
		if like == nil || d.Class != like.Class || d.Memory != like.Memory || d.Parent != "" || like.Parent != "" {
			like, meets = d, lease.GPUMeets(*d, need)
		}
		if meets {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// sound says whether the host could meet the need with devices that are not set
// aside; for one that waits for a repair nothing is kept.
func (w *worker) sound(need job.Resources) bool {
	n := gpusOf(need)
	if n == 0 || len(w.free.Aside) == 0 {
		return true
	}
	return meeting(slices.DeleteFunc(slices.Clone(w.profile.GPUs), func(d gpu.Device) bool {
		return slices.Contains(w.free.Aside, d.UUID)
	}), need) >= n
}

// heldBack says whether the need does not fit, and would if the host gave its
// unsound devices away, too.
func (w *worker) heldBack(need job.Resources) bool {
	if len(w.free.Aside) == 0 || lackOf(need, w.free, w.devices) != "gpus" {
		return false
	}
	free := w.free
	free.GPUs = slices.Clone(free.GPUs)
	for _, uuid := range free.Aside {
		free.GPUs = append(free.GPUs, lease.FreeGPU{UUID: uuid, Memory: w.devices[uuid].Memory, Milli: wholeMilli})
	}
	return lackOf(need, free, w.devices) == ""
}

func (w *worker) lessCommitted() *lease.Free {
	free := w.free
	free.GPUs = slices.Clone(free.GPUs)
	for _, c := range w.owed {
		take(c.need, &free, c.devices)
	}
	for _, o := range w.offers {
		if !o.standing && !o.held {
			take(o.claim.need, &free, o.claim.devices)
		}
	}
	return &free
}

// host is the worker in the words of a policy.
func (c *Core) host(w *worker, free lease.Free) policy.Host {
	return policy.Host{Peer: w.peer, Name: w.name(), Local: w.peer == c.cfg.Self, Profile: &w.profile, Free: free}
}

func (c *Core) sessionUp(p job.Peer) {
	if c.sessions[p] != 0 {
		c.sessionDown(p)
	}
	c.sessionSeq++
	c.sessions[p] = c.sessionSeq
	if c.lead {
		c.send(p, c.owns())
	}
}

func (c *Core) owns() lease.Owns {
	return lease.Owns{Groups: []lease.GroupEpoch{{Group: c.cfg.Group, Epoch: c.epoch}}}
}

func (c *Core) sessionDown(p job.Peer) {
	delete(c.sessions, p)
	c.lostTouch(p)
	w := c.workers[p]
	if w == nil || !w.up {
		return
	}
	w.up, w.seen = false, c.now
	if len(c.byNode[p]) > 0 {
		c.tell(Told{Kind: WorkerLost, Peer: p, Node: w.name(), Detail: fmt.Sprintf("%d tasks run there", len(c.byNode[p]))})
	} else {
		c.tell(Told{Kind: WorkerGone, Peer: p, Node: w.name()})
	}
	for _, o := range slices.Clone(w.offers) {
		c.offerGone(o, avoidance{})
	}
	for _, f := range w.waiting {
		c.over(f)
	}
	w.waiting = nil
	w.setFree(lease.Free{})
	c.forgetQuotas(w)
	for _, t := range c.tasksAt(p) {
		t.reported, t.cancelSent = false, false
		c.changed(t.e)
		c.watch(t, c.writeOffAt(t))
	}
}

func (c *Core) hello(p job.Peer, m lease.Hello) {
	w := c.workers[p]
	known := w != nil
	if !known {
		if len(c.workers) >= maxWorkers && !c.forgetOne() {
			return
		}
		w = &worker{peer: p, quotas: map[string]*quota{}}
		c.workers[p] = w
	}
	if !w.up {
		c.tell(Told{Kind: WorkerFound, Peer: p, Node: m.Profile.Name})
	}
	m.Profile.Peer = p
	w.profile, w.up, w.draining, w.detail, w.seq, w.seen = m.Profile, true, false, "", 0, c.now
	w.hellos++
	w.devices = make(map[string]gpu.Device, len(m.Profile.GPUs))
	for _, d := range m.Profile.GPUs {
		w.devices[d.UUID] = d
	}
	if known {
		c.hosts.profiled(w)
	} else {
		c.hosts.add(w)
	}
	w.setFree(m.Free)
	c.profiles++
	c.freed(w)
	for _, t := range c.tasksAt(p) {
		c.changed(t.e)
		if c.sameStore(t, w) {
			c.watch(t, c.now.Add(reportWait))
		} else {
			c.watch(t, c.writeOffAt(t))
		}
	}
	c.retryMatches()
}

// forgetOne makes room by forgetting the host that has been away longest.
func (c *Core) forgetOne() bool {
	var oldest *worker
	for _, w := range c.workers {
		if !w.up && len(c.byNode[w.peer]) == 0 && (oldest == nil || w.seen.Before(oldest.seen) ||
			w.seen.Equal(oldest.seen) && w.peer < oldest.peer) {
			oldest = w
		}
	}
	if oldest != nil {
		c.forgetHost(oldest)
	}
	return oldest != nil
}

func (c *Core) forgetHost(w *worker) {
	delete(c.workers, w.peer)
	c.hosts.remove(w)
	c.forgetQuotas(w)
	for _, g := range c.groups {
		delete(g.never, w.peer)
	}
	c.profiles++
}

func (c *Core) availability(w *worker, m lease.Availability) {
	if m.Seq != 0 && m.Seq <= w.seq {
		return
	}
	w.seq, w.draining, w.detail = m.Seq, m.Draining, m.Detail
	w.setFree(m.Free)
	c.freed(w)
	for _, user := range m.UnderQuota {
		c.easeQuota(w, user)
	}
}

// freed notes that a host may take more than when the waiting tasks were last
// compared with it.
func (c *Core) freed(w *worker) {
	if w.roomy {
		w.again = true
		return
	}
	w.roomy = true
	c.roomy = append(c.roomy, w)
}

// forgetWorkers drops hosts that have been away for long; the timer renews itself.
func (c *Core) forgetWorkers() {
	for _, w := range c.hosts.all {
		if w != nil && !w.up && len(c.byNode[w.peer]) == 0 && c.now.Sub(w.seen) >= forgetWorker {
			c.forgetHost(w)
		}
	}
	for store, at := range c.renewed {
		if c.now.Sub(at) >= forgetWorker+job.MaxLease {
			delete(c.renewed, store)
		}
	}
	c.after(forgetWorker/4, c.forgetWorkers)
}
