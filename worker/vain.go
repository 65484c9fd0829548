package worker

// Places that gangs held in vain: each time, others go first for as long, if their priority is not lower.
// See docs/adr, ADR 125 and ADR 167.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
)

// others is the time in which offers of single tasks go before those of gangs. It follows each time that a gang gave a
// place back without a start, and is as long as the gang held it. Without it, gangs that all lack a host would take turns
// with what is free here, and nothing would ever run on it.
type others struct {
	until      BootTime
	precedence int      // gangs of a higher one need not wait
	turns      rota     // since a place was held in vain, after a gang had started here
	last       BootTime // when one was held in vain for the last time
}

// vainForgotten is after how long without a place held in vain the turns begin anew, if they have not lasted longer.
const vainForgotten = 24 * time.Hour

// heldInVain notes that the reservation of an offer ends without a start. Where tasks go by level, single tasks and gangs
// go first in turns from then on; the first turn has this length.
func (t *others) heldInVain(now BootTime, o *offer, turn time.Duration) {
	if o.msg.Gang == 0 || o.since == 0 || now.Sub(o.since) < contract.ReserveFor {
		return
	}
	if t.until <= now {
		t.precedence = 0
	}
	if t.turns.since == 0 || now.Sub(t.last) > max(vainForgotten, t.last.Sub(t.turns.since)) {
		t.turns = rota{since: now, first: turn}
	}
	t.last = now
	t.until = max(t.until, now.Add(now.Sub(o.since)))
	t.precedence = max(t.precedence, o.msg.Precedence())
}

// started notes that a gang starts here: the times begin anew.
func (t *others) started() { *t = others{} }

// before reports whether an offer gets what is free only after those of single tasks of its priority.
func (t *others) before(now BootTime, o *offer) bool {
	if o.msg.Gang == 0 || o.preempted || o.conditional || now >= t.until || o.msg.Precedence() > t.precedence {
		return false
	}
	kept, _ := t.turns.at(now)
	return !kept || o.msg.Work.By != contract.ByAge
}
