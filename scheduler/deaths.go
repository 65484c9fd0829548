package scheduler

// Hosts that are gone for good: an operator swears that nothing runs there any more, and every attempt that this scheduler
// has there is given up.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// deaths are the hosts that were declared dead and whose attempts are being given up.
type deaths struct {
	*turn
	hosts      *hosts
	assigned   *assigned
	attempts   *attempts
	dispatches *dispatches
	requests   *requests

	byHost map[job.Peer]*death
}

// death is a host whose attempts are being given up. There is at most one for
// each host: a second request for the same host waits with the first.
type death struct {
	tokens  []Token        // that wait; at most maxRequests are open
	waiting map[*task]bool // assigned there, and not yet given up in the journal
	given   int            // attempts, those in waiting included
}

// mayBeDead refuses a host that answers this scheduler, and counts the attempts
// that it would give up on any other.
func (dd *deaths) mayBeDead(p job.Peer) (attempts int, err error) {
	if w := dd.hosts.workers[p]; w != nil && w.Up {
		return 0, fmt.Errorf("%w: node %s answers: drain it instead", ErrConflict, w.Name())
	}
	return len(dd.assigned.byNode[p]), nil
}

// declare proposes the end of every attempt that is assigned to the host.
// It answers when the journal has them all.
func (dd *deaths) declare(a DeclareDead) {
	if _, err := dd.mayBeDead(a.Peer); err != nil {
		dd.requests.answer(a.Token, nil, err)
		return
	}
	dd.notify(Notice{Kind: NodeDead, Peer: a.Peer, Node: dd.hosts.nameOf(a.Peer), Detail: lease.Clip(a.By)})
	d := dd.byHost[a.Peer]
	if d == nil {
		d = &death{waiting: map[*task]bool{}}
	}
	for _, t := range dd.assigned.at(a.Peer) {
		if d.waiting[t] {
			continue
		}
		d.waiting[t] = true
		d.given++
		dd.dispatches.takeBack(t)
		at := t.durable()
		dd.notify(Notice{Kind: TaskWrittenOff, Attempt: t.attempt(), Peer: at.Node, Node: at.NodeName})
		dd.attempts.giveUp(t, job.ProofOperator, fmt.Sprintf("%s was declared dead by %s", at.NodeName, a.By))
	}
	over := func(t Token) bool { return dd.requests.open[t] == nil } // their askers were told ErrBusy
	d.tokens = append(slices.DeleteFunc(d.tokens, over), a.Token)
	if len(d.waiting) == 0 {
		dd.answer(d)
		return
	}
	dd.byHost[a.Peer] = d
}

// left notes that a task is not assigned to its host any more. The last to
// leave a host that was declared dead answers those who declared it.
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
			dd.fx.Reply = append(dd.fx.Reply, Reply{Token: tok, Given: d.given})
		}
	}
}

// lostLead forgets who waits. Those who asked are answered with all other requests.
func (dd *deaths) lostLead() { clear(dd.byHost) }
