package top

// How what is known of the cluster changes: by listings, by events, and by readings of GPUs.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// loaded is the answer to load: all nodes, GPUs and jobs.
type loaded struct {
	nodes   []*node
	devices map[job.Peer][]*device
	jobs    []*work
	partial string
	age     time.Duration
	left    bool
	bytes   int
	err     error
}

// load replaces all that is known by a listing. GPUs keep their histories, and jobs that have just ended stay.
func (c *cluster) load(l loaded, now time.Time) {
	old := *c
	*c = *newCluster()
	c.partial, c.age, c.left = l.partial, l.age, l.left
	for _, n := range l.nodes {
		c.nodes[n.id] = n
		for _, d := range l.devices[n.id] {
			c.addDevice(n, d)
			if o := old.device(n.id, d.uuid); o != nil {
				r := d.reading
				d.reading, d.past = o.reading, o.past
				d.take(r)
			}
		}
	}
	for _, w := range l.jobs {
		c.put(w)
	}
	for id, w := range old.jobs {
		if c.jobs[id] == nil && w.state.is().Ended() && w.ended.since(now) < endedFor {
			c.put(w)
		}
	}
	c.fresh = nil
}

// put notes the present state of a job.
func (c *cluster) put(w *work) {
	c.drop(w.id)
	c.jobs[w.id] = w
	if w.state.is().Ended() {
		c.over[w.id] = w
	}
	c.active, c.waiting = c.active+int(w.count.active), c.waiting+int(w.count.waiting)
	for i := range w.tasks {
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

// device returns a GPU; nil: there is none.
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
		return e.NodeID != "" // what the member has told meanwhile is not told again
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
			n.state = clean(api.NodeState(e.Member.State))
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
	if w := workOf(j, now); w != nil {
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
	*old = *nodeOf(d, now) // the GPUs refer to it
	old.gpus, old.seen = devices, now
	return false
}

func (c *cluster) hearGPU(g *api.GPU, now time.Time) (again bool) {
	old := c.device(g.NodeID, g.UUID)
	if old == nil {
		return true
	}
	d := deviceOf(g)
	d.node, d.reading, d.past = old.node, old.reading, old.past
	*old, c.moved = *d, true
	old.take(readingOf(g, now))
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
	held              float64 // GPUs; a share counts as such
	busy              int     // mean utilization of those GPUs of which it is known; -1 unless all were measured just now
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
