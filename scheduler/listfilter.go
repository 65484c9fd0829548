package scheduler

// Which jobs a listing shows, and how many tasks go before a job.

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// ahead returns how many waiting tasks of other jobs of this owner rank before the first waiting task of a job. Those that
// can use none of the hosts that the job can use do not count.
func ahead(vs *views, e *entry) (n int) {
	first := e.front
	if first == nil || first.durable().State != job.Pending {
		return 0
	}
	counted := map[*entry]bool{e: true} // jobs whose waiting tasks are counted together, with those on offer
	own := vs.pending.join(first)
	rivals := map[*shape]bool{} // whether a shape can use a host that this job can use
	rival := func(g *shape) bool {
		is, known := rivals[g]
		if !known {
			is = fleet.Rivals(&own.Shape, &g.Shape)
			rivals[g] = is
		}
		return is
	}
	for _, g := range vs.pending.shapes {
		if !rival(g) {
			continue
		}
		at, _ := g.queue.place(first)
		for _, t := range g.queue.items()[:at] {
			switch {
			case t.e == e:
			case t == t.e.front:
				n += max(1, t.e.pendingTasks())
				counted[t.e] = true
			default:
				n++
			}
		}
	}
	for _, c := range vs.pending.queued.chunks {
		for i := range c.waits {
			if w := &c.waits[i]; !counted[w.task.e] && rival(w.task.shape) && rank(w.task, first) < 0 {
				n++
			}
		}
	}
	return n
}

// markRefusals adds the hosts that have said that they can never run the job, and removes them from those that could
// run it.
func (vs *views) markRefusals(x *contract.Explanation, e *entry) {
	i := slices.IndexFunc(e.tasks, func(t *task) bool { return t.shape != nil })
	if i < 0 {
		return
	}
	vs.explain.addRefusals(x, &e.tasks[i].shape.Shape)
}

// chosen returns the listed job if the filter chooses it. For an archived job, only the index entry is compared.
func chosen(vs *views, x state.Entry, f *job.Query) (step.Listed, bool) {
	j := vs.entries.table.Of(x)
	switch {
	case j == nil:
		if f.User != "" && f.User != x.User() || len(f.States) > 0 && !slices.Contains(f.States, x.State()) {
			return step.Listed{}, false
		}
	case f.User != "" && f.User != j.User,
		len(f.States) > 0 && j.Assigned() == 0 && !slices.Contains(f.States, j.State()):
		return step.Listed{}, false // before the view is made, which costs more
	}
	l := vs.listed(x)
	switch {
	case f.After.ID != "" && f.After.Compare(job.Position{Submitted: l.Submitted, ID: l.ID}) >= 0,
		!strings.HasPrefix(string(l.ID), f.Prefix),
		l.Job != nil && !f.Match(l.Job):
		return step.Listed{}, false
	}
	return l, true
}

// named returns the jobs whose ids the filter names, newest first. It does not look at all other jobs.
func named(vs *views, f job.Query, limit int) []step.Listed {
	var found []state.Entry
	for _, id := range f.IDs {
		if x, there := vs.entries.table.Entry(id); there && !slices.Contains(found, x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, state.Entry.Compare)
	var out []step.Listed
	for _, x := range found {
		if l, ok := chosen(vs, x, &f); ok && len(out) < limit {
			out = append(out, l)
		}
	}
	return out
}

// page returns the jobs that the filter chooses, newest first.
func page(vs *views, f job.Query) []step.Listed {
	limit := PageLimit(f)
	if len(f.IDs) > 0 {
		return named(vs, f, limit)
	}
	lowest, highest, ok := job.DrawnWith(f.Prefix)
	if !ok {
		return nil
	}
	var out []step.Listed
	each := func(x state.Entry) bool {
		if x.Number() < lowest || x.Number() > highest {
			return true
		}
		if l, ok := chosen(vs, x, &f); ok {
			out = append(out, l)
		}
		return len(out) < limit
	}
	from := state.Entry{}
	if f.After.ID != "" {
		from = state.At(f.After.Submitted, f.After.ID.Drawn())
	}
	vs.entries.table.Scan(from, each)
	return out
}

const (
	// MaxList bounds the jobs in one answer.
	MaxList = 1000
	// LeastPage is the smallest page that Loop.Jobs asks for, since its own filter may drop some.
	LeastPage = 256
)

// PageLimit returns how many jobs an answer to the query may have.
func PageLimit(f job.Query) int {
	if f.Limit <= 0 || f.Limit > MaxList {
		return MaxList
	}
	return f.Limit
}
