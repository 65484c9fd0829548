package top

// Updates of the cluster: by listings, by events, and by readings of GPUs.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// The answer to load: hosts, then pages, and then loaded. They update what is known already, so that memory never holds
// the cluster twice.
type (
	hosts struct { // all nodes and GPUs
		nodes   []*node
		devices map[job.Peer][]*device
		partial string
		age     time.Duration
	}
	page struct {
		jobs  []*work
		ahead map[job.Group]float64 // as in cluster
	}
	loaded struct { // the end of the listing
		left  bool
		bytes int
		err   error // the listing is incomplete
	}
)

// list begins a listing. GPUs keep their histories.
func (c *cluster) list(h hosts) {
	c.round++
	c.partial, c.age, c.moved = h.partial, h.age, true
	old := c.nodes
	c.nodes, c.gpus = make(map[job.Peer]*node, len(h.nodes)), 0
	for _, n := range h.nodes {
		if c.nodes[n.id] != nil {
			continue
		}
		var gpus []*device
		if o := old[n.id]; o != nil {
			gpus = o.gpus
			*o = *n
			n = o
		}
		c.nodes[n.id] = n
		for _, d := range h.devices[n.id] {
			if i := slices.IndexFunc(gpus, func(o *device) bool { return o.uuid == d.uuid }); i >= 0 {
				gpus[i].renew(d)
				d = gpus[i]
			}
			c.addDevice(n, d)
		}
	}
}

// renew updates the GPU to what was reported now, and keeps its history.
func (d *device) renew(to *device) {
	r, of := to.reading, d.node
	to.reading, to.past = d.reading, d.past
	*d = *to
	d.node = of
	d.take(r)
}

// listed ends a listing. It drops jobs that are not in the listing and that no event has reported since it began. Jobs
// that have just ended stay.
func (c *cluster) listed(left bool) {
	c.left = left
	for id, w := range c.jobs {
		if w.round != c.round && !w.state.is().Ended() {
			c.drop(id)
		}
	}
}

// add notes jobs that were listed. Jobs of the previous listing stay until this one has ended, so there may be twice
// maxJobs. There would be more only if listings failed again and again.
func (c *cluster) add(p page) {
	maps.Copy(c.ahead, p.ahead)
	for _, w := range p.jobs {
		if c.jobs[w.id] == nil && len(c.jobs) >= 2*maxJobs {
			c.left = true
			return
		}
		c.put(w)
	}
}

// put notes the present state of a job.
func (c *cluster) put(w *work) {
	if old := c.jobs[w.id]; old != nil && old.same(w) {
		old.round = c.round
		return
	}
	c.drop(w.id)
	w.round = c.round
	c.jobs[w.id] = w
	if w.state.is().Ended() {
		c.over[w.id] = w
	}
	c.active, c.waiting = c.active+int(w.count.active), c.waiting+int(w.count.waiting)
	for i := 0; i < len(w.tasks) && !c.anew; i++ {
		c.fresh = append(c.fresh, &w.tasks[i])
	}
}

// drop forgets a job.
func (c *cluster) drop(id job.ID) {
	w := c.jobs[id]
	if w == nil {
		return
	}
	w.gone, c.gone = true, true
	c.active, c.waiting = c.active-int(w.count.active), c.waiting-int(w.count.waiting)
	delete(c.jobs, id)
	delete(c.over, id)
}

// device returns a GPU, or nil if there is no such GPU.
func (c *cluster) device(of job.Peer, uuid string) *device {
	if n := c.nodes[of]; n != nil {
		return n.device(uuid)
	}
	return nil
}

func (c *cluster) addDevice(n *node, d *device) {
	if n.device(d.uuid) != nil {
		return
	}
	d.node = n
	c.gpus++
	n.gpus = append(n.gpus, d)
	slices.SortFunc(n.gpus, func(a, b *device) int { return cmp.Compare(a.index, b.index) })
}

// hear notes an event. It returns true if the event does not say enough, so that everything must be listed again.
func (c *cluster) hear(e *api.Event, now time.Time) (again bool) {
	switch {
	case e.Kind == api.EventGap:
		return true
	case e.Kind == api.EventOpen || e.Kind == api.EventSilent:
		return e.NodeID != "" // events of this member may have been missed
	case e.Kind == api.EventGone:
		c.drop(e.ID)
	case e.Job != nil:
		c.hearJob(e.Job, now)
	case e.Node != nil:
		return c.hearNode(e.Node, now)
	case e.GPU != nil:
		return c.hearGPU(e.GPU, now)
	case e.Member != nil:
		if n := c.nodes[e.Member.ID]; n != nil && e.Member.State != api.PeerRevoked {
			c.moved = true
			n.state = clean(e.Member.State)
		}
		return true
	}
	return false
}

func (c *cluster) hearJob(j *api.Job, now time.Time) {
	if c.jobs[j.ID] == nil && len(c.jobs) >= maxJobs {
		c.left = true
		return
	}
	told := *j
	told.ClockAhead = c.ahead[j.ID.Group()] // events do not have it
	if w := workOf(&told, now); w != nil {
		c.put(w)
	}
}

func (c *cluster) hearNode(d *api.Node, now time.Time) (again bool) {
	old := c.nodes[d.ID]
	if old == nil {
		return true
	}
	c.moved = true
	devices := old.gpus
	*old = *nodeOf(d, now) // in place, because the GPUs refer to it
	old.gpus, old.seen = devices, now
	return false
}

func (c *cluster) hearGPU(g *api.GPU, now time.Time) (again bool) {
	old := c.device(g.NodeID, g.UUID)
	if old == nil {
		return true
	}
	d := deviceOf(g)
	d.reading = readingOf(g, now)
	old.renew(d)
	c.moved = true
	return false
}

// measure notes readings of GPUs.
func (c *cluster) measure(gpus []api.GPU, now time.Time) {
	for i := range gpus {
		if d := c.device(gpus[i].NodeID, gpus[i].UUID); d != nil {
			d.take(readingOf(&gpus[i], now))
		}
	}
}

// forget drops jobs that ended some time ago.
func (c *cluster) forget(now time.Time) (any bool) {
	for id, w := range c.over {
		if w.ended.since(now) >= endedFor {
			c.drop(id)
			any = true
		}
	}
	return any
}

// totals are sums over the nodes that answer.
type totals struct {
	nodes, lost, gpus int
	held              float64 // GPUs; a share of a GPU counts as a fraction
	busy              int     // mean utilization of the GPUs for which it is known; -1 unless all have a new reading
	power             float64
	running, waiting  int
}

func (c *cluster) totals(now time.Time) (t totals) {
	sum, known, fresh := 0, 0, 0
	for _, n := range c.nodes {
		t.nodes++
		if !n.answers() {
			t.lost++
			continue
		}
		for _, d := range n.gpus {
			t.gpus++
			t.held += d.held()
			r, ok := d.known()
			if !ok || d.stale(now) > 0 {
				continue
			}
			if fresh++; r.busy >= 0 {
				sum, known, t.power = sum+int(r.busy), known+1, t.power+float64(r.power)
			}
		}
	}
	t.running, t.waiting = c.active, c.waiting
	if t.busy = -1; known > 0 && fresh == t.gpus {
		t.busy = sum / known
	} else {
		t.power = 0
	}
	return t
}
