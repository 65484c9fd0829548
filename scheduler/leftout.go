package scheduler

// Hosts that a job leaves out for a while: its tasks fail there at once, and elsewhere they do not, or nobody knows yet. The
// breaker of a host cannot know that, as one job or one user does not pause it. See docs/adr, ADR 169.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
)

const (
	// quickFailure is the longest run of a task that counts as a failure at once. One that runs on for longer, and for as long as
	// it takes to begin, has not failed so.
	quickFailure = 30 * time.Second
	trialFor     = quickFailure + 5*time.Second
	// quickFailures is how many of them in a row, without another end between them, have a job leave the host out.
	quickFailures = 3
	// leaveFirst is the first time for which it does. Then one task tries the host, and while such a task fails the time
	// doubles, up to leaveMost.
	leaveFirst = 30 * time.Second
	leaveMost  = 30 * time.Minute
	// doubtFirst is the same while nothing is known of how the job does elsewhere; up to leaveFirst.
	doubtFirst = time.Second
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
	out    []job.Peer // those of at that are left out, or were until a task tries them
}

// tallyAt is how they do on one host.
type tallyAt struct {
	row     int           // failures at once, since the last other end
	failed  int           // all of them
	well    int           // other ends
	longest time.Duration // how long a task ran that failed at once
	trips   int           // how often it was left out in a row
	doubts  int           // how often it was while nothing was known of other hosts
	left    time.Time     // since when it is; zero: it is not
	until   time.Time     // and until when
	trial   *task         // that tries the host, since begun; nil: none does
	begun   time.Time
}

// ended counts the end of an attempt on a host.
func (lo *leftOut) ended(t *task, p job.Peer, x job.Exit, now time.Time) {
	e := t.e
	quick := x.FailedStart() || x.State == job.Failed && !e.job.Spec.Saved(x) && (!x.Started || x.Ended.Sub(x.Began) < quickFailure)
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

// leave has the job leave the host out for a while, if it does better elsewhere, or nobody knows.
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

// takesBack has the job leave the host out no longer.
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

// elsewhere says how the job does on the other hosts. It does better if at least half of its tasks there do not fail at once. If
// none has ended there, one counts that has run for much longer than those that failed here.
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

// tried notes that a task of the job is offered to the host. If the host was left out, the others wait for how this one does.
func (lo *leftOut) tried(t *task, p job.Peer, now time.Time) {
	if all := lo.by[t.e]; all != nil {
		if h := all.at[p]; h != nil && !h.left.IsZero() {
			h.trial, h.begun, h.until = t, now, now.Add(trialFor)
		}
	}
}

// refuses says whether the job leaves out the host that has room for the task now, and until when. Not even then does it refuse
// the only host that could take the task.
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

// add adds the hosts that the job leaves out to those that its task avoids. It goes there only where nothing else could
// ever take it.
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
