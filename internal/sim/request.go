package sim

// Requests of users to schedulers. Each is answered, or repeated after its daemon has died.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// request is a request without an answer yet.
type request struct {
	s     *submission // whose Submit it is; nil: see then
	event func(step.Token) step.Event
	then  func(step.Reply)
}

// ask sends a request to the owner. If the owner is down, or dies before it has answered, the client asks again.
func (o *owner) ask(r request, event func(step.Token) step.Event) {
	r.event = event
	if o.local != nil && o.local.gone {
		if r.s != nil {
			r.s.submit()
		}
		return
	}
	if !o.up {
		o.w.after(o.w.draw(busyPause), func() { o.ask(r, event) })
		return
	}
	o.tokens++
	o.asks[o.tokens] = r
	if o.w.watch != nil {
		o.w.watch.asked(o, o.tokens)
	}
	o.tell(event(o.tokens))
}

// askAgain repeats the requests of clients whose daemon has died.
func askAgain(o *owner) {
	tokens := make([]step.Token, 0, len(o.asks))
	for tok := range o.asks {
		tokens = append(tokens, tok)
	}
	slices.Sort(tokens)
	for _, tok := range tokens {
		r := o.asks[tok]
		o.w.after(o.w.draw(busyPause), func() { o.ask(r, r.event) })
	}
	o.asks = map[step.Token]request{}
}

func (o *owner) replied(r step.Reply) {
	x, open := o.asks[r.Token]
	if !open {
		o.w.fail("%s answers request %d again: %v", o.peer, r.Token, r.Err)
		return
	}
	delete(o.asks, r.Token)
	if x.s != nil {
		x.s.submitted(r)
	} else {
		x.then(r)
	}
}

// committed sees each record as it enters the journal. It looks for tasks that have failed for good, and tasks that
// have lost so many hosts that they are held until a person releases them.
func (o *owner) committed(r job.Record) {
	switch r := r.(type) {
	case job.SubmitRecord:
		o.w.named(r.Job, r.Key)
	case job.ResultRecord:
		s := o.w.byID[r.Attempt.Job]
		switch {
		case s == nil:
		case r.Hold != "":
			o.held(r.Attempt)
		case r.Exit.State == job.Succeeded && s.nodes == 0:
			s.heard(r.Attempt)
		case r.Exit.State == job.Preempted:
		default:
			o.lookLater(r.Attempt)
		}
	case job.UnassignRecord:
		if r.Hold != "" {
			o.held(r.Attempt)
		} else if r.Proof == job.ProofExpired || r.Proof == job.ProofDead {
			o.lookLater(r.Attempt)
		}
	}
}

// keyOf returns the idempotency key of a job of the load.
func keyOf(index int) string { return fmt.Sprintf("job-%d", index) }

// named notes the ID of a job as soon as the journal has it. If the daemon dies before it has answered, the job still
// runs.
func (w *World) named(id job.ID, key string) {
	digits, found := strings.CutPrefix(key, "job-")
	if i, err := strconv.Atoi(digits); found && err == nil && i < len(w.works) {
		w.works[i].id = id
		w.byID[id] = w.works[i]
	}
}

// lookLater checks the state of a task, or of its gang, once the core has applied the record.
func (o *owner) lookLater(a job.Attempt) {
	s := o.w.byID[a.Job]
	if s == nil {
		return
	}
	life := o.life
	o.w.after(2*time.Millisecond, func() {
		if o.life != life || !o.up {
			return
		}
		size := max(s.nodes, 1)
		k := a.Task / size
		tasks, err := o.core.View().Tasks(a.Job, job.TaskQuery{Ranges: []job.Range{{First: k * size, Last: (k+1)*size - 1}}, After: -1, Limit: size})
		failed := false
		for i := range tasks {
			if !tasks[i].State.Ended() {
				return
			}
			failed = failed || tasks[i].State != job.Succeeded
		}
		if err == nil && failed {
			o.w.reject(s, k)
		}
	})
}

// releaseAfter is how long a task that has lost too many hosts is held until a person releases it.
const releaseAfter = 10 * time.Minute

func (o *owner) held(a job.Attempt) {
	s := o.w.byID[a.Job]
	if s == nil || o.w.watch != nil {
		return
	}
	o.w.after(releaseAfter, func() {
		o.w.counts.Released++
		o.ask(request{then: func(step.Reply) {}}, func(tok step.Token) step.Event {
			return step.Hold{Token: tok, Job: a.Job, Tasks: []job.Range{{First: a.Task, Last: a.Task}}, Release: true}
		})
	})
}
