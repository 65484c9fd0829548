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
	lookAnewFor   = 2 * time.Second // from the look to the answer; a further request waits for the next look
	maxLookPlaced = 256             // tasks that an answer names
	maxLookJobs   = 1024            // waiting jobs whose reason an answer has; each costs a look at all hosts
)

// anew answers Schedule requests. There is one look at a time for all requests, so that they cost little, however many
// there are.
type anew struct {
	*step.Turn
	entries  *entries
	search   *search.Search
	pending  *pending
	views    *views
	requests *requests

	look *lookAnew   // nil: none is going on
	next []*lookWish // requests that came since it began
}

type lookWish struct {
	token step.Token
	user  string
	seen  step.Looked
}

// lookAnew is one look: from the end of the back-offs until the answer.
type lookAnew struct{ wishes []*lookWish }

func (w *lookWish) about(e *entry) bool { return w.user == "" || w.user == e.job.User }

func (a *anew) ask(s step.Schedule) {
	w := &lookWish{token: s.Token, user: s.User}
	if a.look != nil {
		a.next = append(a.next, w)
		return
	}
	a.begin([]*lookWish{w})
}

// begin ends the back-offs of the jobs that the requests are about, and has their shapes tried again.
func (a *anew) begin(wishes []*lookWish) {
	a.look = &lookAnew{wishes}
	for _, e := range a.waiting(wishes) {
		n := a.endBackOffs(e)
		for _, w := range wishes {
			if w.about(e) {
				w.seen.Ended += n
			}
		}
	}
	a.search.Restart()
	a.After(lookAnewFor, a.end)
}

// waiting returns the jobs with waiting tasks that the requests are about, the oldest first.
func (a *anew) waiting(wishes []*lookWish) (out []*entry) {
	for _, e := range a.entries.byID {
		counts := e.job.Counts()
		if counts.Of(job.Pending) > 0 && slices.ContainsFunc(wishes, func(w *lookWish) bool { return w.about(e) }) {
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
func (a *anew) endBackOffs(e *entry) (n int) {
	e.shuns = nil
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
func (a *anew) changed(p job.Peer) {
	var again []*entry
	for _, e := range a.entries.byID {
		if e.shuns.Forget(p) {
			again = append(again, e)
		}
	}
	slices.SortFunc(again, inOrderOfJobs)
	for _, e := range again {
		for _, t := range slices.Clone(e.tasks) {
			if t.phase == idle && t.durable().State == job.Pending && t.leads() && t.pause.why == e.shunned {
				a.endPause(t)
			}
		}
	}
}

// endPause lets a waiting task be placed again now. It returns whether the task paused.
func (a *anew) endPause(t *task) (paused bool) {
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
func (a *anew) placed(e *entry, task int) {
	if a.look == nil {
		return
	}
	b, number := e.job.Brief(task), task
	for _, w := range a.look.wishes {
		if !w.about(e) {
			continue
		}
		if w.seen.Tasks++; len(w.seen.Placed) < maxLookPlaced {
			if l, err := e.job.Spec.Layout(); err == nil && l.Tasks() == e.job.Len() {
				number = l.Number(task)
			}
			w.seen.Placed = append(w.seen.Placed, step.Placed{Job: e.job.ID, Task: number, Node: b.Node, NodeName: b.NodeName})
		}
	}
}

// end answers the requests of a look, and begins the next one if somebody has asked for it.
func (a *anew) end() {
	if a.look == nil {
		return
	}
	for _, w := range a.look.wishes {
		a.rest(w)
		if a.requests.close(w.token) {
			a.Effects.Reply = append(a.Effects.Reply, step.Reply{Token: w.token, Looked: &w.seen})
		}
	}
	wishes := a.next
	a.look, a.next = nil, nil
	if len(wishes) > 0 {
		a.begin(wishes)
	}
}

// rest says why the jobs that still wait do so.
func (a *anew) rest(w *lookWish) {
	at, all := map[string]int{}, a.waiting([]*lookWish{w})
	told := all[:min(len(all), maxLookJobs)]
	w.seen.More = len(all) - len(told)
	for _, e := range told {
		why := a.views.reasonOf(e, job.Pending)
		i, there := at[why.Word]
		if !there {
			i = len(w.seen.Waiting)
			at[why.Word] = i
			w.seen.Waiting = append(w.seen.Waiting, step.Waiting{Reason: why, Job: e.job.ID})
		}
		counts := e.job.Counts()
		w.seen.Waiting[i].Jobs++
		w.seen.Waiting[i].Tasks += counts.Of(job.Pending)
	}
}

// LostLead forgets the look. requests.LostLead answers its requests with all others.
func (a *anew) lostLead() { a.look, a.next = nil, nil }
