package state

// Parents: the jobs that jobs of a table wait for, and the links between them.
// See docs/adr, ADR 86.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// Parents holds the jobs that jobs of a table wait for.
type Parents struct {
	group job.Group
	table lookup
	of    map[job.ID]*parent
	live  int // links that count
}

// lookup finds the jobs of a table.
type lookup interface {
	Job(id job.ID) *Job
	Archived(id job.ID) (Entry, bool)
}

// parent is a job that others wait for. It may be a job of another table.
type parent struct {
	links []link // by job and term, so that a restart does not change in which order jobs are told
	live  int    // links that count; the others have a dependency that is met, or a job that has ended
	start int    // live links that wait for the start
	each  int    // live links with aftercorr

	saw    uint8       // the final state that the links have learnt
	told   bool        // they have learnt it; false after the rows were read
	layout *job.Layout // of the parent; nil until it is needed
}

// link is a dependency on the parent.
type link struct {
	j    *Job
	term int
}

func (l link) to() *term { return &l.j.Waits.terms[l.term] }

func (l link) compare(m link) int {
	return cmp.Or(cmp.Compare(l.j.Seq, m.j.Seq), cmp.Compare(l.term, m.term))
}

// undecided reports whether a link with aftercorr waits for something.
func (l link) undecided() bool {
	x := l.to()
	if !x.live || !x.is(job.AfterCorr) {
		return false
	}
	e := l.j.Waits.eachOf(l.term)
	return e.met.Len()+e.never.Len() < l.j.Len()
}

// Awaited is what the jobs of a table wait for of one parent.
type Awaited struct {
	Ask   bool // the table cannot judge it alone: the owner of the parent must be asked
	Tasks bool // the state of each task of the parent is needed
	Start bool // the parent is a job of the table, and jobs wait for its start, which no record tells
}

// Awaited returns what the jobs of the table wait for of a parent.
func (ps *Parents) Awaited(id job.ID) Awaited {
	p := ps.of[id]
	if p == nil {
		return Awaited{}
	}
	if id.Group() != ps.group {
		return Awaited{Ask: true, Tasks: p.each > 0}
	}
	if j := ps.table.Job(id); j != nil && !j.Final() {
		return Awaited{Start: p.start > 0}
	}
	ask := p.each > 0 && slices.ContainsFunc(p.links, link.undecided) // the tasks of a job that is final may be on disk only
	return Awaited{Ask: ask, Tasks: ask}
}

// All returns all parents, sorted.
func (ps *Parents) All() []job.ID { return slices.Sorted(maps.Keys(ps.of)) }

// Links returns the number of dependencies that are waited for.
func (ps *Parents) Links() int { return ps.live }

// facts returns what the table knows of a job of its own.
func (ps *Parents) facts(id job.ID) facts {
	if j := ps.table.Job(id); j != nil {
		return facts{saw: sawOf(j.State()), since: j.ClosedAt()}
	}
	if e, there := ps.table.Archived(id); there {
		return facts{saw: sawOf(e.State()), since: e.Ended()}
	}
	return facts{saw: sawGone}
}

// heard returns what a record says of a parent. What the table itself knows of the parent takes precedence.
func (ps *Parents) heard(r job.ParentRecord) (facts, job.TaskStates) {
	if r.Parent.Group() != ps.group {
		f := facts{saw: sawOf(r.State), started: r.Started, since: r.Since}
		if r.State == "" {
			f.saw = sawGone
		}
		return f, r.Tasks
	}
	f := ps.facts(r.Parent)
	if f.saw == sawNothing {
		f.started, f.since = r.Started, r.Since
	}
	if j := ps.table.Job(r.Parent); j != nil && !j.Final() {
		return f, job.TaskStates{}
	}
	return f, r.Tasks
}

// Learns reports whether the record would change a job of the table.
func (ps *Parents) Learns(r job.ParentRecord) bool {
	p := ps.of[r.Parent]
	if p == nil {
		return false
	}
	f, states := ps.heard(r)
	return slices.ContainsFunc(p.links, func(l link) bool { return l.to().live && l.learns(f, states) })
}

func (l link) learns(f facts, states job.TaskStates) bool {
	x := l.to()
	if !x.is(job.AfterCorr) {
		return x.judge(f) != x.outcome
	}
	if f.saw == sawGone {
		return true
	}
	w := l.j.Waits
	e := w.eachOf(l.term)
	return e.wouldMark(w.selected(states.Succeeded), met) || e.wouldMark(w.selected(states.Failed), never) ||
		e.wouldMark(w.selected(states.Open), waitingFor)
}

// link makes a link, or makes one count again.
func (ps *Parents) link(j *Job, i int) *parent {
	x := &j.Waits.terms[i]
	p := ps.of[x.parent]
	if p == nil {
		p = &parent{}
		ps.of[x.parent] = p
	}
	if !x.linked {
		l := link{j, i}
		at := len(p.links)
		if at > 0 && l.compare(p.links[at-1]) < 0 {
			at, _ = slices.BinarySearchFunc(p.links, l, link.compare)
		}
		p.links = slices.Insert(p.links, at, l)
	}
	x.linked, x.live = true, true
	p.count(x, 1)
	ps.live++
	return p
}

// unlink makes a link not count any more. It returns false if the link did not count.
func (ps *Parents) unlink(j *Job, i int) bool {
	x := &j.Waits.terms[i]
	if !x.live {
		return false
	}
	ps.of[x.parent].count(x, -1)
	x.live = false
	ps.live--
	return true
}

func (p *parent) count(x *term, n int) {
	p.live += n
	switch {
	case x.is(job.AfterCorr):
		p.each += n
	case x.is(job.After):
		p.start += n
	}
}

// tidy removes links that do not count, once they are at least half of all links.
func (ps *Parents) tidy(id job.ID) {
	p := ps.of[id]
	if p == nil || p.live > len(p.links)/2 {
		return
	}
	rest := p.links[:0]
	for _, l := range p.links {
		if l.to().live {
			rest = append(rest, l)
		} else {
			l.to().linked = false
		}
	}
	clear(p.links[len(rest):])
	p.links = rest
	if p.live == 0 {
		delete(ps.of, id)
	}
}

// load links a job that was read from its rows. Its dependencies are as the rows have them.
func (ps *Parents) load(j *Job) {
	w := j.Waits
	if w == nil || j.Ended() || w.any && w.met > 0 {
		return
	}
	for i := range w.terms {
		x := &w.terms[i]
		if x.outcome == met || x.outcome == lost || x.is(job.AfterCorr) && w.eachOf(i).met.Len() == j.Len() {
			continue
		}
		ps.link(j, i)
	}
}

// states returns the state of the element to which a task of the parent belongs, by the index of the element.
func (p *parent) states(j *Job, task int) job.TaskStates {
	if task == allTasks {
		return TaskStatesOf(j)
	}
	if p.layout == nil {
		l, err := j.Spec.Layout()
		if err != nil {
			return job.TaskStates{}
		}
		p.layout = &l
	}
	n := p.layout.Index(task)
	var out job.TaskStates
	*listOf(&out, elementState(j, task)) = []job.Range{{First: n, Last: n}}
	return out
}

// listOf returns the list for tasks in this state.
func listOf(states *job.TaskStates, s job.State) *[]job.Range {
	switch {
	case s == job.Succeeded:
		return &states.Succeeded
	case s.Ended():
		return &states.Failed
	}
	return &states.Open
}

// allTasks stands for all tasks of a job.
const allTasks = -1

// noTasks says that a job has no tasks that could succeed.
var noTasks = job.TaskStates{Failed: []job.Range{{First: 0, Last: job.MaxIndex}}}

// TaskStatesOf returns the indices of the elements of a job, grouped by what matters to tasks that depend on them. Each
// index from 0 to job.MaxIndex is in one of the lists: a task that the job does not have can never succeed.
func TaskStatesOf(j *Job) job.TaskStates {
	var out job.TaskStates
	l, err := j.Spec.Layout()
	if err != nil || l.Tasks() != j.Len() {
		return out
	}
	next := 0 // the first number that is in no list
	var numbers []job.Range
	elementRuns(j, func(first, last int, s job.State) {
		to := listOf(&out, s)
		if numbers = numbers[:0]; l.Size() > 1 {
			numbers = append(numbers, job.Range{First: l.Index(first), Last: l.Index(first)})
		} else {
			numbers = l.Numbers(numbers, first, last)
		}
		for _, r := range numbers {
			out.Failed = appendRange(out.Failed, next, r.First-1)
			*to = appendRange(*to, r.First, r.Last)
			next = r.Last + 1
		}
	})
	out.Failed = appendRange(out.Failed, next, job.MaxIndex)
	return out
}
