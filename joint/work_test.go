package joint

// Jobs as their users see them: what they ask for, how long they run, and what
// has become of them.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler"
)

// work is one job.
type work struct {
	w     *world
	index int
	owner *owner
	user  string
	key   string
	spec  job.Spec

	runs      time.Duration // how long its task runs
	fails     int           // first runs that fail
	saves     int           // of the further ones, those that only save their state
	poison    bool          // its task takes the host down
	poisonFor time.Duration // for so long
	label     [2]string     // that its host must have, if any

	cancelled bool // its user has asked for it
	held      bool // likewise
	released  bool
	refused   error // by the scheduler, for good

	id       job.ID
	acceptAt time.Duration
	rankAt   time.Duration // by which it is ranked in one look
	bornAt   time.Duration // as its owner tells
	bornIn   int           // in which of its lives: its clock may have been set since
	accepted bool
	state    job.State
	reason   job.Reason
	attempt  int
	assigned bool
	node     job.Peer
	requeued int // number of the attempt that was the newest at the last requeue
	starts   int
	startAt  time.Duration // of the first attempt
	endAt    time.Duration
	tries    []*proc
	torn     time.Duration // since when members of its gang run without the others; 0: they do not

	offers    int
	minute    time.Duration
	perHost   map[*host]int // offers in that minute
	mostOffer int

	fitWait  time.Duration // longest time for which it was first and fitted
	turnAt   time.Duration // when it was last assigned
	firstAt  int           // hosts where it is first, in one look
	alone    time.Duration // since when it is first wherever it could run; 0: it is not
	aloneAt  []*host       // where that is
	aloneEnd time.Duration // when all these hosts have room for it, if nothing else begins there; 0: not known yet
}

// newWork adds a job of an owner that asks for this.
func (w *world) newWork(o *owner, user string, need job.Resources, runs time.Duration) *work {
	j := &work{w: w, index: len(w.works), owner: o, user: user, runs: runs, poisonFor: time.Minute}
	j.key = fmt.Sprintf("key-%d", j.index)
	j.spec = job.DefaultSpec()
	j.spec.Command = []string{"true"}
	j.spec.Resources = need
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

// submitAt has the user submit it then.
func (j *work) submitAt(at time.Duration) { j.w.at(at, j.submit) }

// ask puts a question to the owner; if that is down, or dies before it has
// answered, the client asks again.
func (o *owner) ask(event func(scheduler.Token) scheduler.Event, then func(scheduler.Reply)) {
	w := o.w
	again := func() { o.ask(event, then) }
	if !o.up {
		w.after(between(w.chance, time.Second, 5*time.Second), again)
		return
	}
	o.tokens++
	tok, life := o.tokens, o.life
	answered := false
	o.asks[tok] = func(r scheduler.Reply) { answered = true; then(r) }
	o.tell(event(tok))
	w.after(clientWait, func() {
		switch {
		case answered:
		case o.life != life || !o.up:
			again()
		default:
			w.fail("%s has not answered a request within %v", o.peer, clientWait)
		}
	})
}

// clientWait is above the time within which a scheduler answers.
const clientWait = 45 * time.Second

func (o *owner) replied(r scheduler.Reply) {
	then := o.asks[r.Token]
	if then == nil {
		o.w.fail("%s answers request %d again: %v", o.peer, r.Token, r.Err)
		return
	}
	delete(o.asks, r.Token)
	then(r)
}

func (j *work) submit() {
	w := j.w
	if j.accepted {
		return
	}
	j.owner.ask(func(tok scheduler.Token) scheduler.Event {
		return scheduler.Submit{Token: tok, User: j.user, Key: j.key, Spec: j.spec}
	}, func(r scheduler.Reply) {
		var noMatch *scheduler.NoMatchError
		switch {
		case r.Err == nil:
			j.accepted = true
		case errors.Is(r.Err, scheduler.ErrBusy), errors.Is(r.Err, errJournal):
			w.after(between(w.chance, time.Second, 5*time.Second), j.submit)
		case errors.As(r.Err, &noMatch):
			if h := j.reachableHost(); h != nil {
				w.fail("P7: %s was refused, though %s can run it: %v", j, h.peer, r.Err)
			}
			w.after(between(w.chance, 10*time.Second, 30*time.Second), j.submit)
		default:
			j.refused = r.Err
			w.fail("P7: %s was refused: %v", j, r.Err)
		}
	})
}

// reachableHost is a host that could run the job and that its owner could have
// asked for a while.
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

// settleTime is how long a pair that can reach each other may take to have a
// session and a lease.
const settleTime = 15 * time.Second

func (j *work) cancel() {
	w := j.w
	if j.state.Ended() {
		return
	}
	if !j.accepted {
		w.after(5*time.Second, j.cancel)
		return
	}
	j.cancelled = true
	j.owner.ask(func(tok scheduler.Token) scheduler.Event {
		return scheduler.Cancel{Token: tok, Job: j.id, Reason: "not needed"}
	}, func(r scheduler.Reply) {
		if r.Err != nil && !errors.Is(r.Err, scheduler.ErrNotFound) {
			w.after(time.Second, j.cancel)
		}
	})
}

// requeue has the job run again, whether it runs, has ended or has left its owner's memory.
func (j *work) requeue() {
	w := j.w
	if !j.accepted {
		w.after(5*time.Second, j.requeue)
		return
	}
	j.owner.ask(func(tok scheduler.Token) scheduler.Event {
		return scheduler.Requeue{Token: tok, Job: j.id, Reason: "again"}
	}, func(r scheduler.Reply) {
		if r.Err != nil && !errors.Is(r.Err, scheduler.ErrNotFound) && !errors.Is(r.Err, scheduler.ErrConflict) {
			w.after(time.Second, j.requeue)
		}
	})
}

// hold holds the job back and releases it a while later.
func (j *work) hold(until time.Duration) {
	if !j.accepted {
		return
	}
	ask := func(release bool) func(scheduler.Token) scheduler.Event {
		return func(tok scheduler.Token) scheduler.Event {
			return scheduler.Hold{Token: tok, Job: j.id, Release: release, Reason: "later"}
		}
	}
	var release func()
	release = func() {
		j.owner.ask(ask(true), func(r scheduler.Reply) {
			if r.Err == nil || errors.Is(r.Err, scheduler.ErrConflict) || errors.Is(r.Err, scheduler.ErrNotFound) {
				j.released = true
				return
			}
			j.w.after(time.Second, release)
		})
	}
	j.held = true
	j.owner.ask(ask(false), func(scheduler.Reply) { j.w.at(until, release) })
}

// settled says whether nothing more is to be expected of the job.
func (j *work) settled() bool {
	if j.refused != nil {
		return true
	}
	return j.accepted && (j.state.Ended() || j.state == job.Held && j.reason.Word != "" && (!j.held || j.released))
}

// could says whether the host could ever run the job.
func (j *work) could(h *host) bool {
	p, need := &h.cfg.Profile, &j.spec.Resources
	if h.gone || p.CPUs < need.CPUs || len(p.GPUs) < gpu.Count(*need) {
		return false
	}
	return j.label[0] == "" || p.Labels[j.label[0]] == j.label[1]
}

// fits says whether the need could be met from this.
func (j *work) fits(free *lease.Free) bool {
	need := &j.spec.Resources
	if free.Exclusive || j.spec.Exclusive && free.Tasks > 0 {
		return false
	}
	return free.CPUs >= need.CPUs && len(free.GPUs) >= gpu.Count(*need)
}

// overQuota says whether the user may not hold so much more at the host.
func (j *work) overQuota(h *host) bool {
	limit := h.cfg.Limits.PerUser
	if len(limit) == 0 {
		return false
	}
	var tasks, cpus, gpus int64
	for _, r := range h.disk.records {
		if r.User == j.user && (r.Phase == lease.PhaseReserved || r.Phase == lease.PhaseStarted) {
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
