package scheduler

// Hosts that a job leaves out for a while: its tasks fail there at once, and elsewhere they do not, or that is not
// known yet. The breaker of the host does not help, because failures of one job or one user alone do not trip it.
// See docs/adr, ADR 169.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
)

const (
	// quickFailure is how long a task may have run to count as failed at once. trialFor is the same for a task that tries
	// a host, from its offer on: it includes the time that the task takes to begin.
	quickFailure = 30 * time.Second
	trialFor     = quickFailure + 5*time.Second
	// quickFailures is how many failures at once in a row, without another end between them, make a job leave the host
	// out.
	quickFailures = 3
	// leaveFirst is how long a job leaves a host out at first. Then one task tries the host. Each time that such a task
	// fails at once, the time doubles, up to leaveMost.
	leaveFirst = 30 * time.Second
	leaveMost  = 30 * time.Minute
	// doubtFirst is the same while nothing is known of how the job does elsewhere. It doubles up to leaveFirst.
	doubtFirst = time.Second
	// maxTallies bounds the hosts for which the results of one job are counted.
	maxTallies = 256
)

// leftOut has the hosts that jobs leave out. It is not on disk: a new owner has to find out again.
type leftOut struct {
	by map[*entry]*tallies
}

// tallies is how the tasks of a job do: on all hosts, and on those where they fail at once.
type tallies struct {
	failed int // tasks that failed at once
	well   int // those that did not, however they ended
	at     map[job.Peer]*tallyAt
	out    []job.Peer // hosts of at that are left out, and those that a task may try again
}

// tallyAt is how they do on one host.
type tallyAt struct {
	row     int           // failures at once since the last other end
	failed  int           // all failures at once
	well    int           // ends of any other kind
	longest time.Duration // how long a task ran that failed at once
	trips   int           // how often it was left out in a row
	doubts  int           // how often it was left out while nothing was known of other hosts
	left    time.Time     // since when it is left out; zero: it is not
	until   time.Time     // until when it is left out
	trial   *task         // the task that tries the host, since begun; nil: none does
	begun   time.Time
}

// ended counts the end of an attempt on a host.
func (lo *leftOut) ended(t *task, p job.Peer, x job.Exit, now time.Time) {
	e := t.e
	quick := x.FailedStart() || x.State == job.Failed && !e.job.Spec.Saved(x) && (!x.Started || x.Ended.Sub(x.Began) < quickFailure)
	if !quick && (!x.Started || x.State == job.Cancelled || x.State == job.NodeFail || x.State == job.Preempted && !e.job.Spec.Saved(x)) {
		return // such an end says nothing about the host
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
			all.takesBack(p, h)
		}
		return
	}
	all.failed++
	if h == nil {
		return
	}
	h.failed++
	if !h.left.IsZero() && h.trial != t {
		return // it was on its way when the host was left out
	}
	h.row++
	if x.Started {
		h.longest = max(h.longest, x.Ended.Sub(x.Began))
	}
	if h.row >= quickFailures || !h.left.IsZero() {
		all.leave(e, p, h, now)
	}
}

// leave makes the job leave the host out for a while, if it does better elsewhere, or if that is not known.
func (all *tallies) leave(e *entry, p job.Peer, h *tallyAt, now time.Time) {
	pause := time.Duration(0)
	switch all.elsewhere(e, p, h, now) {
	case does:
		h.trips++
		pause = doubled(leaveFirst, h.trips, leaveMost)
	case unknownThere:
		h.doubts++
		pause = doubled(doubtFirst, h.doubts, leaveFirst)
	case fails:
		all.takesBack(p, h)
		return
	}
	if h.left.IsZero() {
		all.out = append(all.out, p)
	}
	h.row, h.trial, h.left, h.until = 0, nil, now, now.Add(pause)
}

// takesBack lets tasks of the job go to the host again.
func (all *tallies) takesBack(p job.Peer, h *tallyAt) {
	h.row, h.trips, h.doubts, h.trial, h.left, h.until = 0, 0, 0, nil, time.Time{}, time.Time{}
	if i := slices.Index(all.out, p); i >= 0 {
		all.out = slices.Delete(all.out, i, i+1)
	}
}

// fate is how a job does on all hosts but one.
type fate int

const (
	unknownThere fate = iota // nothing is known
	does                     // much better
	fails                    // no better
)

// elsewhere says how the job does on the other hosts. It does better if at least half of its tasks there do not fail at
// once. If no task has ended there, it is enough that one has been running for much longer than those that failed here.
func (all *tallies) elsewhere(e *entry, p job.Peer, h *tallyAt, now time.Time) fate {
	well, failed := all.well-h.well, all.failed-h.failed
	switch {
	case well > 0 && well >= failed:
		return does
	case failed > 0:
		return fails
	}
	for _, t := range e.tasks {
		if b := t.durable(); b.Assigned && t.phase == running && b.Node != p && now.Sub(e.job.Task(t.index).Placed) >= max(time.Second, 5*h.longest) {
			return does
		}
	}
	return unknownThere
}

// tried notes that a task of the job is offered to the host. If the host was left out, the other tasks of the job wait
// for the result of this one.
func (lo *leftOut) tried(t *task, p job.Peer, now time.Time) {
	if all := lo.by[t.e]; all != nil {
		if h := all.at[p]; h != nil && !h.left.IsZero() {
			h.trial, h.begun, h.until = t, now, now.Add(trialFor)
		}
	}
}

// refuses says whether the job leaves the host out for this task, and until when. It does not consider whether another
// host could take the task; see placement.leaves.
func (lo *leftOut) refuses(t *task, p job.Peer, now time.Time) (until time.Time, refuses bool) {
	all := lo.by[t.e]
	if all == nil || len(all.out) == 0 {
		return time.Time{}, false
	}
	h := all.at[p]
	if h == nil || h.trial == t {
		return time.Time{}, false
	}
	return h.until, h.until.After(now)
}

// add adds the hosts that the job leaves out to those that its task avoids. Its tasks go there only if no other host
// could ever take them.
func (lo *leftOut) add(e *entry, as place.Avoidances, now time.Time) place.Avoidances {
	all := lo.by[e]
	if all == nil || len(all.out) == 0 {
		return as
	}
	own := true
	for _, p := range slices.Clone(all.out) {
		h := all.at[p]
		if all.healed(p, h, now) || !h.until.After(now) || as.WaitsUntil(p).After(h.until) {
			continue
		}
		if own {
			as, own = append(place.Avoidances(nil), as...), false
		}
		as.Add(now, place.Avoidance{Peer: p, Failed: true, LeftOut: true, Until: h.until, WaitUntil: h.until})
	}
	return as
}

// healed takes the host back if the task that tries it has run for longer than one that fails at once.
func (all *tallies) healed(p job.Peer, h *tallyAt, now time.Time) bool {
	if h.trial == nil || now.Sub(h.begun) < trialFor {
		return false
	}
	if b := h.trial.durable(); !b.Assigned || b.Node != p || h.trial.phase != running {
		return false
	}
	all.takesBack(p, h)
	return true
}

// noteEnd forgets the job if it has ended.
func (lo *leftOut) noteEnd(e *entry) {
	if e.job.Ended() {
		delete(lo.by, e)
	}
}

// lostLead forgets all.
func (lo *leftOut) lostLead() { clear(lo.by) }
