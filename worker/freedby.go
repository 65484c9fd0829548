package worker

// Releases: until when attempts hold what they have, at the latest.
// See docs/adr, ADR 91.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
)

// expect notes how long the attempt may hold what it has from the start of its process; 0: no limit is known. It assumes
// that the process begins within StartWithin. The time before the start does not count towards the limit.
func (a *attempt) expect(now leaseclock.Moment, limit time.Duration) {
	if a.limit = limit; limit > 0 {
		a.frees = now.Boot.Add(admission.StartWithin + limit)
	}
}

// begun notes that the process of the attempt has begun.
func (a *attempt) begun(now leaseclock.Moment) {
	if a.began = now.Boot; a.limit > 0 && a.stop == nil {
		a.frees = now.Boot.Add(a.limit)
	}
}

// ends notes that the attempt ends within this time, because it was told to, or because its processes are gone.
func (a *attempt) ends(now leaseclock.Moment, within time.Duration) {
	if by := now.Boot.Add(within); a.frees == 0 || by < a.frees {
		a.frees = by
	}
}

// readopt computes after a restart what is left of the time limit. The start of a process is known only by the wall
// clock, which may have been set meanwhile; the driver measures the limit itself.
func (a *attempt) readopt(now leaseclock.Moment) {
	if a.rec.File == nil || a.ended() {
		return
	}
	spec := a.rec.File.Spec()
	a.expect(now, contract.LimitOf(&spec))
	if a.limit > 0 && a.rec.PID > 0 {
		a.frees = now.Boot.Add(a.limit - min(max(0, now.Wall.Sub(a.rec.Started)), a.limit))
	}
}

// freedBy returns until when the attempt holds what it has, at the latest; never if that is not known. The time moves
// later while the attempt waits for its process to begin, and while the attempt is overdue.
func (a *attempt) freedBy(now leaseclock.Moment) leaseclock.BootTime {
	if a.frees == 0 || a.gathers() {
		return admission.Never
	}
	by := a.frees
	if a.rec.PID == 0 && a.rec.Exit == nil && a.stop == nil {
		by = max(by, now.Boot.Add(a.limit))
	}
	return max(by, now.Boot.Add(overdue))
}

// gathers reports whether the attempt is a place of a gang that is not started yet. Nobody knows when it will be: the
// gang may hold its places until other hosts have room.
func (a *attempt) gathers() bool {
	return (a.phase == reserving || a.phase == reserved) && a.offer.Msg.Gang > 0
}
