package scheduler

// What can be read from a Core between two steps.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Find returns a job, archived or not.
func (c *Core) Find(id job.ID) (Listed, bool) {
	x, there := c.entries.table.Entry(id)
	if !there {
		return Listed{}, false
	}
	return c.views.listed(x), true
}

// Job returns the job as it looks now, unless it is archived.
func (c *Core) Job(id job.ID) (job.Job, bool) {
	e := c.entries.byID[id]
	if e == nil {
		return job.Job{}, false
	}
	return c.views.of(e), true
}

// Durable returns the durable state of the job, unless it is archived.
func (c *Core) Durable(id job.ID) (job.Job, bool) {
	j := c.entries.table.Job(id)
	if j == nil {
		return job.Job{}, false
	}
	return j.View(0, viewTasks), true
}

// Why explains the state of a job.
func (c *Core) Why(id job.ID) (lease.Explanation, error) {
	e := c.entries.byID[id]
	if e == nil {
		return lease.Explanation{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	x, err := c.views.whyOf(c.views.of(e))
	c.views.markQuotas(&x, e)
	return x, err
}

// Offers says which hosts would take a job with this spec, and why the others would not.
func (c *Core) Offers(s job.Spec) (lease.Explanation, error) {
	if err := checkPolicy(s); err != nil {
		return lease.Explanation{}, err
	}
	return c.explain.offers(s)
}

// Node is a host as this scheduler knows it.
type Node struct {
	Profile  lease.Profile
	Free     lease.Free
	Up       bool // there is a session with it
	Draining bool
	Detail   string    // why it takes no tasks
	Seen     time.Time // when it was last heard
	Tasks    []job.Attempt
}

// Nodes returns the known hosts by name.
func (c *Core) Nodes() []Node {
	var out []Node
	for _, h := range c.hosts.fleet.Sorted() {
		n := Node{Profile: h.Profile, Free: h.Free, Up: h.Up, Draining: h.Draining, Detail: h.Detail, Seen: h.Seen}
		for _, t := range c.assigned.at(h.Peer) {
			n.Tasks = append(n.Tasks, t.attempt())
		}
		out = append(out, n)
	}
	return out
}

// Page returns the jobs that the filter chooses, newest first. The name of an archived job is not in memory, so the
// caller has to compare it.
func (c *Core) Page(f job.Query) []Listed { return c.views.page(f) }

// Counts returns how many jobs are in each state.
func (c *Core) Counts() map[job.State]int {
	counts := c.entries.table.ArchivedStates()
	for _, e := range c.entries.byID {
		counts[c.views.stateOf(e)]++
	}
	return counts
}
