package scheduler

// Waiting tasks: those of equal requests stand in one line, so that a thousand
// tasks without room cost one look.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// group is a request and the tasks that wait with just this request.
type group struct {
	key     string
	need    job.Resources
	clauses []clause
	class   *class
	queue   line
	in      *groupHeap
	at      int // in the heap
	tasks   int // that have not ended

	able      []*worker // known hosts that could ever run it, local first
	ableAt    uint64    // Core.profiles when able was made
	noMatch   string    // why nobody can, for people
	noMatchAt uint64
	never     map[job.Peer]uint64 // hosts that said never, and in which Hello's life
}

// avoidance is a host that a task leaves alone for a while: wholly if hard,
// else only while there is another.
type avoidance struct {
	peer  job.Peer
	until time.Time
	hard  bool
	quota string // the host's word on what its user holds there, if it is that
}

const (
	avoidFor   = 30 * time.Second // the host on which a task has just failed
	maxAvoid   = 16               // hosts that one task leaves alone
	retryFirst = time.Second
	retryMost  = time.Minute
)

// backoff doubles from retryFirst with each time, up to retryMost.
func backoff(times int) time.Duration {
	return min(retryFirst<<min(max(times-1, 0), 10), retryMost)
}

// avoid leaves the host alone for the task; the newest word on a host counts.
func (c *Core) avoid(t *task, a avoidance) {
	if a.peer == "" {
		return
	}
	t.avoid = slices.DeleteFunc(t.avoid, func(b avoidance) bool { return b.peer == a.peer || !b.until.After(c.now) })
	if len(t.avoid) >= maxAvoid {
		t.avoid = t.avoid[1:]
	}
	t.avoid = append(t.avoid, a)
}

// avoided is what the task holds against the host just now.
func (c *Core) avoided(t *task, p job.Peer) (avoidance, bool) {
	for _, a := range t.avoid {
		if a.peer == p && a.until.After(c.now) {
			return a, true
		}
	}
	return avoidance{}, false
}

// quotaRetries bounds the tasks that try again each time that a host says that
// something there has changed: one that fits changes it again.
const quotaRetries = 4

// retryQuotas lets the first tasks that a host refused for their users' quotas
// ask again: what they held there may be back.
func (c *Core) retryQuotas(w *worker) {
	list := w.overQuota[:min(len(w.overQuota), quotaRetries)]
	w.overQuota = slices.Clone(w.overQuota[len(list):])
	for _, t := range list {
		if _, against := c.avoided(t, w.peer); !against || t.queued || t.flight != nil {
			continue
		}
		t.avoid = slices.DeleteFunc(t.avoid, func(a avoidance) bool { return a.peer == w.peer })
		t.notBefore = c.now
		c.requeue(t)
	}
}

// overQuota is what the first host that refused the task for a quota said.
func (c *Core) overQuota(t *task) (why string) {
	for _, a := range t.avoid {
		if a.quota != "" && a.until.After(c.now) {
			return c.nameOf(a.peer) + ": " + a.quota
		}
	}
	return ""
}

func groupKey(s job.Spec) string {
	key := fmt.Sprintf("%v|%s|%s|%s", s.Resources, s.Constraint, strings.Join(s.NodeList, ","), strings.Join(s.Exclude, ","))
	if s.Image != "" {
		key += "|image|" + strings.Join(s.Mounts, "|")
	}
	return key
}

// joinGroup finds the group of the task's request, or founds it.
func (c *Core) joinGroup(t *task) *group {
	if t.group != nil {
		return t.group
	}
	s := t.e.job.Spec
	key := groupKey(s)
	g := c.groups[key]
	if g == nil {
		clauses, err := clausesOf(s)
		if err != nil { // a committed spec has been parsed before; one that cannot be meets no host
			text := err.Error()
			clauses = []clause{{"constraint", func(*lease.Profile) string { return text }}}
		}
		g = &group{key: key, need: s.Resources, clauses: clauses, never: map[job.Peer]uint64{}}
		g.class = c.classOf(lease.ClassOf(s.Resources, demanded(s.Constraint)))
		g.class.groups++
		c.groups[key] = g
	}
	g.tasks++
	t.group = g
	return g
}

func (c *Core) leaveGroup(t *task) {
	g := t.group
	if g == nil {
		return
	}
	c.dequeue(t)
	c.setWaiting(t, false)
	t.group = nil
	if g.tasks--; g.tasks == 0 {
		delete(c.groups, g.key)
		if g.class.groups--; g.class.groups == 0 {
			delete(c.classes, g.class.name)
		}
	}
}

// candidates are the known hosts that could ever run the group's tasks.
func (c *Core) candidates(g *group) []*worker {
	if g.ableAt == c.profiles && g.able != nil {
		return g.able
	}
	g.able, g.ableAt = []*worker{}, c.profiles
	for _, w := range c.workers {
		if meets(g.clauses, &w.profile) && g.never[w.peer] != w.hellos {
			g.able = append(g.able, w)
		}
	}
	slices.SortFunc(g.able, func(a, b *worker) int {
		if x, y := a.peer == c.cfg.Self, b.peer == c.cfg.Self; x != y {
			if x {
				return -1
			}
			return 1
		}
		if d := strings.Compare(a.name(), b.name()); d != 0 {
			return d
		}
		return strings.Compare(string(a.peer), string(b.peer))
	})
	return g.able
}

// requeue puts a task that may be placed into its line, or has it come back
// when its pause is over.
func (c *Core) requeue(t *task) {
	if !c.lead || t.queued || t.flight != nil || t.proposed != 0 || t.durable().State != job.Pending {
		return
	}
	g := c.joinGroup(t)
	if when := t.notBefore; when.After(c.now) {
		if !t.armed.Equal(when) {
			t.armed = when
			c.at(when, func() { c.requeue(t) })
		}
		return
	}
	c.setWaiting(t, true)
	t.queued = true
	if g.queue.len() == 0 || rank(t, g.queue.first()) < 0 {
		g.put(nil)
	}
	g.queue.add(t)
	if g.in == nil {
		g.put(&c.ready)
	}
}

// dequeue takes a task out of its line.
func (c *Core) dequeue(t *task) {
	if !t.queued {
		return
	}
	t.queued = false
	g := t.group
	in := g.in
	if g.queue.first() == t {
		g.put(nil)
	}
	g.queue.remove(t)
	if g.queue.len() > 0 {
		g.put(in)
	}
}

// setWaiting counts the task for its class while no host has taken it.
func (c *Core) setWaiting(t *task, waiting bool) {
	if t.waiting == waiting || t.group == nil {
		return
	}
	t.waiting = waiting
	k := t.group.class
	if waiting {
		k.waiting++
	} else if k.waiting--; k.waiting == 0 {
		k.looking = false
		c.announce = c.announce || k.announced
		k.announced = false
	}
}
