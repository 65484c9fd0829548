package worker

// Places that gangs held in vain: each time, others go first for as long.
// See docs/adr, ADR 125.

import "github.com/musterhq/muster/lease"

// others is the time in which offers of single tasks go before those of gangs. It follows each time that a gang gave a
// place back without a start, and is as long as the gang held it. Without it, gangs that all lack a host would take turns
// with what is free here, and nothing would ever run on it.
type others struct {
	until      BootTime
	precedence int // gangs of a higher one need not wait
}

// heldInVain notes that the reservation of an offer ends without a start.
func (t *others) heldInVain(now BootTime, o *offer) {
	if o.msg.Gang == 0 || o.since == 0 || now.Sub(o.since) < lease.ReserveFor {
		return
	}
	if t.until <= now {
		t.precedence = 0
	}
	t.until = max(t.until, now.Add(now.Sub(o.since)))
	t.precedence = max(t.precedence, o.msg.Precedence())
}

// before reports whether an offer gets what is free only after those of single tasks.
func (t *others) before(now BootTime, o *offer) bool {
	return o.msg.Gang > 0 && !o.makesRoom() && now < t.until && o.msg.Precedence() <= t.precedence
}
