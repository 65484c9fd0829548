package scheduler

// A host that is gone for good: an operator swears that nothing runs there any
// more, and every attempt that this scheduler has there is given up.

import (
	"context"
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// DeclareDeadAsk is an operator's word that a host runs nothing any more.
type DeclareDeadAsk struct {
	Token Token
	Peer  job.Peer
	By    string // the user who says so
}

func (DeclareDeadAsk) event() {}

// death is a host whose attempts are being given up. There is at most one for
// each host: a second request for the same host waits with the first.
type death struct {
	tokens  []Token        // that wait; at most maxAsks are open
	waiting map[*task]bool // assigned there, and not yet given up in the journal
	given   int            // attempts, those in waiting included
}

// mayBeDead refuses a host that answers this scheduler, and counts the attempts
// that it would give up on any other.
func (c *Core) mayBeDead(p job.Peer) (attempts int, err error) {
	if w := c.workers[p]; w != nil && w.Up {
		return 0, fmt.Errorf("%w: node %s answers: drain it instead", ErrConflict, w.Name())
	}
	return len(c.byNode[p]), nil
}

// declareDead proposes the end of every attempt that is assigned to the host.
// It answers when the journal has them all.
func (c *Core) declareDead(a DeclareDeadAsk) {
	if _, err := c.mayBeDead(a.Peer); err != nil {
		c.answer(a.Token, nil, err)
		return
	}
	c.tell(Told{Kind: NodeDead, Peer: a.Peer, Node: c.nameOf(a.Peer), Detail: lease.Clip(a.By)})
	d := c.deaths[a.Peer]
	if d == nil {
		d = &death{waiting: map[*task]bool{}}
	}
	for _, t := range c.tasksAt(a.Peer) {
		if d.waiting[t] {
			continue
		}
		d.waiting[t] = true
		d.given++
		c.ground(t)
		at := t.durable()
		c.tell(Told{Kind: TaskWrittenOff, Attempt: t.attempt(), Peer: at.Node, Node: at.NodeName})
		c.giveUp(t, job.ProofOperator, fmt.Sprintf("%s was declared dead by %s", at.NodeName, a.By))
	}
	over := func(t Token) bool { return c.asks.open[t] == nil } // their askers were told ErrBusy
	d.tokens = append(slices.DeleteFunc(d.tokens, over), a.Token)
	if len(d.waiting) == 0 {
		c.answerDeath(d)
		return
	}
	c.deaths[a.Peer] = d
}

// leftNode notes that a task is not assigned to its host any more. The last to
// leave a host that was declared dead answers those who declared it.
func (c *Core) leftNode(t *task) {
	d := c.deaths[t.node]
	if d == nil || !d.waiting[t] {
		return
	}
	delete(d.waiting, t)
	if len(d.waiting) == 0 {
		delete(c.deaths, t.node)
		c.answerDeath(d)
	}
}

func (c *Core) answerDeath(d *death) {
	for _, tok := range d.tokens {
		if c.closeAsk(tok) {
			c.fx.Reply = append(c.fx.Reply, Reply{Token: tok, Given: d.given})
		}
	}
}

// MayBeDead counts the attempts that DeclareDead would give up. It is
// ErrConflict if the host answers this scheduler.
func (l *Loop) MayBeDead(ctx context.Context, p job.Peer) (attempts int, err error) {
	return query(ctx, l, func(c *Core) (int, error) { return c.mayBeDead(p) })
}

// DeclareDead gives up every attempt of this scheduler that is assigned to the
// host, on the word of the user by that nothing runs there any more. It returns
// how many they are once that is committed. A host that answers is ErrConflict;
// one that is not known here has no attempts. ErrBusy says that the journal
// took too long: they may be given up yet, and it may be declared again.
func (l *Loop) DeclareDead(ctx context.Context, p job.Peer, by string) (given int, err error) {
	r, err := l.ask(ctx, func(t Token) Event { return DeclareDeadAsk{Token: t, Peer: p, By: by} })
	return r.Given, err
}
