package scheduler

// What people see: jobs as the records tell them with what their workers say,
// and a reason for everything that waits.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// viewTasks bounds the tasks in the view of a job; the counts are of all.
const viewTasks = 256

// view is the job as it looks now.
func (c *Core) view(e *entry) job.Job {
	v := e.job.View(0, viewTasks)
	v.Owner = c.cfg.Self
	for i := range v.Tasks {
		if d := &v.Tasks[i]; d.State.Ended() && d.Ended.IsZero() {
			d.Ended = e.ended
		}
	}
	for _, t := range e.tasks {
		if t.index < len(v.Tasks) {
			d := &v.Tasks[t.index]
			before := d.State
			c.viewTask(t, d)
			v.Counts.Add(before, -1)
			v.Counts.Add(d.State, 1)
		} else if d := e.job.Brief(t.index); d.Assigned {
			seen, _ := c.seenState(t, d.Attempt)
			v.Counts.Add(d.State, -1)
			v.Counts.Add(seen, 1)
		}
	}
	return v
}

// stateOf is the job's state as it looks now.
func (c *Core) stateOf(e *entry) job.State {
	if !e.job.Active() {
		return e.job.State()
	}
	counts := e.job.Counts()
	for _, t := range e.tasks {
		if d := t.durable(); d.Assigned {
			seen, _ := c.seenState(t, d.Attempt)
			counts.Add(d.State, -1)
			counts.Add(seen, 1)
		}
	}
	return counts.State()
}

// viewTask adds what is known beyond the journal.
func (c *Core) viewTask(t *task, d *job.Task) {
	switch {
	case d.Assigned:
		d.PID, d.Isolation, d.Devices, d.Started = t.pid, t.isolation, t.devices, t.since
		seen, why := c.seenState(t, d.Attempt)
		if d.State = seen; why.Word != "" {
			d.Reason = why
		}
		if seen == job.Unreachable {
			d.Reason.Detail = silence(d, t.e.job.Spec.Partition)
		}
	case d.State == job.Pending:
		d.Reason = c.reason(t)
	}
}

// seenState is the state of an assigned task as its worker tells it; while that is silent
// nothing is known but that the attempt may be running.
func (c *Core) seenState(t *task, attempt int) (job.State, job.Reason) {
	switch {
	case t.flight != nil, t.started == 0 && t.givenUp == attempt && c.reached(t) != nil:
		return job.Reserved, job.Reason{}
	case t.reported && t.seen != "":
		if t.detail != "" {
			return t.seen, job.Reason{Word: job.ReasonStaging, Detail: t.detail}
		}
		return t.seen, job.Reason{}
	case t.reported:
		return job.Running, job.Reason{}
	case t.seen == job.Reserved && c.reached(t) != nil:
		return job.Starting, job.Reason{}
	}
	return job.Unreachable, job.Reason{Word: reasonSilent}
}

// reasonSilent is the word of a task whose host does not answer.
const reasonSilent = "NodeSilent"

// silence says what a task waits for whose host does not answer.
func silence(d *job.Task, partition string) string {
	name := cmp.Or(d.NodeName, string(d.Node))
	if partition == partitionHold {
		return name + " does not answer; the task waits for it (partition: hold); if that host is gone for good: muster node declare-dead " + name
	}
	return name + " does not answer; its lease has not run out"
}

// reason says why a pending task waits; every one has a word.
func (c *Core) reason(t *task) job.Reason {
	switch {
	case !c.lead:
		return job.Reason{Word: job.ReasonBackoff, Detail: "its owner is reading its journal"}
	case t.flight != nil && !t.waiting:
		return job.Reason{Word: job.ReasonResources, Detail: "offered to " + c.offeredTo(t.flight)}
	case t.proposed != 0:
		return job.Reason{Word: job.ReasonBackoff, Detail: "an attempt is being taken back"}
	case !t.queued && t.notBefore.After(c.now):
		return job.Reason{Word: job.ReasonBackoff, Detail: fmt.Sprintf("next attempt in %s, %s", t.notBefore.Sub(c.now).Round(time.Millisecond), t.why)}
	}
	return c.waitReason(t)
}

// waitReason is the reason of a task that stands in line.
func (c *Core) waitReason(t *task) job.Reason {
	g := c.joinGroup(t)
	x := c.outlookOf(g, t)
	switch {
	case x.able == 0 && len(c.workers) == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case x.able == 0:
		return job.Reason{Word: job.ReasonNoMatch, Detail: c.noMatch(g, t)}
	case x.open == 0:
		return x.closedReason()
	}
	if x.fits == 0 && x.quota != "" {
		return job.Reason{Word: job.ReasonQuota, Detail: lease.Clip(x.quota)}
	}
	if ahead, _ := g.queue.place(t); t.queued && ahead > 0 {
		return job.Reason{Word: job.ReasonPriority, Detail: fmt.Sprintf("behind %d that ask for the same", ahead)}
	}
	switch {
	case x.fits > 0:
		return job.Reason{Word: job.ReasonPriority, Detail: "what is free is set aside for others"}
	case len(x.unsound) > 0:
		return job.Reason{
			Word:   job.ReasonGPUUnhealthy,
			Detail: lease.Clip("GPUs that it could have are set aside on " + strings.Join(x.unsound, ", ") + "; `muster gpus` says why"),
		}
	}
	return job.Reason{Word: job.ReasonResources, Detail: lackText(x.lack, x.open)}
}

// outlook is how a group's request stands with the known hosts.
type outlook struct {
	step     uint64 // of which it is true
	able     int    // hosts that could ever run it
	open     int    // of them take tasks
	fits     int    // of those have what it needs free
	quota    string // what one of these says of its user's quota
	unsound  []string
	lack     map[string]int // open hosts by what they lack
	draining int
	detail   string // why one of the draining takes nothing
}

// outlookOf works the outlook out once a step, so that a listing of many tasks of
// one request costs one look at the hosts.
func (c *Core) outlookOf(g *group, t *task) *outlook {
	if g.outlook != nil && g.outlook.step == c.steps {
		return g.outlook
	}
	x := &outlook{step: c.steps, lack: map[string]int{}}
	g.outlook = x
	for w := range c.hosts.candidates(g) {
		x.able++
		switch {
		case w.open():
			x.add(w, t)
		case w.up:
			x.draining++
			if x.detail == "" && w.detail != "" {
				x.detail = " (" + w.name() + ": " + w.detail + ")"
			}
		}
	}
	return x
}

// maxUnsound bounds the hosts that a reason names.
const maxUnsound = 32

func (x *outlook) add(w *worker, t *task) {
	need := t.group.need
	x.open++
	switch {
	case w.free.CPUs < need.CPUs:
		x.lack["cpus"]++
	case w.free.Memory < need.Memory:
		x.lack["memory"]++
	case !w.suffices(need, &w.free):
		x.lack["gpus"]++
		if len(x.unsound) < maxUnsound && w.heldBack(need) {
			x.unsound = append(x.unsound, w.name())
		}
	default:
		if why := w.overQuota(t); why == "" {
			x.fits++
		} else if x.quota == "" {
			x.quota = w.name() + ": " + why
		}
	}
}

// noMatch is which clauses stand against the group, worked out once for the
// hosts that are known.
func (c *Core) noMatch(g *group, t *task) string {
	if g.noMatch == "" || g.noMatchAt != c.profiles {
		g.noMatch, g.noMatchAt = c.explainSpec(t.e.job.Spec).Reason.Detail, c.profiles
	}
	return g.noMatch
}

// closedReason is why none of the hosts that could run it takes anything.
func (x *outlook) closedReason() job.Reason {
	if x.draining > 0 {
		return job.Reason{
			Word:   job.ReasonNodesDraining,
			Detail: lease.Clip(fmt.Sprintf("%d of %d nodes that could run it take no tasks%s", x.draining, x.able, x.detail)),
		}
	}
	return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("none of the %d nodes that could run it answers", x.able)}
}

// lackText is "cpus on 2 and gpus on 1 of 3 nodes".
func lackText(lack map[string]int, open int) string {
	var parts []string
	for _, what := range []string{"gpus", "cpus", "memory"} {
		if n := lack[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s on %d", what, n))
		}
	}
	return fmt.Sprintf("not enough free %s of %d nodes that could run it", strings.Join(parts, " and "), open)
}

// explain says clause by clause which known hosts meet a request, and who of
// them would take it now.
func (c *Core) explain(s job.Spec, clauses []clause) lease.Explanation {
	workers := c.sortedWorkers()
	x := lease.Explanation{Clauses: []lease.Clause{}, Now: []lease.Candidate{}, Later: []lease.Candidate{}}
	for _, cl := range clauses {
		out := lease.Clause{Clause: cl.text, Of: len(workers)}
		for _, w := range workers {
			why := cl.test(&w.profile)
			if why == "" {
				out.Meets++
			} else if len(out.Fails) < lease.MaxFails {
				out.Fails = append(out.Fails, lease.Failed{Node: w.peer, Name: w.name(), Reason: why})
			}
		}
		x.Clauses = append(x.Clauses, out)
	}
	c.addCandidates(&x, s, clauses, workers)
	x.Reason = explainReason(x, len(workers))
	return x
}

// maxCandidates bounds the hosts that an explanation names.
const maxCandidates = 64

func (c *Core) addCandidates(x *lease.Explanation, s job.Spec, clauses []clause, workers []*worker) {
	type scored struct {
		candidate lease.Candidate
		score     float64
	}
	var now []scored
	for _, w := range workers {
		if !meets(clauses, &w.profile) {
			continue
		}
		_, lack := fits(s.Resources, &w.free, w.devices)
		cand := lease.Candidate{Node: w.peer, Name: w.name(), Free: w.free}
		switch {
		case !w.up:
			cand.Why = "does not answer"
		case w.draining:
			cand.Why = "takes no tasks: " + w.detail
		case w.heldBack(s.Resources):
			cand.Why = "GPUs that it could give are set aside"
		case lack != "":
			cand.Why = "not enough free " + lack
		default:
			h := c.host(w, w.free)
			cand.Why = c.policy.Why(s.Resources, h)
			now = append(now, scored{cand, c.policy.Score(s.Resources, h)})
			continue
		}
		if len(x.Later) < maxCandidates {
			x.Later = append(x.Later, cand)
		}
	}
	slices.SortStableFunc(now, func(a, b scored) int { return -compareScores(a.score, b.score) })
	for _, n := range now[:min(len(now), maxCandidates)] {
		x.Now = append(x.Now, n.candidate)
	}
}

func compareScores(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func explainReason(x lease.Explanation, known int) job.Reason {
	switch {
	case known == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case len(x.Now) > 0:
		return job.Reason{}
	case len(x.Later) > 0:
		return job.Reason{Word: job.ReasonResources, Detail: x.Later[0].Name + ": " + x.Later[0].Why}
	}
	var failing []string
	for _, cl := range x.Clauses {
		if cl.Meets < cl.Of && len(cl.Fails) > 0 {
			failing = append(failing, fmt.Sprintf("%s: %d of %d nodes (%s: %s)", cl.Clause, cl.Meets, cl.Of, cl.Fails[0].Name, cl.Fails[0].Reason))
		}
	}
	return job.Reason{Word: job.ReasonNoMatch, Detail: strings.Join(failing, "; ")}
}

func (c *Core) sortedWorkers() []*worker {
	out := make([]*worker, 0, len(c.workers))
	for _, w := range c.workers {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *worker) int {
		if d := strings.Compare(a.name(), b.name()); d != 0 {
			return d
		}
		return strings.Compare(string(a.peer), string(b.peer))
	})
	return out
}

// Job is the job as it looks now, unless it is archived.
func (c *Core) Job(id job.ID) (job.Job, bool) {
	e := c.jobs[id]
	if e == nil {
		return job.Job{}, false
	}
	return c.view(e), true
}

// Durable is the job as the records alone tell it, unless it is archived.
func (c *Core) Durable(id job.ID) (job.Job, bool) {
	j := c.table.Job(id)
	if j == nil {
		return job.Job{}, false
	}
	return j.View(0, viewTasks), true
}

// Why explains where a job stands.
func (c *Core) Why(id job.ID) (lease.Explanation, error) {
	e := c.jobs[id]
	if e == nil {
		return lease.Explanation{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	x, err := c.whyOf(c.view(e))
	c.markQuotas(&x, e)
	return x, err
}

// whyOf explains where a job stands that looks like this.
func (c *Core) whyOf(j job.Job) (lease.Explanation, error) {
	x, err := c.Offers(j.Spec)
	x.Job, x.State, x.Reason = j.ID, j.State(), j.Tasks[0].Reason
	return x, err
}

// markQuotas moves hosts that have refused the job for its user's quota out of
// those that would take it now.
func (c *Core) markQuotas(x *lease.Explanation, e *entry) {
	for _, t := range e.tasks {
		if t.group == nil {
			continue
		}
		x.Now = slices.DeleteFunc(x.Now, func(cand lease.Candidate) bool {
			w := c.workers[cand.Node]
			if w == nil {
				return false
			}
			why := w.overQuota(t)
			if why != "" {
				cand.Why = "Quota: " + why
				x.Later = append(x.Later, cand)
			}
			return why != ""
		})
	}
}

// Offers is a dry run: who would take it, and why the others would not.
func (c *Core) Offers(s job.Spec) (lease.Explanation, error) {
	clauses, err := clausesOf(s)
	if err != nil {
		return lease.Explanation{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c.explain(s, clauses), nil
}

// explainSpec is Offers for a spec that was accepted before.
func (c *Core) explainSpec(s job.Spec) lease.Explanation {
	x, err := c.Offers(s)
	if err != nil {
		x.Reason = job.Reason{Word: job.ReasonNoMatch, Detail: err.Error()}
	}
	return x
}

// Node is a host as this scheduler knows it.
type Node struct {
	Profile  lease.Profile
	Free     lease.Free
	Up       bool // has a session
	Draining bool
	Detail   string    // why it takes nothing
	Seen     time.Time // last heard of
	Tasks    []job.Attempt
}

// Nodes are the known hosts by name.
func (c *Core) Nodes() []Node {
	var out []Node
	for _, w := range c.sortedWorkers() {
		n := Node{Profile: w.profile, Free: w.free, Up: w.up, Draining: w.draining, Detail: w.detail, Seen: w.seen}
		for _, t := range c.tasksAt(w.peer) {
			n.Tasks = append(n.Tasks, t.attempt())
		}
		out = append(out, n)
	}
	return out
}
