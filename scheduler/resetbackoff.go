package scheduler

// A reset of back-offs: on a request, the back-offs of waiting tasks end and hosts are searched for again. The answer
// says what came of it. See docs/adr, ADR 141.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	resetRoundTime = 2 * time.Second // from the look to the answer; a further request waits for the next look
	maxResetPlaced = 256             // tasks that an answer names
	maxResetJobs   = 1024            // waiting jobs whose reason an answer has; each costs a look at all hosts
)

// backoffReset answers Schedule requests. There is one look at a time for all requests, so that they cost little, however many
// there are.
type backoffReset struct {
	*step.Turn
	entries  *entries
	search   *search.Search
	pending  *pending
	views    *views
	requests *requests

	round           *resetRound     // nil: none is going on
	waitingRequests []*resetRequest // requests that came since it began
}

type resetRequest struct {
	token  step.Token
	user   string
	result step.ResetResult
}

// resetRound is one look: from the end of the back-offs until the answer.
type resetRound struct{ requests []*resetRequest }

func (w *resetRequest) about(e *entry) bool { return w.user == "" || w.user == e.job.User }

func (a *backoffReset) ask(s step.Schedule) {
	w := &resetRequest{token: s.Token, user: s.User}
	if a.round != nil {
		a.waitingRequests = append(a.waitingRequests, w)
		return
	}
	a.begin([]*resetRequest{w})
}

// begin ends the back-offs of the jobs that the requests are about, and has their shapes tried again.
func (a *backoffReset) begin(wishes []*resetRequest) {
	a.round = &resetRound{wishes}
	for _, e := range a.waiting(wishes) {
		n := a.endBackOffs(e)
		for _, w := range wishes {
			if w.about(e) {
				w.result.Ended += n
			}
		}
	}
	a.search.Restart()
	a.After(resetRoundTime, a.end)
}

// waiting returns the jobs with waiting tasks that the requests are about, the oldest first.
func (a *backoffReset) waiting(wishes []*resetRequest) (out []*entry) {
	for _, e := range a.entries.byID {
		counts := e.job.Counts()
		if counts.Of(job.Pending) > 0 && slices.ContainsFunc(wishes, func(w *resetRequest) bool { return w.about(e) }) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, inOrderOfJobs)
	return out
}

// inOrderOfJobs orders jobs, the oldest first.
func inOrderOfJobs(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.job.Seq, b.job.Seq), cmp.Compare(a.job.ID, b.job.ID))
}

// endBackOffs ends the back-offs of the waiting tasks of a job. It returns how many of these tasks paused.
func (a *backoffReset) endBackOffs(e *entry) (n int) {
	e.avoidedHosts = nil
	for _, t := range slices.Clone(e.tasks) {
		if t.phase != idle || t.durable().State != job.Pending || !t.leads() {
			continue
		}
		t.avoid, t.declines = nil, 0
		if a.endPause(t) {
			n++
		}
	}
	return n
}

// changed lets jobs go again to a host that has another version now: what the earlier version could not take says
// nothing about the new one.
func (a *backoffReset) changed(p job.Peer) {
	var again []*entry
	for _, e := range a.entries.byID {
		if e.avoidedHosts.Forget(p) {
			again = append(again, e)
		}
	}
	slices.SortFunc(again, inOrderOfJobs)
	for _, e := range again {
		for _, t := range slices.Clone(e.tasks) {
			if t.phase == idle && t.durable().State == job.Pending && t.leads() && t.pause.why == e.avoidedWhy {
				a.endPause(t)
			}
		}
	}
}

// endPause lets a waiting task be placed again now. It returns whether the task paused.
func (a *backoffReset) endPause(t *task) (paused bool) {
	if paused = t.pause.until.After(a.Now); paused {
		t.pause.until = a.Now
	}
	a.pending.requeue(t)
	if g := t.shape; t.queued && g != nil && g.parked == t {
		a.pending.unlist(g)
		a.pending.ready.put(g)
	}
	return paused
}

// placed notes that a task was assigned to a host.
func (a *backoffReset) placed(e *entry, task int) {
	if a.round == nil {
		return
	}
	b, number := e.job.Brief(task), task
	for _, w := range a.round.requests {
		if !w.about(e) {
			continue
		}
		if w.result.Tasks++; len(w.result.Placed) < maxResetPlaced {
			if l, err := e.job.Spec.Layout(); err == nil && l.Tasks() == e.job.Len() {
				number = l.Number(task)
			}
			w.result.Placed = append(w.result.Placed, step.Placed{Job: e.job.ID, Task: number, Node: b.Node, NodeName: b.NodeName})
		}
	}
}

// end answers the requests of a look, and begins the next one if somebody has asked for it.
func (a *backoffReset) end() {
	if a.round == nil {
		return
	}
	for _, w := range a.round.requests {
		a.rest(w)
		if a.requests.close(w.token) {
			a.Effects.Reply = append(a.Effects.Reply, step.Reply{Token: w.token, Reset: &w.result})
		}
	}
	wishes := a.waitingRequests
	a.round, a.waitingRequests = nil, nil
	if len(wishes) > 0 {
		a.begin(wishes)
	}
}

// rest says why the jobs that still wait do so.
func (a *backoffReset) rest(w *resetRequest) {
	at, all := map[string]int{}, a.waiting([]*resetRequest{w})
	told := all[:min(len(all), maxResetJobs)]
	w.result.More = len(all) - len(told)
	for _, e := range told {
		why := a.views.reasonOf(e, job.Pending)
		i, there := at[why.Word]
		if !there {
			i = len(w.result.Waiting)
			at[why.Word] = i
			w.result.Waiting = append(w.result.Waiting, step.Waiting{Reason: why, Job: e.job.ID})
		}
		counts := e.job.Counts()
		w.result.Waiting[i].Jobs++
		w.result.Waiting[i].Tasks += counts.Of(job.Pending)
	}
}

// lostLead forgets the round. requests.lostLead answers its requests with all others.
func (a *backoffReset) lostLead() { a.round, a.waitingRequests = nil, nil }
