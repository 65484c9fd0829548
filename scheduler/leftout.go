package scheduler

// Hosts that a job leaves out for a while: its tasks fail there at once, and elsewhere they do not. The breaker of a host
// cannot know that, as one job or one user does not pause it. See docs/adr, ADR 169.

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
)

const (
	// quickFailure is the longest run of a task that counts as a failure at once.
	quickFailure = 30 * time.Second
	// quickFailures is how many of them in a row, without another end between them, have a job leave the host out.
	quickFailures = 3
	// leaveFirst is the first time for which it does. Then one task tries the host, and while such a task fails the time
	// doubles, up to leaveMost.
	leaveFirst = 30 * time.Second
	leaveMost  = 30 * time.Minute
	// maxTallies bounds the hosts of which a job keeps how its tasks do there.
	maxTallies = 256
)

// leftOut has the hosts that jobs leave out. It is not on disk: a new owner finds out anew.
type leftOut struct {
	by map[*entry]*tallies
}

// tallies is how the tasks of a job do: on all hosts, and on those where they fail at once.
type tallies struct {
	failed int // tasks that failed at once
	well   int // those that did not, however they ended
	at     map[job.Peer]*tallyAt
}

// tallyAt is how they do on one host.
type tallyAt struct {
	row    int       // failures at once, since the last other end
	failed int       // all of them
	well   int       // other ends
	trips  int       // how often it was left out in a row
	until  time.Time // until when it is; zero: it is not
}

// ended counts the end of an attempt on a host.
func (lo *leftOut) ended(e *entry, p job.Peer, x job.Exit, now time.Time) {
	if e.job.Ended() {
		delete(lo.by, e)
		return
	}
	quick := x.State == job.Failed && !e.job.Spec.Saved(x) && (!x.Started || x.Ended.Sub(x.Began) < quickFailure)
	if !quick && (!x.Started || x.State == job.Cancelled || x.State == job.NodeFail || x.State == job.Preempted && !e.job.Spec.Saved(x)) {
		return // it tells nothing of the host
	}
	all := lo.by[e]
	if all == nil {
		all = &tallies{at: map[job.Peer]*tallyAt{}}
		lo.by[e] = all
	}
	h := all.at[p]
	if h == nil && len(all.at) < maxTallies {
		h = &tallyAt{}
		all.at[p] = h
	}
	if !quick {
		all.well++
		if h != nil {
			h.well++
			h.row, h.trips, h.until = 0, 0, time.Time{}
		}
		return
	}
	all.failed++
	if h == nil {
		return
	}
	h.failed++
	h.row++
	if (h.row >= quickFailures || h.trips > 0) && all.betterElsewhere(h) {
		h.until = now.Add(doubled(leaveFirst, h.trips+1, leaveMost))
		h.row = 0
		h.trips++
	}
}

// betterElsewhere says whether the job does much better on the other hosts: at least half of its tasks there do not fail at
// once.
func (all *tallies) betterElsewhere(h *tallyAt) bool {
	well, failed := all.well-h.well, all.failed-h.failed
	return well > 0 && well >= failed
}

// tried notes that a task of the job is offered to the host. If the host was left out, the others wait for how this one does.
func (lo *leftOut) tried(e *entry, p job.Peer, now time.Time) {
	if all := lo.by[e]; all != nil {
		if h := all.at[p]; h != nil && h.trips > 0 {
			h.until = now.Add(doubled(leaveFirst, h.trips, leaveMost))
		}
	}
}

// add adds the hosts that the job leaves out to those that its task avoids. It goes there only where nothing else could
// ever take it.
func (lo *leftOut) add(e *entry, as place.Avoidances, now time.Time) place.Avoidances {
	all := lo.by[e]
	if all == nil {
		return as
	}
	own := true
	for _, p := range slices.Sorted(maps.Keys(all.at)) {
		h := all.at[p]
		if !h.until.After(now) || as.WaitsUntil(p).After(h.until) {
			continue
		}
		if own {
			as, own = append(place.Avoidances(nil), as...), false
		}
		as.Add(now, place.Avoidance{Peer: p, Failed: true, Until: h.until, WaitUntil: h.until})
	}
	return as
}

// lostLead forgets all.
func (lo *leftOut) lostLead() { clear(lo.by) }
