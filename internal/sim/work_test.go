package sim

// Jobs as their users see them: their needs, their run times, and their states.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// work is one job, and what the test sees of it.
type work struct {
	*submission

	fails     int           // first runs that fail
	saves     int           // later runs that only save their state
	poison    bool          // its task brings the host down
	poisonFor time.Duration // for this time
	label     [2]string     // that its host must have, if any

	cancelled bool // its user has asked for it
	held      bool // likewise
	released  bool

	acceptAt time.Duration
	rankAt   time.Duration // by which it is ranked in one look
	bornAt   time.Duration // as its owner says
	priority int           // likewise, in its newest offer; see told
	level    int           // likewise
	leveled  bool          // it was offered
	bornIn   int           // the life of its owner: its clock may have been set since
	state    job.State
	reason   job.Reason
	attempt  int
	assigned bool
	node     job.Peer
	requeued int   // the newest attempt at the last requeue
	asked    []int // the attempts that a requeue told to end: their ends say nothing about their hosts
	lost     []int // the attempts that the owner has written off
	starts   int
	startAt  time.Duration // of the first attempt
	endAt    time.Duration
	tries    []*proc
	stores   map[*proc]string // the store of the host at the start
	torn     time.Duration    // since when members of its gang run without the others; 0: they do not

	offers    int
	minute    time.Duration
	perHost   map[*host]int // offers in that minute
	mostOffer int

	outlooks map[*host]*outlook      // the forecasts of hosts for its start
	newest   map[*host]asked         // its newest offers
	left     map[*host]time.Duration // when it last lost its offer there
	again    time.Duration           // when a host was last told to keep something for it again
	moved    time.Duration           // when a host last withdrew or postponed a forecast
	dueBy    time.Duration           // the earliest forecast of a host since it began to wait, plus a margin; 0: none

	fitWait  time.Duration // longest time for which it was first and fitted
	turnAt   time.Duration // when it was last assigned
	firstAt  int           // hosts where it is first, in one look
	alone    time.Duration // since when it is first wherever it could run; 0: it is not
	aloneAt  []*host       // where that is
	aloneEnd time.Duration // when it fits at all these hosts, if nothing else starts there; 0: unknown

	failsAt *host // where it always fails; nil: nowhere
}

// newWork adds a job of an owner with this need.
func (w *world) newWork(o *owner, user string, need job.Resources, runs time.Duration) *work {
	spec := job.DefaultSpec()
	spec.Command = command
	spec.Resources = need
	n := len(w.works)
	s := &submission{w: w.World, index: n, owner: o, user: user, key: keyOf(n), spec: &spec, runs: runs}
	j := &work{submission: s, poisonFor: time.Minute, stores: map[*proc]string{}, newest: map[*host]asked{}, left: map[*host]time.Duration{}}
	w.World.works = append(w.World.works, s)
	w.works = append(w.works, j)
	w.byKey[j.key] = j
	return j
}

// String names the job for people.
func (j *work) String() string {
	text := fmt.Sprintf("job %d (%s of %s at %s: %s, priority %d", j.index, j.id, j.user, j.owner.peer, needText(j.spec.Resources), j.spec.Priority)
	if j.spec.Nodes > 1 {
		text += fmt.Sprintf(", %d nodes", j.spec.Nodes)
	}
	if j.spec.Exclusive {
		text += ", exclusive"
	}
	if j.spec.Constraint != "" {
		text += ", " + j.spec.Constraint
	}
	return text + ")"
}

// submitAt has the user submit it at this time.
func (j *work) submitAt(at time.Duration) {
	j.w.at(at, func() {
		if err := j.lay(); err != nil {
			j.w.fail("%s: %v", j, err)
		}
		j.submit()
	})
}

// question asks the owner something.
func (o *owner) question(event func(step.Token) step.Event, then func(step.Reply)) {
	o.ask(request{then: then}, event)
}

// reachableHost returns a host that could run the job and that its owner could have asked for a while.
func (j *work) reachableHost() *host {
	missing := max(1, j.spec.Nodes)
	for _, l := range j.owner.order {
		if j.could(l.h) && l.usable() > settleTime {
			if missing--; missing == 0 {
				return l.h
			}
		}
	}
	return nil
}

// settleTime is how long a pair that can reach each other may need for a session and a lease.
const settleTime = 15 * time.Second

func (j *work) cancel() {
	w := j.world()
	if j.state.Ended() {
		return
	}
	if !j.accepted {
		w.after(5*time.Second, j.cancel)
		return
	}
	j.cancelled = true
	j.owner.question(func(tok step.Token) step.Event {
		return step.Cancel{Token: tok, Job: j.id, Reason: "not needed"}
	}, func(r step.Reply) {
		if r.Err != nil && !errors.Is(r.Err, step.ErrNotFound) {
			w.after(time.Second, j.cancel)
		}
	})
}

// requeue has the job run again, whether it runs, has ended or has left its owner's memory.
func (j *work) requeue() {
	w := j.world()
	if !j.accepted {
		w.after(5*time.Second, j.requeue)
		return
	}
	j.owner.question(func(tok step.Token) step.Event {
		return step.Requeue{Token: tok, Job: j.id, Reason: "again"}
	}, func(r step.Reply) {
		if r.Err != nil && !errors.Is(r.Err, step.ErrNotFound) && !errors.Is(r.Err, step.ErrConflict) {
			w.after(time.Second, j.requeue)
		}
	})
}

// hold holds the job and releases it later.
func (j *work) hold(until time.Duration) {
	if !j.accepted {
		return
	}
	j.held = true
	j.owner.question(func(tok step.Token) step.Event {
		return step.Hold{Token: tok, Job: j.id, Reason: "later"}
	}, func(step.Reply) { j.world().at(until, j.release) })
}

// release releases the job, which is held or was submitted held.
func (j *work) release() {
	w := j.world()
	if !j.accepted {
		w.after(time.Second, j.release)
		return
	}
	j.owner.question(func(tok step.Token) step.Event {
		return step.Hold{Token: tok, Job: j.id, Release: true, Reason: "later"}
	}, func(r step.Reply) {
		if r.Err == nil || errors.Is(r.Err, step.ErrConflict) || errors.Is(r.Err, step.ErrNotFound) {
			j.released = true
			return
		}
		w.after(time.Second, j.release)
	})
}

// settled reports whether nothing more is to be expected of the job.
func (j *work) settled() bool {
	if j.refused != nil {
		return true
	}
	return j.accepted && (j.state.Ended() || j.state == job.Held && j.reason.Word != "" && (!j.held || j.released))
}

// could reports whether the host could ever run the job.
func (j *work) could(h *host) bool {
	p, need := &h.cfg.Profile, &j.spec.Resources
	if h.gone || p.CPUs < need.CPUs || len(p.GPUs) < gpu.Count(*need) {
		return false
	}
	return j.label[0] == "" || p.Labels[j.label[0]] == j.label[1]
}

// fits reports whether the need fits in this.
func (j *work) fits(free *contract.Free) bool {
	need := &j.spec.Resources
	if free.Exclusive || j.spec.Exclusive && free.Tasks > 0 {
		return false
	}
	return free.CPUs >= need.CPUs && len(free.GPUs) >= gpu.Count(*need)
}

// overQuota reports whether the user may not hold so much more at the host.
func (j *work) overQuota(h *host) bool {
	limit := h.cfg.Limits.PerUser
	if len(limit) == 0 {
		return false
	}
	var tasks, cpus, gpus int64
	for _, r := range h.disk.records {
		if r.User == j.user && (r.Phase == contract.PhaseReserved || r.Phase == contract.PhaseStarted) {
			tasks++
			cpus += int64(r.Need.CPUs)
			gpus += int64(gpu.Count(r.Need))
		}
	}
	over := func(has, more int64, q string) bool {
		for k, most := range limit {
			if string(k) == q && has+more > most {
				return true
			}
		}
		return false
	}
	need := j.spec.Resources
	if j.spec.Exclusive {
		need.CPUs, need.GPUs, need.GPUShare = h.cfg.Profile.CPUs, len(h.cfg.Profile.GPUs), 0
	}
	return over(tasks, 1, "tasks") || over(cpus, int64(need.CPUs), "cpus") || over(gpus, int64(gpu.Count(need)), "gpus")
}

// logNormal draws a duration whose logarithm is normal.
func logNormal(r *rand.Rand, median time.Duration, sigma float64, least, most time.Duration) time.Duration {
	d := float64(median) * math.Exp(sigma*r.NormFloat64())
	return min(max(time.Duration(d), least), most)
}
