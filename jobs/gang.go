package jobs

// Gangs: the tasks of an element with several nodes begin together, and what becomes of them is decided together.
//
// A member that ends keeps its own final state while others are assigned. If it ended badly, the others are told to end.
// When no member is assigned any more the gang is settled: all wait again, all are held, or all keep their states.
// See docs/adr, ADR 89.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// The words of the reasons of members of a gang.
const (
	ReasonGangEnded  = "GangEnded"  // another member has ended badly; the detail names it
	ReasonNotStarted = "NotStarted" // its host did not start it
	// reasonTooMany is the word of a member whose host was lost, until the gang is settled and held.
	reasonTooMany = "NodesLost"
)

// gangOf returns the size of the gangs of a job with n tasks, or 0 if it has none.
func gangOf(s *job.Spec, n int) int {
	if s.Nodes < 2 || n%s.Nodes != 0 {
		return 0
	}
	return s.Nodes
}

// Gang returns how many tasks an element of the job has: 1, or the size of a gang.
func (j *Job) Gang() int { return max(1, j.gang) }

// Element returns the tasks of the element to which a task belongs.
func (j *Job) Element(index int) job.Range {
	first := index - index%j.Gang()
	return job.Range{First: first, Last: first + j.Gang() - 1}
}

// Widen returns the elements that have tasks in the ranges, which are in rising order and apart. No ranges mean all tasks.
func (j *Job) Widen(ranges []job.Range) []job.Range {
	if j.gang == 0 || len(ranges) == 0 {
		return ranges
	}
	var out []job.Range
	for _, r := range ranges {
		first, last := j.Element(max(0, r.First)).First, j.Element(max(0, r.Last)).Last
		if n := len(out); n > 0 {
			first = max(first, out[n-1].Last+1)
		}
		out = appendRange(out, first, last)
	}
	return out
}

// ElementAssigned reports whether a task of the element to which a task belongs is assigned.
func (j *Job) ElementAssigned(index int) bool {
	if j.gang == 0 {
		return j.tasks.brief(index).Assigned
	}
	for r, i := j.Element(index), 0; i < j.gang; i++ {
		if j.tasks.brief(r.First + i).Assigned {
			return true
		}
	}
	return false
}

// Unsettled reports whether a task is a member of a gang that has ended while other members are assigned.
func (j *Job) Unsettled(index int) bool {
	return j.gang > 0 && j.tasks.brief(index).State.Ended() && j.ElementAssigned(index)
}

// settled returns the parts of the ranges without gangs of which a member is assigned; some is false if nothing is left.
// No ranges mean all tasks.
func (j *Job) settled(ranges []job.Range) (rest []job.Range, some bool) {
	if j.gang == 0 || j.tasks.assigned == 0 {
		return ranges, true
	}
	if len(ranges) == 0 {
		ranges = []job.Range{{First: 0, Last: j.tasks.n - 1}}
	}
	for _, r := range ranges {
		next := r.First
		j.Each([]job.Range{r}, active, func(i int) bool {
			if i >= next {
				e := j.Element(i)
				rest = appendRange(rest, next, e.First-1)
				next = e.Last + 1
			}
			return true
		})
		rest = appendRange(rest, next, r.Last)
	}
	return rest, len(rest) > 0
}

// assignGang assigns all tasks of a gang, or none.
func (t *Table) assignGang(r job.AssignGangRecord, epoch job.Epoch) Change {
	j, c := t.gang(r.Attempt)
	if j == nil || j.gang == 0 || r.Attempt.Task != c.Gang.First || len(r.Members) != j.gang {
		return c
	}
	for k, x := range r.Members {
		b := j.tasks.brief(c.Gang.First + k)
		twice := slices.ContainsFunc(r.Members[:k], func(y job.Assignee) bool { return y.Node == x.Node })
		if b.State != job.Pending || b.Assigned || b.Attempt+1 != r.Attempt.N || twice {
			return c
		}
	}
	for k, x := range r.Members {
		i := c.Gang.First + k
		task := j.Task(i)
		assigned(j, &task, job.AssignRecord{
			Attempt: job.Attempt{Job: j.ID, Task: i, N: r.Attempt.N}, Node: x.Node, NodeName: x.NodeName, Store: x.Store,
		}, epoch)
		j.put(task)
	}
	c.Moved = true
	return c
}

// unassignGang takes a gang back of which no member was started, or does nothing.
func (t *Table) unassignGang(r job.UnassignGangRecord) Change {
	j, c := t.gang(r.Attempt)
	if j == nil || j.gang == 0 || r.Attempt.Task != c.Gang.First {
		return c
	}
	for i := c.Gang.First; i <= c.Gang.Last; i++ {
		if b := j.tasks.brief(i); !b.Assigned || b.Attempt != r.Attempt.N {
			return c
		}
	}
	for i := c.Gang.First; i <= c.Gang.Last; i++ {
		task := j.Task(i)
		to, why := job.Pending, job.Reason{}
		ending := j.ending(&task)
		if ending != job.NotEnding {
			to, why = endAs(j, &task, ending)
		}
		move(&task, to, why)
		task.Assigned, task.Ending = false, job.NotEnding
		closeTask(&task, r.At)
		if ending == job.EndsRequeued {
			runAgain(&task)
		}
		j.put(task)
	}
	c.Moved, c.Settled = true, true
	return c
}

// gang returns the job of an attempt, and a change of the gang of its task.
func (t *Table) gang(a job.Attempt) (*Job, Change) {
	j := t.Job(a.Job)
	if j == nil || !j.Has(a.Task) {
		return nil, Change{Job: j}
	}
	return j, Change{Job: j, Task: a.Task, Before: j.Task(a.Task), Gang: j.Element(a.Task)}
}

// put replaces a task.
func (j *Job) put(t job.Task) {
	j.tasks.set(t.Index, t, &j.dirty)
	j.close(&t)
}

// unassignMember ends the attempt of one member, which its host did not start or which was lost with its host. Other
// members may have run, so it ends like one that ran.
func unassignMember(j *Job, t *job.Task, r job.UnassignRecord) bool {
	if !t.Assigned || t.Attempt != r.Attempt.N {
		return false
	}
	lost := r.Proof != job.ProofDeclined && r.Proof != job.ProofNeverStarted
	why := job.Reason{Word: ReasonNotStarted, Detail: r.Detail}
	if lost {
		why = lossReason(r.Hold, r.Detail)
	}
	if !endMember(j, t, job.NodeFail, why, lost) {
		return false
	}
	if lost {
		t.Lost = addLost(t.Lost, t.Node)
		j.tasks.history.keepLost(t, r)
	}
	closeTask(t, r.At)
	return true
}

// memberResult ends one member as its host has reported.
func memberResult(j *Job, t *job.Task, r job.ResultRecord) bool {
	if !t.Assigned || t.Attempt != r.Attempt.N {
		return false
	}
	exit := r.Exit
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	lost, own := exit.State == job.NodeFail, exit.State == job.Succeeded
	if j.Spec.Saved(exit) {
		exit.State, exit.Reason = job.Preempted, "it saved its state"
	} else if exit.State == job.Preempted {
		own = true
	}
	why := exitReason(exit)
	if lost {
		why = lossReason(r.Hold, why.Detail)
	}
	if !endMember(j, t, exit.State, why, own || lost) {
		return false
	}
	if t.Ending != job.NotEnding || j.Cancelled != "" {
		exit.State = job.Cancelled
	}
	if lost {
		t.Lost = addLost(t.Lost, t.Node)
	}
	setExit(t, exit, r.Devices)
	closeTask(t, r.At)
	return true
}

// endMember gives a member its own final state. If it was told to end, it is CANCELLED, and keeps its Ending until the
// gang is settled. own says that the end of the gang cannot have been the reason.
func endMember(j *Job, t *job.Task, to job.State, why job.Reason, own bool) bool {
	switch ending := j.ending(t); {
	case ending == job.NotEnding:
	case ending == job.EndsGang && own:
		t.Ending = job.NotEnding
	default:
		to, why = job.Cancelled, t.Reason
		if j.Cancelled != "" {
			why = job.Reason{Word: ReasonCancelled, Detail: j.Cancelled}
		}
	}
	if !move(t, to, why) {
		return false
	}
	t.Assigned = false
	return true
}

func lossReason(hold, detail string) job.Reason {
	if hold != "" {
		return job.Reason{Word: reasonTooMany, Detail: hold}
	}
	return job.Reason{Word: ReasonLost, Detail: detail}
}

// afterMember goes on when a member has ended: it tells the others to end, or settles the gang if this was the last. It
// reports whether the gang is settled.
func (j *Job) afterMember(index int) (settled bool) {
	t := j.Task(index)
	if !j.ElementAssigned(index) {
		j.settle(j.Element(index), &t)
		return true
	}
	if t.State == job.Succeeded || t.Ending != job.NotEnding || j.Cancelled != "" || j.Spec.KeepOnBadExit || t.Exit != nil && j.Spec.Saved(*t.Exit) {
		return false // members that save their state do so at about the same time
	}
	why := job.Reason{Word: ReasonGangEnded, Detail: endOf(&t, index-j.Element(index).First)}
	j.tasks.each([]job.Range{j.Element(index)}, active, &j.dirty, func(x *job.Task) {
		if x.Ending == job.NotEnding {
			x.Ending, x.Reason = job.EndsGang, why
		}
	})
	return false
}

// maxEndText bounds how a member ended in the reasons of the others, in bytes.
const maxEndText = 200

// endOf tells people which member of a gang ended, and how.
func endOf(t *job.Task, rank int) string {
	how := t.Reason.Detail
	switch {
	case t.Reason.Word == ReasonLost || t.Reason.Word == reasonTooMany:
		how = "its node was lost"
	case t.Reason.Word == ReasonNotStarted:
		how = "it was not started: " + how
	case how != "":
	case t.Exit != nil && t.Exit.Signal != 0:
		how = fmt.Sprintf("signal %d", t.Exit.Signal)
	case t.Exit != nil:
		how = fmt.Sprintf("exit code %d", t.Exit.Code)
	}
	if len(how) > maxEndText {
		how = strings.ToValidUTF8(how[:maxEndText], "")
	}
	name := t.NodeName
	if name == "" {
		name = t.Node.Short()
	}
	return fmt.Sprintf("rank %d on %s: %s", rank, name, how)
}

// fate is what becomes of a gang whose members have all ended.
type fate struct {
	to    job.State // PENDING, HELD; empty: its members keep their states
	why   job.Reason
	fresh bool // a person asked for another run
	free  bool // it costs no retry
}

// settle decides what becomes of a gang. last is the member that was the last to end: it has the newest word of a person.
func (j *Job) settle(gang job.Range, last *job.Task) {
	f := j.fateOf(gang, last)
	runs := j.tasks.brief(gang.First).Runs
	if !f.free {
		runs++
	}
	for i := gang.First; i <= gang.Last; i++ {
		t := j.Task(i)
		if f.to != "" {
			move(&t, f.to, f.why)
			t.Closed = time.Time{}
		} else if t.Reason.Word == reasonTooMany {
			t.Reason.Word = ReasonLost
		}
		if t.Ending, t.Runs = job.NotEnding, runs; f.fresh {
			runAgain(&t)
		}
		j.put(t)
	}
	if f.to != "" {
		j.closed = time.Time{}
	}
}

func (j *Job) fateOf(gang job.Range, last *job.Task) fate {
	switch j.ending(last) {
	case job.EndsRequeued:
		return fate{to: job.Pending, fresh: true}
	case job.EndsCancelled:
		return fate{}
	case job.NotEnding, job.EndsGang:
	}
	away, ran := false, false // a host was lost or took its room back; a process ran
	var cause *job.Task
	hold := ""
	for i := gang.First; i <= gang.Last; i++ {
		t := j.Task(i)
		ran = ran || t.Exit != nil && t.Exit.Started
		switch {
		case t.Ending != job.NotEnding || t.State == job.Succeeded:
		case takenAway(&t, &j.Spec):
			away = true
			ran = ran || t.Reason.Word != ReasonNotStarted
			if t.Reason.Word == reasonTooMany {
				hold = t.Reason.Detail
			}
		case cause == nil:
			cause = &t
		}
	}
	switch {
	case away && hold != "" && j.Spec.Requeue:
		return fate{to: job.Held, why: job.Reason{Word: ReasonLost, Detail: hold}, free: true}
	case away && (j.Spec.Requeue || !ran):
		return fate{to: job.Pending, free: true}
	case away, cause == nil:
		return fate{}
	case cause.Exit != nil && j.Spec.Saved(*cause.Exit):
		return fate{to: job.Pending, free: true}
	case cause.Exit != nil && cause.State != job.Cancelled && j.tasks.brief(gang.First).Runs < j.Spec.Retries && j.Spec.RetriesAfter(*cause.Exit):
		return fate{to: job.Pending}
	}
	return fate{}
}

// takenAway reports whether a member has ended through no fault of its own: its host was lost, did not start it, or
// preempted it.
func takenAway(t *job.Task, s *job.Spec) bool {
	return t.State == job.NodeFail || t.State == job.Preempted && (t.Exit == nil || !s.Saved(*t.Exit))
}

// Causes returns the tasks of an element that decided how its newest attempt went: those that lost their hosts or were
// preempted, or else the lowest rank that failed or saved its state. It goes by what is kept of the newest attempts.
func Causes(j *Job, gang job.Range) (away []int, own int) {
	own = -1
	for i := gang.First; i <= gang.Last; i++ {
		all := Outcomes(j, i)
		if len(all) == 0 || all[len(all)-1].N != j.tasks.brief(i).Attempt {
			continue
		}
		switch x := all[len(all)-1].Exit; {
		case x.State == job.NodeFail, x.State == job.Preempted && !j.Spec.Saved(x):
			away = append(away, i)
		case x.State != job.Succeeded && x.State != job.Cancelled && x.State.Ended() && own < 0:
			own = i
		}
	}
	return away, own
}
