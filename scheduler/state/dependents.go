package state

// Dependents: when a record changes a job, the jobs that depend on it change with it.
// See docs/adr, ADR 86.

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Apply applies a record to the table. A record that does not fit the state of its job changes nothing. seq is the
// record's number in the journal, in rising order. epoch is that of the owner who wrote the record.
func (t *Table) Apply(r job.Record, seq uint64, epoch job.Epoch) Change {
	if r, ok := r.(job.ParentRecord); ok {
		return t.learn(r)
	}
	c := t.apply(r, seq, epoch)
	if c.Moved && (len(t.Parents.of) > 0 || c.Job != nil && c.Job.Waits != nil) {
		s := &spread{Parents: &t.Parents, c: &c}
		s.after(r)
	}
	return c
}

// learn applies what a ParentRecord says of a parent. The records about the parent itself do not tell this table these
// facts.
func (t *Table) learn(r job.ParentRecord) Change {
	c := Change{}
	p := t.Parents.of[r.Parent]
	if p == nil {
		return c
	}
	s := &spread{Parents: &t.Parents, c: &c, at: r.At}
	if f, states := t.Parents.heard(r); f.saw == sawGone {
		s.gone(r.Parent)
	} else {
		s.tellLinks(p, f, states, true)
	}
	c.Moved = len(c.Others) > 0
	s.finish()
	return c
}

// spread passes the change of a job on to the jobs that depend on it. If this cancels such a job, the change is passed
// on to its own dependents, too.
type spread struct {
	*Parents

	at    time.Time
	c     *Change
	found map[*Job]int // index in c.Others
	ended []*Job       // jobs that were cancelled, and whose dependents are not updated yet
}

// after adds to a change what else follows from its record.
func (s *spread) after(r job.Record) {
	j, task := s.c.Job, allTasks
	switch r := r.(type) {
	case job.SubmitRecord:
		s.at = r.At
		s.attach(j)
	case job.RequeueRecord:
		s.at = r.At
		s.attach(j)
	case job.CancelRecord:
		s.at = r.At
	case job.ResultRecord:
		s.at, task = r.At, s.c.Task
	case job.UnassignRecord:
		s.at, task = r.At, s.c.Task
	case job.UnassignGangRecord:
		s.at, task = r.At, s.c.Task
	case job.PurgeRecord:
		s.gone(r.Job)
	case job.AssignRecord, job.AssignGangRecord, job.HoldRecord, job.ParentRecord: // they neither begin nor end anything
		return
	}
	if s.c.Gang != (job.Range{}) && !s.c.Settled {
		return // what becomes of the member is not decided yet
	}
	if j != nil && j.Ended() {
		s.detach(j)
	}
	if j != nil && s.table.Job(j.ID) == j {
		s.tell(j, task)
	}
	s.finish()
}

// finish updates the dependents of the jobs that were cancelled, and tidies up.
func (s *spread) finish() {
	for len(s.ended) > 0 {
		j := s.ended[0]
		s.ended = s.ended[1:]
		if j.Ended() {
			s.detach(j)
		}
		s.tell(j, allTasks)
	}
	for _, id := range s.c.Parents {
		s.tidy(id)
	}
}

// attach links a job that waits to its parents, and judges its dependencies by what the table knows of them.
func (s *spread) attach(j *Job) {
	w := j.Waits
	if w == nil || j.Ended() {
		return
	}
	var changed Other
	for i := range w.terms {
		x := &w.terms[i]
		if w.any && w.met > 0 {
			break
		}
		if x.live || x.outcome == met || x.outcome == lost || x.is(job.AfterCorr) && w.eachOf(i).met.Len() == j.Len() {
			continue
		}
		s.forget(j, i)
		p := s.link(j, i)
		s.touch(x.parent)
		s.judge(p, link{j, i}, &changed)
	}
	changed.All = true // a requeue also brings back tasks whose dependencies were not judged again
	s.kill(j, &changed)
}

// forget makes a dependency that could not be met wait again: the job was requeued.
func (s *spread) forget(j *Job, i int) {
	if w, x := j.Waits, &j.Waits.terms[i]; x.is(job.AfterCorr) {
		w.eachOf(i).mark([]job.Range{{First: 0, Last: j.Len() - 1}}, waitingFor, nil)
	} else if w.settle(x, facts{}) {
		j.dirty.waits = true
	}
}

// judge applies what the table knows of a parent to one link.
func (s *spread) judge(p *parent, l link, changed *Other) {
	id := l.to().parent
	if id.Group() != s.group {
		return // its owner is asked
	}
	f := s.facts(id)
	if len(p.links) == 1 {
		p.saw, p.told = f.saw, true
	}
	switch j := s.table.Job(id); {
	case !l.to().is(job.AfterCorr):
		s.settle(l, f, changed)
	case f.saw == sawGone:
		s.lose(l, changed)
	case j != nil && !j.Final():
		s.marks(l, TaskStatesOf(j), changed)
	}
}

// tell updates the jobs that depend on a job, of which a task may have changed.
func (s *spread) tell(j *Job, task int) {
	p := s.of[j.ID]
	if p == nil {
		return
	}
	f := s.facts(j.ID)
	same := p.told && p.saw == f.saw
	p.saw, p.told = f.saw, true
	if same && p.each == 0 {
		return
	}
	var states job.TaskStates
	if p.each > 0 {
		states = p.states(j, task)
	}
	s.tellLinks(p, f, states, !same)
}

// tellLinks applies what is known of a parent to its links: of the parent as a whole if whole is true, and of its tasks.
func (s *spread) tellLinks(p *parent, f facts, states job.TaskStates, whole bool) {
	for _, l := range p.links {
		if !l.to().live {
			continue
		}
		var changed Other
		switch {
		case l.to().is(job.AfterCorr):
			s.marks(l, states, &changed)
		case whole:
			s.settle(l, f, &changed)
		}
		s.changed(l.j, changed)
	}
}

// gone updates the jobs that depend on a job that its owner has deleted.
func (s *spread) gone(id job.ID) {
	p := s.of[id]
	if p == nil {
		return
	}
	for _, l := range p.links {
		if !l.to().live {
			continue
		}
		var changed Other
		if l.to().is(job.AfterCorr) {
			s.lose(l, &changed)
		} else {
			s.settle(l, facts{saw: sawGone}, &changed)
		}
		s.drop(l)
		s.changed(l.j, changed)
	}
}

// settle applies facts to a link without aftercorr.
func (s *spread) settle(l link, f facts, changed *Other) {
	w, x := l.j.Waits, l.to()
	if f.since.IsZero() || f.since.After(s.at) {
		f.since = s.at
	}
	if !w.settle(x, f) {
		return
	}
	l.j.dirty.waits, changed.All = true, true
	if x.outcome == met || x.outcome == lost {
		s.drop(l)
	}
	if w.any && w.met > 0 {
		s.detach(l.j)
	}
}

// marks applies the states of tasks to a link with aftercorr.
func (s *spread) marks(l link, states job.TaskStates, changed *Other) {
	w := l.j.Waits
	e := w.eachOf(l.term)
	changed.Freed = e.mark(w.selected(states.Succeeded), met, changed.Freed)
	changed.lost = e.mark(w.selected(states.Failed), never, changed.lost)
	changed.opened = e.mark(w.selected(states.Open), waitingFor, changed.opened)
	if e.met.Len() == l.j.Len() {
		s.drop(l)
	}
}

// lose ends a link with aftercorr whose parent was deleted.
func (s *spread) lose(l link, changed *Other) {
	s.marks(l, noTasks, changed)
	l.to().outcome, l.j.dirty.waits, changed.All = lost, true, true
	s.drop(l)
}

// changed notes that a job has changed with a parent. A job with KillOnInvalidDep is cancelled, as far as it can no
// longer run.
func (s *spread) changed(j *Job, x Other) {
	if !x.All && len(x.Freed)+len(x.lost)+len(x.opened) == 0 {
		return
	}
	s.kill(j, &x)
	if j == s.c.Job {
		return
	}
	if s.found == nil {
		s.found = map[*Job]int{}
	}
	i, there := s.found[j]
	if !there {
		i = len(s.c.Others)
		s.found[j] = i
		s.c.Others = append(s.c.Others, Other{Job: j})
	}
	o := &s.c.Others[i]
	o.All, o.Freed = o.All || x.All, append(o.Freed, x.Freed...)
}

// kill cancels the tasks of a job with KillOnInvalidDep that can no longer run.
func (s *spread) kill(j *Job, x *Other) {
	if !j.Spec.KillOnInvalidDep || j.Ended() {
		return
	}
	r := job.CancelRecord{At: s.at}
	first := 0
	if j.Waits.Each() {
		tasks := x.lost
		if x.All {
			tasks = []job.Range{{First: 0, Last: j.Len() - 1}}
		}
		if r.Tasks = nevers(j.Waits, tasks); len(r.Tasks) == 0 {
			return
		}
		first = r.Tasks[0].First
	} else if j.Waits.Of(0) != WaitNever {
		return
	}
	r.Reason = "its dependency can never be met: " + j.Waits.NeverWhy(first)
	if cancel(j, r) {
		x.All = true
		s.ended = append(s.ended, j)
	}
}

// nevers returns those tasks of the ranges that can no longer run.
func nevers(w *Waits, tasks []job.Range) (out []job.Range) {
	for _, r := range tasks {
		for i := r.First; i <= r.Last; i++ {
			if w.Of(i) == WaitNever {
				out = appendRange(out, i, i)
			}
		}
	}
	return out
}

// detach unlinks a job from all its parents: it waits for none of them any more.
func (s *spread) detach(j *Job) {
	for i := 0; j.Waits != nil && i < len(j.Waits.terms); i++ {
		s.drop(link{j, i})
	}
}

// drop makes a link not count any more.
func (s *spread) drop(l link) {
	if s.unlink(l.j, l.term) {
		s.touch(l.to().parent)
	}
}

// touch notes that other jobs now await something else from a parent.
func (s *spread) touch(id job.ID) {
	if n := len(s.c.Parents); n == 0 || s.c.Parents[n-1] != id {
		s.c.Parents = append(s.c.Parents, id)
	}
}
