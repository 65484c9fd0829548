package scheduler

// Hosts that an operator declares dead: the operator guarantees that nothing runs there any more, and every attempt
// that is assigned to such a host is given up.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// deaths handles the hosts that are declared dead.
type deaths struct {
	*step.Turn
	hosts      *hosts
	assigned   *assigned
	attempts   *attempts
	dispatches *dispatches
	requests   *requests

	byHost map[job.Peer]*death
}

// death is a host whose attempts are being given up. There is at most one for each host. A second request for the same
// host waits with the first.
type death struct {
	tokens  []step.Token   // of the requests that wait; at most maxRequests are open
	waiting map[*task]bool // tasks whose Unassign is not in the journal yet
	given   int            // how many attempts are given up, including those of waiting
}

// dead returns the attempts that are given up if the host is declared dead. It is an error if the host answers this
// scheduler. But the host may answer with the data directory store, if that is given: then only its earlier data
// directories are dead.
func (dd *deaths) dead(p job.Peer, store string) (all []*task, err error) {
	if w := dd.hosts.workers[p]; w != nil && w.Up && (store == "" || w.Profile.Store != store) {
		return nil, fmt.Errorf("%w: node %s answers: drain it instead", step.ErrConflict, w.Name())
	}
	all = dd.assigned.at(p)
	if store != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(t *task) bool { return t.durable().Store == store })
	}
	return all, nil
}

// declare gives up every attempt that is assigned to the host. The request is answered when the journal has all of the
// Unassigns.
func (dd *deaths) declare(a step.DeclareDead) {
	all, err := dd.dead(a.Peer, a.Store)
	if err != nil {
		dd.requests.answer(a.Token, nil, err)
		return
	}
	dd.Notify(step.Notice{Kind: step.NodeDead, Peer: a.Peer, Node: dd.hosts.nameOf(a.Peer), Detail: contract.Clip(a.By)})
	d := dd.byHost[a.Peer]
	if d == nil {
		d = &death{waiting: map[*task]bool{}}
	}
	for _, t := range all {
		if d.waiting[t] {
			continue
		}
		d.waiting[t] = true
		d.given++
		dd.dispatches.takeBack(t)
		dd.attempts.writeOff(t, job.ProofOperator, fmt.Sprintf("%s was declared dead by %s", t.durable().NodeName, a.By))
	}
	over := func(t step.Token) bool { return dd.requests.open[t] == nil } // answered with ErrBusy
	d.tokens = append(slices.DeleteFunc(d.tokens, over), a.Token)
	if len(d.waiting) == 0 {
		dd.answer(d)
		return
	}
	dd.byHost[a.Peer] = d
}

// left notes that a task is no longer assigned to its host. When the last task has left a host that was declared dead,
// the requests are answered.
func (dd *deaths) left(t *task) {
	d := dd.byHost[t.node]
	if d == nil || !d.waiting[t] {
		return
	}
	delete(d.waiting, t)
	if len(d.waiting) == 0 {
		delete(dd.byHost, t.node)
		dd.answer(d)
	}
}

func (dd *deaths) answer(d *death) {
	for _, tok := range d.tokens {
		if dd.requests.close(tok) {
			dd.Effects.Reply = append(dd.Effects.Reply, step.Reply{Token: tok, GivenUp: d.given})
		}
	}
}

// lostLead forgets the hosts. The open requests are answered together with all others.
func (dd *deaths) lostLead() { clear(dd.byHost) }
