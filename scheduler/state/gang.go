package state

// Gangs: the tasks of an element with several nodes begin together, and what becomes of them is decided together.
//
// A member that ends keeps its own final state while others are assigned. If it ended badly, the others are told to end.
// When no member is assigned any more the gang is settled: all wait again, all are held, or all keep their states.
// See docs/adr, ADR 89.

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

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
	switch {
	case lost && r.Elsewhere && r.Hold == "":
		why.Word = ReasonNotStarted
	case lost:
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
func afterMember(j *Job, index int) (settled bool) {
	t := j.Task(index)
	if !ElementAssigned(j, index) {
		settle(j, j.Element(index), &t)
		return true
	}
	if t.State == job.Succeeded || t.Ending != job.NotEnding || j.Cancelled != "" || j.Spec.KeepOnBadExit || t.Exit != nil && j.Spec.Saved(*t.Exit) {
		return false // members that save their state do so at about the same time
	}
	why := job.Reason{Word: job.ReasonGangEnded, Detail: endOf(&t, index-j.Element(index).First)}
	j.tasks.each([]job.Range{j.Element(index)}, active, &j.dirty, func(x *job.Task) {
		if x.Ending == job.NotEnding {
			x.Ending, x.Reason = job.EndsGang, why
		}
	})
	return false
}

// maxEndText bounds the text, in bytes, that tells in the reasons of the others how a member ended.
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

// settle decides what becomes of a gang. last is the member that was the last to end: it has the newest request of a
// person.
func settle(j *Job, gang job.Range, last *job.Task) {
	f := fateOf(j, gang, last)
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
		put(j, t)
	}
	if f.to != "" {
		j.closed = time.Time{}
	}
}

func fateOf(j *Job, gang job.Range, last *job.Task) fate {
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

// Preempted reports whether the newest attempt of a task that has ended was preempted. A gang was preempted if a member
// of it was.
func Preempted(j *Job, index int) bool {
	gang := j.Element(index)
	for i := gang.First; i <= gang.Last; i++ {
		if preempted(j, i) {
			return true
		}
	}
	return false
}

func preempted(j *Job, index int) bool {
	exit := j.tasks.get(index).Exit
	if exit == nil {
		o := j.tasks.history.of[uint32(index)]
		if o == nil {
			return false
		}
		last := o.list[len(o.list)-1].exit()
		exit = &last
	}
	return exit.State == job.Preempted && !j.Spec.Saved(*exit)
}
