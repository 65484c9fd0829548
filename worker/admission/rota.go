package admission

// Turns: for how long what is free is kept for those who wait, and for how long others of the same priority may have it.
// See docs/adr, ADR 104 and ADR 167.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/worker/leaseclock"
)

// Turns says whether what is free is kept now for an offer that has been blocked without a booking since a time, and when
// that changes. In the first turn others may have it, because most offers find room by then. In the next turn, which is
// as long, it is kept. Then both turns follow again with twice the length, and so on. So what is free is kept for at most
// half of the time, and in the end a turn is longer than any task that runs here.
func Turns(since, now leaseclock.BootTime, first time.Duration) (kept bool, until leaseclock.BootTime) {
	for at, d := since, first; ; d *= 2 {
		if at = at.Add(d); now < at {
			return false, at
		}
		if at = at.Add(d); now < at {
			return true, at
		}
	}
}

// rota is the turns of one offer.
type rota struct {
	since leaseclock.BootTime // when the first turn began; 0: there was none
	first time.Duration       // how long the first turn lasts
}

// at returns the turn at a time: whether what is free is kept for the offer, and until when.
func (r *rota) at(now leaseclock.BootTime) (kept bool, until leaseclock.BootTime) {
	return Turns(r.since, now, r.first)
}

// exhausted reports whether so many turns have passed that the offer may never start.
func (r *rota) exhausted(now leaseclock.BootTime) bool { return now.Sub(r.since) >= turnsAlone*r.first }

// Pace is how long the last tasks here have run, at most paceOf of them.
type Pace struct {
	runs  [paceOf]time.Duration
	count int // of all that have ended
}

// paceOf is how many tasks decide how long turns are.
const paceOf = 64

// leastTurn is the least length of a first turn: an owner renews a queued offer every 20 s.
const leastTurn = 30 * time.Second

// Ended notes that a task has run for a time.
func (p *Pace) Ended(after time.Duration) {
	p.runs[p.count%paceOf] = after
	p.count++
}

// Turn returns how long a first turn lasts: twice the median of the run times, so that most tasks that run when it begins
// have ended when it does. It is at most the time that is set for this host, which also holds while no task has ended.
func (p *Pace) Turn(most time.Duration) time.Duration {
	n := min(p.count, paceOf)
	if n == 0 {
		return most
	}
	runs := p.runs
	slices.Sort(runs[:n])
	return min(most, max(leastTurn, 2*runs[n/2]))
}
