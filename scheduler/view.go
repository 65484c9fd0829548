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
	"github.com/musterhq/muster/scheduler/fleet"
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
	x := c.outlookOf(g)
	switch {
	case x.Able == 0 && len(c.workers) == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case x.Able == 0:
		return job.Reason{Word: job.ReasonNoMatch, Detail: c.noMatch(g, t)}
	case x.Open == 0:
		return closedReason(x)
	}
	if x.Fits == 0 && x.Quota != "" {
		return job.Reason{Word: job.ReasonQuota, Detail: lease.Clip(x.Quota)}
	}
	if ahead, _ := g.queue.place(t); t.queued && ahead > 0 {
		return job.Reason{Word: job.ReasonPriority, Detail: fmt.Sprintf("behind %d that ask for the same", ahead)}
	}
	switch {
	case x.Fits > 0:
		return job.Reason{Word: job.ReasonPriority, Detail: "what is free is set aside for others"}
	case len(x.Quarantined) > 0:
		return job.Reason{
			Word:   job.ReasonGPUUnhealthy,
			Detail: lease.Clip("GPUs that it could have are set aside on " + strings.Join(x.Quarantined, ", ") + "; `muster gpus` says why"),
		}
	}
	return job.Reason{Word: job.ReasonResources, Detail: lackText(x.Lack, x.Open)}
}

// outlookOf works the outlook out once a step, so that a listing of many tasks of
// one request costs one look at the hosts.
func (c *Core) outlookOf(g *group) *fleet.Outlook {
	if g.outlook == nil || g.outlookAt != c.steps {
		g.outlook, g.outlookAt = new(c.fleet.Outlook(&g.Shape)), c.steps
	}
	return g.outlook
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
func closedReason(x *fleet.Outlook) job.Reason {
	if x.Draining > 0 {
		detail := ""
		if x.Detail != "" {
			detail = " (" + x.Detail + ")"
		}
		return job.Reason{
			Word:   job.ReasonNodesDraining,
			Detail: lease.Clip(fmt.Sprintf("%d of %d nodes that could run it take no tasks%s", x.Draining, x.Able, detail)),
		}
	}
	return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("none of the %d nodes that could run it answers", x.Able)}
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
func (c *Core) explain(s job.Spec, clauses []fleet.Clause) lease.Explanation {
	hosts := c.fleet.Sorted()
	x := lease.Explanation{Clauses: fleet.Explain(clauses, hosts), Now: []lease.Candidate{}, Later: []lease.Candidate{}}
	c.addCandidates(&x, s, clauses, hosts)
	x.Reason = explainReason(x, len(hosts))
	return x
}

// maxCandidates bounds the hosts that an explanation names.
const maxCandidates = 64

func (c *Core) addCandidates(x *lease.Explanation, s job.Spec, clauses []fleet.Clause, hosts []*fleet.Host) {
	type scored struct {
		candidate lease.Candidate
		score     float64
	}
	var now []scored
	for _, host := range hosts {
		if !fleet.Meets(clauses, &host.Profile) {
			continue
		}
		_, lack := host.Devices.Fit(s.Resources, &host.Free)
		cand := lease.Candidate{Node: host.Peer, Name: host.Name(), Free: host.Free}
		switch {
		case !host.Up:
			cand.Why = "does not answer"
		case host.Draining:
			cand.Why = "takes no tasks: " + host.Detail
		case host.Devices.LacksQuarantined(s.Resources, &host.Free):
			cand.Why = "GPUs that it could give are set aside"
		case lack != "":
			cand.Why = "not enough free " + lack
		default:
			h := policyHost(host, &host.Free)
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
			why := t.group.OverQuota(w.Host)
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
	clauses, err := fleet.ClausesOf(s)
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
	for _, h := range c.fleet.Sorted() {
		n := Node{Profile: h.Profile, Free: h.Free, Up: h.Up, Draining: h.Draining, Detail: h.Detail, Seen: h.Seen}
		for _, t := range c.tasksAt(h.Peer) {
			n.Tasks = append(n.Tasks, t.attempt())
		}
		out = append(out, n)
	}
	return out
}
