package scheduler

// The views of jobs for people: the durable state, what hosts report, and for each waiting task the reason.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// views makes the views of jobs.
type views struct {
	*turn
	entries  *entries
	hosts    *hosts
	pending  *pending
	attempts *attempts
	explain  *explainer

	waiting waitText // of the job that was asked for last since the last step
}

// waitText is what a job waits for.
type waitText struct {
	e    *entry
	text string
}

// offeredTo is the name of the host that the task is assigned or offered to.
func (vs *views) offeredTo(d *dispatch) string {
	if d.target == "" && len(d.offers) > 0 {
		return d.offers[0].worker.Name()
	}
	return vs.hosts.nameOf(d.target)
}

// listed is the job as a listing has it.
func (vs *views) listed(x jobs.Entry) Listed {
	if j := vs.entries.table.Of(x); j != nil {
		v := vs.of(vs.entries.byID[j.ID])
		return Listed{ID: j.ID, Submitted: x.Submitted(), Job: &v}
	}
	return Listed{ID: vs.entries.table.ID(x), Submitted: x.Submitted(), Ended: x.Ended()}
}

// viewTasks bounds the tasks in the view of a job. The counts are those of all tasks.
const viewTasks = 256

// of is the view of a job.
func (vs *views) of(e *entry) job.Job {
	v := e.job.View(0, viewTasks)
	v.Owner = vs.cfg.Self
	for i := range v.Depends {
		vs.depends(&v.Depends[i])
	}
	for i := range v.Tasks {
		if d := &v.Tasks[i]; d.State.Ended() && d.Ended.IsZero() {
			d.Ended = e.ended
		}
	}
	shown := make([]bool, len(v.Tasks))
	for _, t := range e.tasks {
		if t.index < len(v.Tasks) {
			shown[t.index] = true
			d := &v.Tasks[t.index]
			before := d.State
			vs.task(t, d)
			v.Counts.Add(before, -1)
			v.Counts.Add(d.State, 1)
		} else if d := e.job.Brief(t.index); d.Assigned {
			seen, _ := vs.seen(t)
			v.Counts.Add(d.State, -1)
			v.Counts.Add(seen, 1)
		}
	}
	for i, has := range shown {
		if d := &v.Tasks[i]; !has && d.State == job.Pending {
			d.Reason = vs.following(e, i)
		}
	}
	return v
}

// following is why a task waits that has no soft state: it follows others of its job.
func (vs *views) following(e *entry, index int) job.Reason {
	switch why := vs.bar(e, index); {
	case !vs.lead:
		return reasonReading
	case why.Word != "":
		return why
	case e.front != nil && e.front.queued:
		return vs.waitReason(e.front)
	}
	return job.Reason{Word: job.ReasonPriority, Detail: "behind earlier tasks of its job"}
}

// bar is why a task may not be placed now, whatever room there is.
func (vs *views) bar(e *entry, index int) job.Reason {
	why, _ := vs.pending.bar(e, index)
	switch why.Word {
	case job.ReasonDependency:
		why.Detail = vs.dependencies(e)
	case job.ReasonDependencyNeverSatisfied:
		why.Detail = lease.Clip(e.job.Waits.NeverWhy(index))
	}
	return why
}

// dependencies tells what a job waits for of other jobs. It is worked out once for all tasks of a job.
func (vs *views) dependencies(e *entry) string {
	if vs.waiting.e == e {
		return vs.waiting.text
	}
	var parts []string
	n := 0
	for _, d := range e.job.Waits.List() {
		if d.Outcome != job.OutcomeWaiting {
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
	if left := e.parents.until.Sub(vs.now); n == 0 && left > 0 {
		text = fmt.Sprintf("%s more after the start of the jobs before it", left.Round(time.Second))
	}
	vs.waiting = waitText{e, lease.Clip(text)}
	return vs.waiting.text
}

// namedParents is how many of the jobs that a job waits for its reason names.
const namedParents = 3

// depends adds what is known of the parent to a dependency that is not met.
func (vs *views) depends(d *job.Depends) {
	if d.Outcome == job.OutcomeMet || d.Parent != "" || d.Job == "" {
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
	case d.Outcome == job.OutcomeNever || d.Job.Group() == vs.cfg.Group:
		return
	case p == nil:
		silent = fmt.Sprintf("%d jobs of other owners are followed, and this one is in line", maxParents)
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

// stateOf is the state that the view of the job has.
func (vs *views) stateOf(e *entry) job.State {
	if !e.job.Active() {
		return e.job.State()
	}
	counts := e.job.Counts()
	for _, t := range e.tasks {
		if d := t.durable(); d.Assigned {
			seen, _ := vs.seen(t)
			counts.Add(d.State, -1)
			counts.Add(seen, 1)
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
			d.Reason.Detail = silence(d, t.e.job.Spec.Partition)
		}
	case d.State == job.Pending:
		d.Reason = vs.reason(t)
	}
}

// seen is the state of an assigned task as its host has reported it. While the host is silent the task is UNREACHABLE.
func (vs *views) seen(t *task) (job.State, job.Reason) {
	switch {
	case t.dispatch != nil, t.phase.over() && !vs.attempts.started(t) && vs.attempts.reached(t) != nil:
		return job.Reserved, job.Reason{}
	case vs.attempts.heard(t) && t.seen != "":
		if t.process.detail != "" {
			return t.seen, job.Reason{Word: job.ReasonStaging, Detail: t.process.detail}
		}
		return t.seen, job.Reason{}
	case vs.attempts.heard(t):
		return job.Running, job.Reason{}
	case t.seen == job.Reserved && vs.attempts.reached(t) != nil:
		return job.Starting, job.Reason{}
	}
	return job.Unreachable, job.Reason{Word: reasonSilent}
}

// reasonSilent is the word of a task whose host does not answer.
const reasonSilent = "NodeSilent"

// silence is the reason of a task whose host does not answer.
func silence(d *job.Task, partition string) string {
	name := cmp.Or(d.NodeName, string(d.Node))
	if partition == partitionHold {
		return name + " does not answer; the task waits for it (partition: hold); if that host is gone for good: muster node declare-dead " + name
	}
	return name + " does not answer; its lease has not run out"
}

// reason is why a PENDING task waits. Its word is never empty.
func (vs *views) reason(t *task) job.Reason {
	switch {
	case !vs.lead:
		return reasonReading
	case t.dispatch != nil && t.waiting == 0:
		return job.Reason{Word: job.ReasonResources, Detail: "offered to " + vs.offeredTo(t.dispatch)}
	case t.phase.proposed():
		return job.Reason{Word: job.ReasonBackoff, Detail: "an attempt is being taken back"}
	case t.barred:
		return vs.bar(t.e, t.index)
	case !t.queued && t.pause.until.After(vs.now):
		return job.Reason{Word: job.ReasonBackoff, Detail: fmt.Sprintf("next attempt in %s, %s", t.pause.until.Sub(vs.now).Round(time.Millisecond), t.pause.why)}
	}
	return vs.waitReason(t)
}

// waitReason is the reason of a task that waits in the queue of its shape.
func (vs *views) waitReason(t *task) job.Reason {
	g := vs.pending.join(t)
	x := vs.outlook(g)
	switch {
	case x.Able == 0 && len(vs.hosts.workers) == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case x.Able == 0:
		return job.Reason{Word: job.ReasonNoMatch, Detail: vs.noMatch(g, t)}
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

// outlook returns the outlook of a shape. It is computed once in a step, so that a listing of many tasks of one shape
// costs one look at the hosts.
func (vs *views) outlook(g *shape) *fleet.Outlook {
	if g.outlook == nil || g.outlookAt != vs.steps {
		g.outlook, g.outlookAt = new(vs.hosts.fleet.Outlook(&g.Shape)), vs.steps
	}
	return g.outlook
}

// noMatch is why no known host can run the shape. It is computed again only when the known hosts change.
func (vs *views) noMatch(g *shape, t *task) string {
	if g.noMatch == "" || g.noMatchAt != vs.hosts.profiles {
		g.noMatch, g.noMatchAt = vs.explain.spec(t.e.job.Spec).Reason.Detail, vs.hosts.profiles
	}
	return g.noMatch
}

// closedReason is the reason if none of the hosts that could run the task takes tasks now.
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

// lackText says what is missing on how many hosts, as "not enough free gpus on 1 and cpus on 2 of 3 nodes that could
// run it".
func lackText(lack map[string]int, open int) string {
	var parts []string
	for _, what := range []string{"gpus", "cpus", "memory"} {
		if n := lack[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s on %d", what, n))
		}
	}
	return fmt.Sprintf("not enough free %s of %d nodes that could run it", strings.Join(parts, " and "), open)
}

// whyOf explains the state of a job with this view.
func (vs *views) whyOf(j job.Job) (lease.Explanation, error) {
	x, err := vs.explain.offers(j.Spec)
	x.Job, x.State, x.Reason = j.ID, j.State(), j.Tasks[0].Reason
	return x, err
}

// markQuotas moves hosts from Now to Later that have refused the job because of its user's quota.
func (vs *views) markQuotas(x *lease.Explanation, e *entry) {
	for _, t := range e.tasks {
		if t.shape == nil {
			continue
		}
		x.Now = slices.DeleteFunc(x.Now, func(cand lease.Candidate) bool {
			w := vs.hosts.workers[cand.Node]
			if w == nil {
				return false
			}
			why := t.shape.OverQuota(w.Host)
			if why != "" {
				cand.Why = "Quota: " + why
				x.Later = append(x.Later, cand)
			}
			return why != ""
		})
	}
}

// chosen returns the listed job if the filter chooses it. Of an archived job only the index entry is compared.
func (vs *views) chosen(x jobs.Entry, f *job.Query) (Listed, bool) {
	j := vs.entries.table.Of(x)
	switch {
	case j == nil:
		if f.User != "" && f.User != x.User() || len(f.States) > 0 && !slices.Contains(f.States, x.State()) {
			return Listed{}, false
		}
	case f.User != "" && f.User != j.User,
		len(f.States) > 0 && !j.Active() && !slices.Contains(f.States, j.State()):
		return Listed{}, false // before the view is made, which costs more
	}
	l := vs.listed(x)
	switch {
	case f.After.ID != "" && f.After.Compare(job.Position{Submitted: l.Submitted, ID: l.ID}) >= 0,
		!strings.HasPrefix(string(l.ID), f.Prefix),
		l.Job != nil && !f.Match(l.Job):
		return Listed{}, false
	}
	return l, true
}

// named returns the jobs whose ids the filter names, newest first. It does not look at all other jobs.
func (vs *views) named(f job.Query, limit int) []Listed {
	var found []jobs.Entry
	for _, id := range f.IDs {
		if x, there := vs.entries.table.Entry(id); there && !slices.Contains(found, x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, jobs.Entry.Compare)
	var out []Listed
	for _, x := range found {
		if l, ok := vs.chosen(x, &f); ok && len(out) < limit {
			out = append(out, l)
		}
	}
	return out
}

// page returns the jobs that the filter chooses, newest first.
func (vs *views) page(f job.Query) []Listed {
	limit := pageLimit(f)
	if len(f.IDs) > 0 {
		return vs.named(f, limit)
	}
	lowest, highest, ok := job.DrawnWith(f.Prefix)
	if !ok {
		return nil
	}
	var out []Listed
	each := func(x jobs.Entry) bool {
		if x.Number() < lowest || x.Number() > highest {
			return true
		}
		if l, ok := vs.chosen(x, &f); ok {
			out = append(out, l)
		}
		return len(out) < limit
	}
	from := jobs.Entry{}
	if f.After.ID != "" {
		from = jobs.At(f.After.Submitted, f.After.ID.Drawn())
	}
	vs.entries.table.Scan(from, each)
	return out
}

const (
	// MaxList bounds the jobs in one answer.
	MaxList = 1000
	// leastPage is the smallest page that Loop.Jobs asks for, since its own filter may drop some.
	leastPage = 256
)

// pageLimit is how many jobs an answer to the query may have.
func pageLimit(f job.Query) int {
	if f.Limit <= 0 || f.Limit > MaxList {
		return MaxList
	}
	return f.Limit
}
