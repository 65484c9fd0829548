package scheduler

// Pending tasks, by shape. Equal requests of one user with one priority have the same shape: if its first task finds no
// room, the others find none either. So a thousand equal tasks cost one search.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/shares"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// pending holds the tasks that wait for a host.
type pending struct {
	*step.Turn
	hosts   *hosts
	search  *search.Search
	parents *parents
	shares  *shares.Shares

	shapes map[string]*shape
	ready  shapeHeap // shapes whose first task is to be placed
	parked waitlist  // the first task of each shape that found no room when it was last tried
	queued waitlist  // tasks whose offers queue at full hosts
	begins *timers.Heap[time.Time, *entry]
	look   *step.Timer // compares the first of begins with the wall clock
	hurry  func(*task) // gives a task that waits the level that it has by now
}

// shapeKey names a shape: requests of one user and project with equal keys have the same shape. The priority is a part of it
// because a host may refuse some priorities of a user for good, and the others wait for no task that is refused.
func shapeKey(who fairshare.Account, priority int, pool string, need job.Resources) string {
	return fmt.Sprintf("%q %q %d %d %d %t %s", who.User, who.Project, priority, need.CPUs, need.Memory, need.Exclusive, pool)
}

// gangKey adds how many hosts a gang needs at once to the name of its shape.
func gangKey(key string, nodes int) string {
	if nodes > 1 {
		return fmt.Sprintf("%s %d", key, nodes)
	}
	return key
}

// join adds the task to the shape of its request, and returns the shape. It makes the shape if there is none.
func (p *pending) join(t *task) *shape {
	if t.shape == nil {
		t.shape = shapeOf(p, t)
		t.shape.tasks++
	}
	return t.shape
}

// timeless is the time limit of a shape whose tasks may have any time limits.
const timeless job.Duration = -1

// shapeOf returns the shape of the task's request. It makes the shape if there is none. Time limits are part of a shape
// only where hosts have limits for them.
func shapeOf(p *pending, t *task) *shape {
	s := t.e.job.Spec
	inPool, need := fleet.PoolKey(s), s.Need()
	who := fairshare.Account{User: t.e.job.User, Project: s.Project}
	key, limit := gangKey(shapeKey(who, t.e.priority, inPool, need), t.e.job.Gang()), timeless
	if p.hosts.timed {
		limit = s.TimeLimit
		key += " " + limit.String()
	}
	g := p.shapes[key]
	if g == nil {
		clauses, err := fleet.ClausesOf(s)
		if err != nil { // the spec was parsed before it was committed; one that cannot be parsed matches no host
			text := err.Error()
			clauses = []fleet.Clause{{Text: "constraint", Test: func(*fleet.Host) string { return text }}}
		}
		prefers := s.Preferences()                        // none if they cannot be parsed
		need.GPUModel = contract.ModelName(need.GPUModel) // here, so that no comparison has to do it
		g = &shape{key: key, account: who, standing: p.shares.Of(who), queue: queue[*task]{order: rank}, Shape: fleet.Shape{
			User: t.e.job.User, Project: s.Project, Need: need, Gang: t.e.job.Gang(), Foot: fleet.FootprintOf(need), Pool: p.hosts.fleet.JoinPool(inPool, clauses, prefers...),
			Priority: t.e.priority, TimeLimit: limit,
		}}
		g.class = p.search.Join(fleet.ClassesFor(s))
		p.shapes[key] = g
	}
	return g
}

// refusedBy notes the host's word that it can never run the shape, and why.
func (g *shape) refusedBy(h *fleet.Host, why string) {
	g.Refuse(h, why)
	g.noMatch = "" // it names what hosts have said
}

// leave removes a task that has ended from its shape, and deletes the shape if it has no other task.
func (p *pending) leave(t *task) {
	g := t.shape
	if g == nil {
		return
	}
	p.dequeue(t)
	p.setWaiting(t, false)
	t.shape = nil
	leaveShape(p, g)
}

// leaveShape takes a task off the count of its shape, and deletes the shape if it has no other.
func leaveShape(p *pending, g *shape) {
	if g.tasks--; g.tasks > 0 {
		return
	}
	delete(p.shapes, g.key)
	p.hosts.fleet.LeavePool(g.Pool)
	p.search.Leave(g.class)
}

// splitByTime divides the shapes by time limits, too, because a host limits the time of tasks.
func splitByTime(p *pending, es *entries) {
	p.hosts.timed = true
	for _, j := range es.table.Jobs() {
		for _, t := range es.byID[j.ID].tasks {
			before := t.shape
			if before == nil {
				continue
			}
			t.shape = shapeOf(p, t)
			t.shape.tasks++
			if t.queued {
				p.unlist(before)
				before.queue.remove(t)
				p.unlist(t.shape)
				t.shape.queue.add(t)
				p.ready.put(t.shape)
			}
			leaveShape(p, before)
		}
	}
}

// requeue puts a task that may be placed into the queue of its shape. If the task pauses, a timer calls requeue again
// later.
func (p *pending) requeue(t *task) {
	if !p.Lead || t.tally.gone || t.queued || !t.leads() || t.phase != idle || t.durable().State != job.Pending {
		return
	}
	g := p.join(t)
	if when := t.pause.until; when.After(p.Now) {
		if !t.pause.armed.Equal(when) {
			t.pause.armed = when
			p.At(when, func() { p.requeue(t) })
		}
		p.unbar(t)
		p.follow(t.e) // another task may go meanwhile
		return
	}
	if why, _ := p.bar(t.e, t.index); why.Word != "" {
		p.setBarred(t)
		return
	}
	p.unbar(t)
	rate(p.Turn, t, p.hurry)
	waitsForHost(p.Turn, t)
	p.setWaiting(t, true)
	t.queued = true
	first := g.queue.len() == 0 || rank(t, g.queue.first()) < 0
	if first {
		p.unlist(g)
	}
	g.queue.add(t)
	if first {
		p.ready.put(g)
	}
}

// waitsForHost notes since when a task waits for a host. The tasks of an array wait together, although only the first of
// them is in the queue.
func waitsForHost(tn *step.Turn, t *task) {
	e := t.e
	if spec := &e.job.Spec; e.eligible.IsZero() {
		e.eligible = tn.Now
		if spec.Begin == nil && len(spec.Dependency) == 0 && !spec.Hold {
			e.eligible = e.born
		}
	}
	if t.Waited.IsZero() {
		t.Waited = tn.Now
		if t.durable().Attempt == 0 {
			t.Waited = e.eligible
		}
	}
}

// placed notes that a Start was sent to a host.
func placed(tn *step.Turn, t *task) {
	if !t.Waited.IsZero() {
		tn.Totals.Queued.Add(tn.Now.Sub(t.Waited))
	}
	t.e.place(tn)
	t.Counting = step.Counting{Fresh: t.durable().Attempt == 1 || len(state.Outcomes(t.e.job, t.index)) <= 1} // earlier ones were declined
}

// maxPaused bounds the tasks of a job that have soft state and are not assigned: those that are offered and those that
// pause. Beyond it no further task of the job is queued.
const maxPaused = 4096

// follow queues the next task of a job if none of those before it waits in the queue. So a job of a million tasks has
// soft state only for the tasks that are active or pause, and for one that waits. The tasks of a job have one shape: if
// the first that waits fits no host, none does. A queue of ranges would be cut by each retry, hold or late result, and the
// table of jobs has the states already.
func (p *pending) follow(e *entry) {
	if !p.Lead || e.front != nil && e.front.queued {
		return
	}
	for _, t := range e.barred {
		why, all := p.bar(e, t.index)
		if why.Word == "" {
			e.front = t
			p.requeue(t)
			return
		}
		if all {
			break
		}
	}
	for len(e.tasks) < e.job.Assigned()+maxPaused {
		index, more := e.upcoming()
		if !more {
			return
		}
		if _, soft := e.find(index); soft || index%e.job.Gang() != 0 || e.job.Brief(index).State != job.Pending {
			e.pass(index)
			continue
		}
		if !p.mayGo(e, index) {
			e.parents.barred = true
			return
		}
		if e.parents.barred {
			e.parents.barred, e.parents.able = false, p.Now
		}
		e.pass(index)
		e.front = e.task(index)
		e.front.backOff(p.Turn) // it may have failed under an earlier owner
		p.requeue(e.front)
		if e.front.queued {
			return
		}
	}
}

// bar returns why a task may not be placed now, whatever room there is. The word is empty if it may be. all says that
// the same holds for each task of the job.
func (p *pending) bar(e *entry, index int) (why job.Reason, all bool) {
	if e.begin != nil {
		return job.Reason{Word: job.ReasonBeginTime, Detail: "begins at " + e.job.Spec.Begin.UTC().Format(time.RFC3339)}, true
	}
	if word, all := p.parents.waits(e, index); word != "" {
		return job.Reason{Word: word}, all // views tell the rest
	}
	if e.atOnce > 0 && e.active >= e.atOnce {
		return job.Reason{Word: job.ReasonArrayThrottle, Detail: fmt.Sprintf("at most %d of its tasks may be active", e.atOnce)}, true
	}
	return job.Reason{}, true
}

// mayGo reports whether the task may be placed, if there is room.
func (p *pending) mayGo(e *entry, index int) bool {
	why, _ := p.bar(e, index)
	return why.Word == ""
}

// setBarred notes that a task with soft state waits for more than room. pending.follow queues it later.
func (p *pending) setBarred(t *task) {
	if !t.barred {
		t.barred = true
		at, _ := slices.BinarySearchFunc(t.e.barred, t, byIndex)
		t.e.barred = slices.Insert(t.e.barred, at, t)
	}
}

func (p *pending) unbar(t *task) {
	if t.barred {
		t.barred, t.able = false, p.Now
		at, _ := slices.BinarySearchFunc(t.e.barred, t, byIndex)
		t.e.barred = slices.Delete(t.e.barred, at, at+1)
	}
}

func byIndex(a, b *task) int { return cmp.Compare(a.index, b.index) }

// holdBack takes the task out of the queue until pending.follow queues it again.
func (p *pending) holdBack(t *task) {
	p.dequeue(t)
	p.setWaiting(t, false)
	p.setBarred(t)
}

// dispatched takes the task out of the queue because it is about to be offered.
func (p *pending) dispatched(t *task) {
	t.offered = true
	updateCounts(t)
	p.dequeue(t)
}

// followAll calls follow from the first task on, because a record may have released earlier tasks.
func (p *pending) followAll(e *entry) {
	p.awaitBegin(e)
	e.next, e.parents.ready = 0, nil
	if !p.Lead {
		return
	}
	if e.job.Waits.Each() {
		e.parents.ready = &ready{}
		p.addReady(e, job.Range{First: 0, Last: e.job.Len() - 1})
	}
	if p.parents.delayed(e) {
		p.At(e.parents.until, func() { p.follow(e) })
	}
	p.follow(e)
}

// wallLook bounds the time between two looks at the wall clock while jobs wait for their begin. If the clock is set
// forward, a job begins at most this much too late.
const wallLook = 10 * time.Second

// awaitBegin follows a job when the wall clock reaches its begin. The job then no longer depends on the clock, even if
// the clock is set back.
func (p *pending) awaitBegin(e *entry) {
	switch {
	case e.begin == nil:
		return
	case e.job.Ended():
		p.begins.Stop(e.begin)
		e.begin = nil
	default:
		p.begins.Set(e.begin, e.job.Spec.Begin.Round(0)) // compared by the wall clock alone
	}
	p.armBegins()
}

// armBegins sets the timer for the next look at the wall clock.
func (p *pending) armBegins() {
	p.Stop(p.look)
	if first, some := p.begins.Next(); some {
		p.look = p.After(min(max(first.Sub(p.Now), 0), wallLook), p.begun)
	}
}

// begun follows the jobs whose begin is reached.
func (p *pending) begun() {
	for e, due := p.begins.Take(p.Now); due; e, due = p.begins.Take(p.Now) {
		e.begin = nil
		p.follow(e)
	}
	p.armBegins()
}

// freed queues the tasks that no longer wait for tasks of another array.
func (p *pending) freed(e *entry, tasks []job.Range) {
	if e.parents.ready == nil {
		return
	}
	for _, r := range tasks {
		p.addReady(e, r)
	}
	p.follow(e)
}

func (p *pending) addReady(e *entry, r job.Range) {
	for i := r.First; i <= r.Last; i++ {
		if e.job.Waits.Of(i) == state.WaitNone && e.job.Brief(i).State == job.Pending {
			e.parents.ready.add(i)
		}
	}
}

// dequeue removes a task from the queue of its shape. The next task of its job follows.
func (p *pending) dequeue(t *task) {
	if !t.queued {
		return
	}
	t.queued = false
	g := t.shape
	t.share = g.standing
	first, ready, capped := g.queue.first() == t, g.ready, g.capped
	if first {
		p.unlist(g)
	}
	g.queue.remove(t)
	p.follow(t.e)
	switch {
	case !first:
	case g.queue.len() == 0:
	case ready:
		p.ready.put(g)
	case capped:
		g.capped = true
	default:
		p.park(g)
	}
}

// park sets aside a shape for which no host has room. Its first task is tried again at hosts where resources are freed.
func (p *pending) park(g *shape) {
	p.unlist(g)
	g.parked = g.queue.first()
	p.parked.add(g.parked)
}

// unlist removes a shape from the list that holds it: ready, parked, or those that wait for an allotment.
func (p *pending) unlist(g *shape) {
	p.ready.remove(g)
	g.capped = false
	if g.parked != nil {
		p.parked.remove(g.parked)
		g.parked = nil
	}
}

// rerank orders the shapes by a new snapshot of what their accounts have used. The order inside a shape stays.
func (p *pending) rerank() {
	if !p.shares.Refresh(p.rerank) {
		return
	}
	for _, g := range p.shapes {
		g.standing = p.shares.Of(g.account)
	}
	p.sort()
}

// sort puts the shapes into the order of the standings that they have now.
func (p *pending) sort() {
	p.ready.sort()
	p.parked.sort()
	for _, w := range p.hosts.freed {
		w.resume.parked = nil // the place where the search stopped
	}
}

// setWeights replaces the weights of users and projects.
func (p *pending) setWeights(w fairshare.Weights) {
	p.shares.SetWeights(w)
	for _, g := range p.shapes {
		g.standing = fairshare.Standing{}
	}
	p.sort()
}

// setWaiting counts the task among the waiting tasks of its class, or takes it off that count. The front task of a job
// also stands for the job's further waiting tasks: it counts as many as may be active together.
func (p *pending) setWaiting(t *task, waiting bool) {
	if t.waiting > 0 == waiting || t.shape == nil {
		return
	}
	before := t.waiting
	t.waiting = 0
	if waiting {
		t.waiting = 1
		if t == t.e.front {
			t.waiting = max(1, t.e.pendingTasks())
		}
	}
	p.search.Count(t.shape.class, t.waiting-before)
}

// pause keeps the task from being placed until this time.
func (p *pending) pause(t *task, until time.Time) {
	p.dequeue(t)
	t.pause.until = until
	p.requeue(t)
}

// forgetHost deletes a known host, and the refusals that the shapes remember of it.
func (p *pending) forgetHost(w *worker) {
	delete(p.hosts.workers, w.Peer)
	p.hosts.freed = slices.DeleteFunc(p.hosts.freed, func(x *worker) bool { return x == w })
	p.shares.Forget(w.Peer)
	p.hosts.fleet.Remove(w.Host)
	p.hosts.forgetQuotas(w)
	for _, g := range p.shapes {
		g.Forget(w.Host)
	}
	p.hosts.profiles++
}
