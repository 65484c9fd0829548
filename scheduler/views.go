package scheduler

// The views of jobs for people: the durable state, what hosts report, and for each waiting task the reason.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// views makes the views of jobs.
type views struct {
	*step.Turn
	entries   *entries
	hosts     *hosts
	pending   *pending
	attempts  *attempts
	explain   *explainer
	placement *placement
	allot     *allotments

	claimants claimants
	waiting   waitText // of the job that was asked for last since the last step
}

// waitText is what a job waits for.
type waitText struct {
	e    *entry
	text string
}

// offeredTo returns the name of the host that the task is assigned or offered to.
func (vs *views) offeredTo(d *dispatch) string {
	if d.target == "" && len(d.offers) > 0 {
		return d.offers[0].worker.Name()
	}
	return vs.hosts.nameOf(d.target)
}

// listed returns the job as a listing has it.
func (vs *views) listed(x state.Entry) step.Listed {
	if j := vs.entries.table.Of(x); j != nil {
		return step.Listed{ID: j.ID, Submitted: x.Submitted(), Job: new(vs.brief(vs.entries.byID[j.ID])), File: j.File.Text()}
	}
	return step.Listed{ID: vs.entries.table.ID(x), Submitted: x.Submitted(), Ended: x.Ended()}
}

const (
	// ViewTasks bounds the tasks in the view of a job. The counts are those of all tasks.
	ViewTasks   = 256
	reasonTasks = 64 // active tasks that are asked for the reason of their job
	briefTasks  = 8  // a job of more tasks has none of them in listings, in answers to requests and for watchers
)

// of returns the view of a job, with its first tasks.
func (vs *views) of(e *entry) job.Job { return vs.with(e, min(e.job.Len(), ViewTasks)) }

// brief returns the view of a job for listings, answers and watchers. It costs the same whatever the number of tasks.
func (vs *views) brief(e *entry) job.Job {
	if e.job.Len() > briefTasks {
		return vs.with(e, 0)
	}
	return vs.with(e, e.job.Len())
}

// with returns the view of a job with its first n tasks.
func (vs *views) with(e *entry, n int) job.Job {
	v := e.job.View(0, 0)
	v.Owner, v.Counts = vs.Config.Self, vs.counts(e)
	if v.Ends.Began.IsZero() || e.began.Before(v.Ends.Began) && !e.began.IsZero() {
		v.Ends.Began = e.began
	}
	v.Tasks = make([]job.Task, n)
	for i := range v.Depends {
		vs.depends(&v.Depends[i])
	}
	for i := range v.Tasks {
		v.Tasks[i] = vs.at(e, i)
	}
	if state := v.Counts.State(); n < e.job.Len() {
		v.Reason = vs.reasonOf(e, state)
	} else if i := slices.IndexFunc(v.Tasks, func(t job.Task) bool { return t.State == state }); i >= 0 {
		v.Reason = v.Tasks[i].Reason
	}
	if v.Counts.Of(job.Pending) > 0 {
		v.Starts = estimateOf(vs.entries, e)
	}
	return v
}

// counts returns the number of tasks in each state, as the hosts have reported them. Only the tasks that were touched
// since the last call are looked at.
func (vs *views) counts(e *entry) job.Counts {
	for _, t := range e.touched {
		t.tally.due = false
		if t.tally.gone {
			continue
		}
		s := job.State("")
		if d := t.durable(); d.Assigned && d.State == job.Reserved {
			s, _ = vs.seen(t)
		}
		t.updateShown(s)
	}
	clear(e.touched)
	e.touched = e.touched[:0]
	c := e.job.Counts()
	for i, n := range e.shown {
		c[i] += n
	}
	return c
}

// reasonOf returns the reason of a job in this state: that of its first task in the state. For an active state it looks
// at a few tasks only.
func (vs *views) reasonOf(e *entry, s job.State) job.Reason {
	switch {
	case s.Active():
		for _, t := range e.tasks[:min(len(e.tasks), reasonTasks)] {
			if t.tally.state == s {
				return vs.at(e, t.index).Reason
			}
		}
	case s == job.Pending:
		return vs.at(e, e.job.NextPending(0)).Reason
	default:
		if i, there := e.job.First(s); there {
			return vs.at(e, i).Reason
		}
	}
	return job.Reason{}
}

// at returns the view of one task.
func (vs *views) at(e *entry, index int) job.Task {
	d := e.job.Task(index)
	if d.State.Ended() && d.Ended.IsZero() {
		d.Ended = e.ended
	}
	if d.State == job.Pending && e.job.Gang() > 1 {
		vs.member(e, &d)
		return d
	}
	if i, soft := e.find(index); soft {
		vs.task(e.tasks[i], &d)
	} else if d.State == job.Pending {
		d.Reason = vs.following(e, index)
	}
	return d
}

// member completes the view of a waiting member of a gang with what is known of rank 0. A member that has a place at a
// host is RESERVED.
func (vs *views) member(e *entry, d *job.Task) {
	gang := e.job.Element(d.Index)
	i, soft := e.find(gang.First)
	if !soft {
		d.Reason = vs.following(e, gang.First)
		return
	}
	lead := e.tasks[i]
	d.Reason = addEstimate(vs.entries, lead, vs.reason(lead))
	if x := lead.dispatch; x != nil && x.gang != nil {
		if o := x.holder(d.Index - gang.First); o != nil && o.seat.state == seated {
			d.State, d.Node, d.NodeName, d.Devices = job.Reserved, o.worker.Peer, o.worker.Name(), o.seat.devices
		}
	}
}

// tasks returns the views of the tasks that the query selects.
func (vs *views) tasks(e *entry, q job.TaskQuery) (out []job.Task) {
	if q.Begun {
		state.EachBegun(e.job, q.Rest(e.job.Len()), func(index int) bool {
			out = append(out, vs.at(e, index))
			return len(out) < q.Limit
		})
		return out
	}
	states := q.States
	if slices.ContainsFunc(states, job.State.Active) {
		states = append(slices.Clone(states), job.Reserved) // the state of all assigned tasks in the journal
		if e.job.Gang() > 1 && slices.Contains(q.States, job.Reserved) {
			states = append(states, job.Pending) // members that have a place while others have none
		}
	}
	e.job.Each(q.Rest(e.job.Len()), states, func(index int) bool {
		if i, soft := e.find(index); soft && len(states) > 0 && e.job.Brief(index).Assigned {
			if seen, _ := vs.seen(e.tasks[i]); !slices.Contains(q.States, seen) {
				return true
			}
		}
		v := vs.at(e, index)
		if e.job.Gang() > 1 && len(states) > 0 && !slices.Contains(q.States, v.State) {
			return true
		}
		out = append(out, v)
		return len(out) < q.Limit
	})
	return out
}

// following returns why a task waits without being in the queue: it comes after other tasks of its job, or may not be
// placed yet.
func (vs *views) following(e *entry, index int) job.Reason {
	switch why := vs.bar(e, index); {
	case !vs.Lead:
		return reasonReading
	case why.Word != "":
		return why
	case e.front != nil && e.front.queued:
		return vs.waitReason(e.front)
	}
	return job.Reason{Word: job.ReasonPriority, Detail: "behind earlier tasks of its job"}
}

// bar returns why a task may not be placed now, whatever room there is.
func (vs *views) bar(e *entry, index int) job.Reason {
	why, _ := vs.pending.bar(e, index)
	switch why.Word {
	case job.ReasonDependency:
		why.Detail = vs.dependencies(e)
	case job.ReasonDependencyNeverSatisfied:
		why.Detail = contract.Clip(e.job.Waits.NeverWhy(index))
	}
	return why
}

// dependencies tells which other jobs a job waits for, and how far they are. It is worked out once for all tasks of a
// job.
func (vs *views) dependencies(e *entry) string {
	if vs.waiting.e == e {
		return vs.waiting.text
	}
	var parts []string
	n := 0
	for _, d := range e.job.Waits.List() {
		if d.Outcome != job.DependencyWaiting {
			continue
		}
		if n++; n > namedParents {
			continue
		}
		vs.depends(&d)
		text := d.String()
		if d.Parent != "" {
			text += " is " + string(d.Parent)
		}
		if d.Detail != "" {
			text += ", " + d.Detail
		}
		parts = append(parts, text)
	}
	if n > namedParents {
		parts = append(parts, fmt.Sprintf("and %d more", n-namedParents))
	}
	text := strings.Join(parts, "; ")
	if left := e.parents.until.Sub(vs.Now); n == 0 && left > 0 {
		text = fmt.Sprintf("%s more after the start of the jobs before it", job.Duration(left.Round(time.Second)))
	}
	vs.waiting = waitText{e, contract.Clip(text)}
	return vs.waiting.text
}

// namedParents is how many parents the reason of a waiting job names.
const namedParents = 3

// depends adds what is known of the parent to a dependency that is not met.
func (vs *views) depends(d *job.Depends) {
	if d.Outcome == job.DependencyMet || d.Parent != "" || d.Job == "" {
		return
	}
	if e := vs.entries.byID[d.Job]; e != nil {
		d.Parent = vs.stateOf(e)
		return
	}
	if x, there := vs.entries.table.Archived(d.Job); there {
		d.Parent = x.State()
		return
	}
	p := vs.pending.parents.followed[d.Job]
	silent := "its owner is being asked"
	switch {
	case d.Outcome == job.DependencyNever || d.Job.Group() == vs.Config.Group:
		return
	case p == nil:
		silent = fmt.Sprintf("%d jobs of other owners are followed, and this one is in line", MaxParents)
	case p.silent != "":
		silent = p.silent
	case p.told:
		d.Parent = p.seen.State
		return
	}
	if d.Detail != "" {
		d.Detail += ", "
	}
	d.Detail += silent
}

// reasonReading is the reason of a task whose owner does not act yet.
var reasonReading = job.Reason{Word: job.ReasonBackoff, Detail: "its owner is reading its journal"}

// stateOf returns the state that the view of the job has.
func (vs *views) stateOf(e *entry) job.State {
	counts := vs.counts(e)
	return counts.State()
}

// stateIn returns the state of a job that had only the tasks of these ranges.
func (vs *views) stateIn(e *entry, ranges []job.Range) job.State {
	vs.counts(e)
	counts := e.job.CountsIn(ranges)
	for _, t := range e.in(ranges) {
		if t.tally.state != "" {
			counts.Add(job.Reserved, -1)
			counts.Add(t.tally.state, 1)
		}
	}
	return counts.State()
}

// task adds the soft state of a task to its view.
func (vs *views) task(t *task, d *job.Task) {
	switch {
	case d.Assigned:
		d.PID, d.Isolation, d.Devices, d.Started = t.process.pid, t.process.isolation, t.process.devices, t.process.since
		seen, why := vs.seen(t)
		if d.State = seen; why.Word != "" {
			d.Reason = why
		}
		if seen == job.Unreachable {
			w := vs.hosts.workers[d.Node]
			d.Reason.Detail = silence(d, t.e.job.Spec, t.e.job.Ending(t.index), w != nil && w.Up && !t.sameStore(w))
		}
	case d.State == job.Pending:
		d.Reason = addEstimate(vs.entries, t, vs.reason(t))
		switch {
		case t.overdue:
			d.Reason.Detail = contract.Clip(d.Reason.Detail + "; it has waited for more than " + job.Duration(vs.Config.MaxWait).String() + " and goes first (max-wait)")
		case t.raised > 0:
			d.Reason.Detail = contract.Clip(d.Reason.Detail + "; it has waited for as long as it has left to run, and goes before higher priorities (max-wait)")
		case t.e.priority < t.e.job.Spec.Priority:
			why := vs.Config.Priorities.Exceeds(t.e.job.User, t.e.job.Spec.Priority)
			if why == "" { // a reload allows it now
				why = fmt.Sprintf("priority %d was above the highest here when the daemon started", t.e.job.Spec.Priority)
			}
			d.Reason.Detail = contract.Clip(fmt.Sprintf("%s; %s, and counts as %d", d.Reason.Detail, why, t.e.priority))
		}
	}
}

// seen returns the state of an assigned task as its host has reported it. While the host is silent the task is
// UNREACHABLE.
func (vs *views) seen(t *task) (job.State, job.Reason) {
	switch {
	case t.dispatch != nil, t.phase.over() && !vs.attempts.started(t) && vs.attempts.reached(t) != nil:
		return job.Reserved, job.Reason{}
	case vs.attempts.heard(t) && t.process.state != "" && t.process.detail != "":
		return t.process.state, job.Reason{Word: job.ReasonStaging, Detail: t.process.detail}
	case vs.attempts.heard(t):
		return cmp.Or(t.process.state, job.Running), job.Reason{}
	case t.process.state == job.Reserved && vs.attempts.reached(t) != nil:
		return job.Starting, job.Reason{}
	}
	return job.Unreachable, job.Reason{Word: job.ReasonNodeSilent}
}

// reason returns why a PENDING task waits. Its word is never empty.
func (vs *views) reason(t *task) job.Reason {
	switch {
	case !vs.Lead:
		return reasonReading
	case t.dispatch != nil && t.dispatch.gang != nil:
		return t.dispatch.gangReason()
	case t.dispatch != nil && t.waiting == 0:
		return job.Reason{Word: job.ReasonResources, Detail: "offered to " + vs.offeredTo(t.dispatch)}
	case t.dispatch != nil && t.dispatch.preempt != nil:
		return job.Reason{Word: job.ReasonResources, Detail: "waits on " + t.dispatch.preempt.Name() + " for the end of tasks that are preempted for it"}
	case t.phase.proposed():
		return job.Reason{Word: job.ReasonBackoff, Detail: "an attempt is being taken back"}
	case t.barred:
		return vs.following(t.e, t.index)
	case !t.queued && t.pause.until.After(vs.Now):
		if why := roomElsewhere(vs.placement, t, vs.outlook(vs.pending.join(t)).Fits); t.pause.placed && why.Word != "" {
			return why
		}
		return job.Reason{Word: job.ReasonBackoff, Detail: fmt.Sprintf("next attempt in %s, %s", job.Duration(nextTry(t, vs.Now).Sub(vs.Now).Round(time.Millisecond)), t.pause.why)}
	}
	return vs.waitReason(t)
}

// waitReason returns the reason of a task that waits in the queue of its shape.
func (vs *views) waitReason(t *task) job.Reason {
	g := vs.pending.join(t)
	if why := vs.Config.Limits.NeverInCluster(g.User, g.need()); why != "" {
		return job.Reason{Word: job.ReasonNoMatch, Detail: why}
	}
	x := vs.outlook(g)
	switch {
	case x.Able == 0 && len(vs.hosts.workers) == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case x.Able == 0:
		return job.Reason{Word: job.ReasonNoMatch, Detail: vs.noMatch(g, t)}
	case x.Open == 0:
		return closedReason(x)
	case x.Able < g.Gang:
		return job.Reason{Word: job.ReasonNoMatch, Detail: vs.noMatch(g, t)}
	case x.Open < g.Gang:
		why := closedReason(x)
		why.Detail = contract.Clip(fmt.Sprintf("it needs %d nodes at once; %s", g.Gang, why.Detail))
		return why
	}
	if g.capped {
		return job.Reason{Word: job.ReasonQuota, Detail: vs.allot.whyCapped(g)}
	}
	if x.Fits == 0 && x.Quota != "" {
		return job.Reason{Word: job.ReasonQuota, Detail: contract.Clip(x.Quota)}
	}
	if ahead, _ := g.queue.place(t); t.queued && ahead > 0 {
		return job.Reason{Word: job.ReasonPriority, Detail: fmt.Sprintf("behind %d waiting %s for the same", ahead, map[bool]string{true: "task that asks", false: "tasks that ask"}[ahead == 1])}
	}
	if why := roomElsewhere(vs.placement, t, x.Fits); why.Word != "" && (g.Gang == 1 || x.Fits >= g.Gang) {
		return why
	}
	if why := vs.claimants.ahead(vs.pending, g, t.priority()); why != "" {
		return job.Reason{Word: job.ReasonPriority, Detail: why}
	}
	switch {
	case g.Gang > 1 && x.Fits < g.Gang:
		return job.Reason{Word: job.ReasonResources, Detail: fmt.Sprintf("a member fits on %d nodes now, and it needs %d at once; %s", x.Fits, g.Gang, lackText(x.Lack, x.Open, g.Need.Exclusive))}
	case x.Fits > 0 && g.ready:
		return job.Reason{Word: job.ReasonPriority, Detail: "its turn to be placed comes next"}
	case x.Fits > 0:
		return passedOverWhy(vs.placement, g, t)
	case len(x.Quarantined) > 0:
		where := strings.Join(x.Quarantined, ", ")
		return job.Reason{Word: job.ReasonGPUUnhealthy, Detail: contract.Clip("GPUs that it could have are set aside on " + where + "; `muster gpus` says why")}
	}
	why := lackText(x.Lack, x.Open, g.Need.Exclusive)
	if x.Foreign != "" {
		why += "; " + x.Foreign
	}
	return job.Reason{Word: job.ReasonResources, Detail: contract.Clip(why)}
}

// outlook returns the outlook of a shape. It is computed once in a step, so that a listing of many tasks of one shape
// costs one look at the hosts.
func (vs *views) outlook(g *shape) *fleet.Outlook {
	if g.outlook == nil || g.outlookAt != vs.Steps {
		g.outlook, g.outlookAt = new(vs.hosts.fleet.Outlook(&g.Shape)), vs.Steps
	}
	return g.outlook
}

// noMatch returns why no known host can run the shape. It is computed again only when the known hosts change.
func (vs *views) noMatch(g *shape, t *task) string {
	if g.noMatch == "" || g.noMatchAt != vs.hosts.profiles {
		g.noMatch, g.noMatchAt = vs.explain.shape(t.e.job.User, t.e.job.Spec, &g.Shape).Reason.Detail, vs.hosts.profiles
	}
	return g.noMatch
}
