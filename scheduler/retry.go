package scheduler

// The wait between two attempts of a task, and the host that the task avoids then.
// See docs/adr, ADR 84.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// quickSave is how long an attempt should run before it saves its state. After shorter attempts the pause grows, because
// the task may do nothing but save.
const quickSave = 10 * time.Second

// backOff makes a task wait if its newest attempt failed or lost its host. The task then avoids the hosts where it has
// failed. backOff uses the durable state alone, so a new owner does the same. After a requeue by a person the task does
// not wait.
func (t *task) backOff(tn *step.Turn) {
	if b := t.durable(); b.Attempt == 0 || b.State != job.Pending {
		return
	}
	if t.e.job.Gang() == 1 {
		t.avoidFailed(tn)
		t.backOffAs(tn, t.index)
		return
	}
	away, own := state.Causes(t.e.job, t.e.job.Element(t.index))
	for _, member := range away {
		t.backOffAs(tn, member)
	}
	if len(away) == 0 && own >= 0 {
		t.backOffAs(tn, own)
	}
}

// backOffAs makes the task wait because of the newest attempt of the task with this index: the task itself, or a member
// of its gang.
func (t *task) backOffAs(tn *step.Turn, index int) {
	d, all := t.e.job.Task(index), state.Outcomes(t.e.job, index)
	if len(all) == 0 || all[len(all)-1].N <= d.Settled {
		return
	}
	last := all[len(all)-1]
	pause, why := backoff(d.Runs), "after "+describe(last.Exit)
	switch {
	case t.e.job.Spec.Saved(last.Exit):
		t.wait(tn, backoff(quickSaves(&t.e.job.Spec, all)), fmt.Sprintf("after it saved its state (exit code %d)", last.Exit.Code))
		return
	case last.Exit.State == job.Preempted:
		return
	case last.Exit.State == job.NodeFail:
		name := cmp.Or(last.NodeName, last.Node.Short())
		pause, why = doubled(lossFirst, len(d.Lost), lossMost), "after "+name+" was lost"
		if last.Exit.FailedStart() {
			pause, why = doubled(retryFirst, len(d.Lost), lossMost), "after "+name+" could not start it: "+last.Exit.Reason
		}
	}
	t.wait(tn, pause, why)
	if last.Exit.State == job.NodeFail && !last.Exit.FailedStart() {
		t.avoid.Add(tn.Now, place.Avoidance{Peer: last.Node, Until: t.pause.until.Add(avoidFor)})
		return
	}
	t.avoid.Add(tn.Now, place.Avoidance{Peer: last.Node, Failed: true, Until: tn.Now.Add(failedFor), WaitUntil: t.pause.until.Add(waitFor)})
}

// avoidFailed makes the task avoid the hosts where it has failed, also those before a requeue. Among these hosts it
// prefers the one where it failed first. For a failure since the requeue it also waits a while for another host. A new
// owner does not know when the failure was, and lets it wait for the full time. Gangs do not use this: most members fail
// because another one did.
func (t *task) avoidFailed(tn *step.Turn) {
	settled := t.e.job.Task(t.index).Settled
	for i, o := range state.Outcomes(t.e.job, t.index) {
		switch {
		case o.Exit.FailedStart():
		case o.Exit.State != job.Failed && o.Exit.State != job.OutOfMemory && o.Exit.State != job.Timeout, t.e.job.Spec.Saved(o.Exit):
			continue
		}
		a := place.Avoidance{Peer: o.Node, Failed: true, Until: tn.Now.Add(failedFor - time.Hour + time.Duration(i)*time.Second)}
		if o.N > settled {
			if a.WaitUntil = t.avoid.WaitsUntil(o.Node); a.WaitUntil.IsZero() {
				a.WaitUntil = tn.Now.Add(waitFor)
			}
		}
		t.avoid.Add(tn.Now, a)
	}
}

// wait makes the task wait for about that long.
func (t *task) wait(tn *step.Turn, d time.Duration, why string) {
	t.pause.until, t.pause.why, t.pause.placed = tn.Now.Add(tn.Jitter(d)), why, false
}

// quickSaves returns how many attempts in a row have saved their state soon after they began, up to the newest.
func quickSaves(s *job.Spec, all []job.Outcome) (n int) {
	for n < len(all) {
		x := all[len(all)-1-n].Exit
		if !s.Saved(x) || x.Ended.Sub(x.Began) >= quickSave {
			break
		}
		n++
	}
	return n
}

// describe tells in a few words how an attempt ended.
func describe(x job.Exit) string {
	switch {
	case x.Reason != "":
		return x.Reason
	case x.Signal != 0:
		return fmt.Sprintf("signal %d", x.Signal)
	}
	return fmt.Sprintf("exit code %d", x.Code)
}

// unsendable makes a task wait because no message about it can be sent.
func unsendable(tn *step.Turn, t *task) {
	t.pause.until, t.pause.why = tn.Now.Add(retryMost), "this daemon could not send a message about it: see its log"
}
