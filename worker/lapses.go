package worker

// Lapses: schedulers that let reservations lapse again and again, and so hold what others could use. See docs/adr, ADR 115.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// lapses counts the reservations that lapsed, by scheduler; one that was held for minutes counts more. A started task takes
// one off.
type lapses map[job.Peer]*lapsing

type lapsing struct {
	count int
	last  leaseclock.BootTime // the last one that was counted
	until leaseclock.BootTime // nothing is reserved for the scheduler before
}

// add counts a reservation that lapsed after it had held resources for a time. It returns true if nothing is reserved for
// the scheduler from now on for a while. A scheduler without a session has failed, so of its reservations that lapse
// together only one counts.
func (l lapses) add(now leaseclock.Moment, p job.Peer, held time.Duration, connected bool) bool {
	x := l[p]
	if x == nil || now.Boot.Sub(x.last) >= lapsesKept {
		l.sweep(now)
		x = &lapsing{}
		l[p] = x
	}
	if !connected && x.count > 0 && now.Boot.Sub(x.last) < contract.ReserveFor {
		return false
	}
	x.count += 1 + int(held/time.Minute)
	x.last = now.Boot
	if x.count <= maxLapses {
		return false
	}
	pause := longestPause
	if more := x.count - maxLapses - 1; more < 6 {
		pause = firstPause << more
	}
	x.until = now.Boot.Add(max(pause, 2*held))
	return true
}

// started takes a lapse off, because a task of the scheduler starts.
func (l lapses) started(p job.Peer) {
	if x := l[p]; x != nil {
		if x.count--; x.count <= 0 {
			delete(l, p)
		}
	}
}

// sweep forgets the schedulers whose last lapse was long ago.
func (l lapses) sweep(now leaseclock.Moment) {
	for p, x := range l {
		if now.Boot.Sub(x.last) >= lapsesKept {
			delete(l, p)
		}
	}
}

// why returns why nothing is reserved for the scheduler now, or "".
func (l lapses) why(now leaseclock.Moment, p job.Peer) string {
	x := l[p]
	if x == nil || now.Boot >= x.until {
		return ""
	}
	return fmt.Sprintf("%d reservations of this scheduler have lapsed here without a start", x.count)
}
