// Package central has the schedulers with which a simulation compares muster: central schedulers that see the whole
// cluster at once, know each job the moment it is submitted, and start it in no time. There is no network. Machines
// fail as Options.Faults says.
//
// They are simple on purpose: the queueing orders of the literature, each with the same placement. They are checked against
// published results: where all machines are alike, FIFO, greedy and shortest first give the published mean to the second; the
// rest is within 2 % of it or better. muster's own cores with one scheduler and no network would only be compared with
// themselves, and an optimum by integer programming is out of reach beyond some dozens of jobs.
package central

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// Order says which job goes first, and whether that job may end a running one.
type Order string

// The orders.
const (
	// FIFO starts jobs in the order of their submission. A job that does not fit holds up all jobs after it.
	FIFO Order = "fifo"
	// Greedy starts jobs that fit, in the order of submission.
	Greedy Order = "greedy"
	// Centre starts jobs that fit, by priority and then by submission, and ends preemptible jobs of lower priority for
	// them. It is what muster would do if one daemon saw everything.
	Centre Order = "centre"
	// EASY is FIFO with backfill: the first job that does not fit gets a reservation, computed from the durations of
	// the running jobs. A later job may start if it does not delay that job. It knows all durations.
	EASY Order = "easy"
	// Shortest starts the shortest jobs that fit. It knows all durations.
	Shortest Order = "shortest"
	// Preemptive is Centre with every job preemptible.
	Preemptive Order = "priority"
	// LeastAttained gives the GPUs to the jobs that have had the fewest GPU-seconds, and knows no durations.
	LeastAttained Order = "attained"
	// Remaining gives the GPUs to the jobs with the shortest remaining work, and knows all durations.
	Remaining Order = "remaining"
)

// Orders lists all orders.
var Orders = []Order{Centre, FIFO, Greedy, EASY, Shortest, Preemptive, LeastAttained, Remaining}

// Place says to which of the machines where it fits a job goes.
type Place string

// The built-in placements. Any other name is a placement policy of muster.
const (
	BestFit Place = "best-fit" // where the least is left over
	Random  Place = "random"
)

// Options are the options of one yardstick.
type Options struct {
	Order   Order
	Place   Place
	Restart time.Duration // what the next start costs a job that was preempted
	Faults  []Fault       // in any order
	// Checkpoint is how often a running task saves its state. After a fault it goes on from there; 0: it loses all work
	// since its last start.
	Checkpoint time.Duration
	Seed       uint64
	Horizon    time.Duration // when the run ends; 0: with the last job
}

// Run simulates the scheduler with the load, and gives the sink what happens. It returns the error of the context, or
// an error for a job that no machine could ever run.
func Run(ctx context.Context, l *load.Load, o Options, sink record.Sink) error {
	if !slices.Contains(Orders, o.Order) {
		return fmt.Errorf("no order is called %q; there are %v", o.Order, Orders)
	}
	r := &run{options: o, sink: sink, rng: rand.New(rand.NewPCG(o.Seed, 1)), done: ctx.Err}
	if err := r.prepare(l); err != nil {
		return err
	}
	r.faults.run = r
	r.faults.add()
	return r.play()
}

// run is one run of a yardstick.
type run struct {
	options Options
	sink    record.Sink
	rng     *rand.Rand
	done    func() error

	now         time.Duration
	cluster     *cluster
	places      placer
	arrivals    []*item // in the order of their submission
	waiting     queue
	running     []*item
	preemptible int // how many of running are preemptible
	ends        ends
	tick        time.Duration // when LeastAttained looks again; 0: never
	starts      int
	faults      faults
}

// play runs the events one after the other.
func (r *run) play() error {
	for n := 0; ; n++ {
		if n%1024 == 0 && r.done() != nil {
			return r.done()
		}
		at, ok := r.next()
		if !ok || r.options.Horizon > 0 && at > r.options.Horizon {
			return nil
		}
		r.now = at
		for x := r.ends.due(at); x != nil; x = r.ends.due(at) {
			r.finish(x)
		}
		r.faults.happens()
		for len(r.arrivals) > 0 && r.arrivals[0].submit <= at {
			r.waiting.add(r.arrivals[0])
			r.arrivals = r.arrivals[1:]
		}
		r.schedule()
	}
}

// next returns when something happens next; false: never.
func (r *run) next() (at time.Duration, ok bool) {
	sooner := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if len(r.arrivals) > 0 {
		sooner(r.arrivals[0].submit)
	}
	if t, more := r.ends.first(); more {
		sooner(t)
	}
	if r.options.Order == LeastAttained && r.waiting.len() > 0 && len(r.running) > 0 {
		sooner(r.tick)
	}
	if ok || r.waiting.len() > 0 || r.faults.unknown > 0 { // otherwise the run is over
		if t, more := r.faults.next(); more {
			sooner(t)
		}
	}
	return at, ok
}

func (r *run) schedule() {
	switch r.options.Order {
	case FIFO, EASY:
		r.inTurn()
	case Greedy, Shortest:
		r.whatFits(nil)
	case Centre, Preemptive, Remaining:
		r.whatFits(r.preempt)
	case LeastAttained:
		r.waiting.unblock() // running jobs have had more GPU-seconds by now
		r.whatFits(r.preempt)
		r.tick = r.now + quantum
	}
}

// start starts or resumes a task, or all members of a gang.
func (r *run) start(x *item, where []record.Alloc) {
	r.waiting.remove(x)
	x.costs = r.loss(x)
	x.left += x.costs
	x.since, x.where = r.now, where
	x.done, x.paced, x.speed = 0, r.now, r.cluster.speed(where)
	r.starts++
	x.order = r.starts
	x.slot = len(r.running)
	if x.preemptible {
		r.preemptible++
	}
	r.running = append(r.running, x)
	r.ends.add(x, r.now+time.Duration(float64(x.left)/x.speed))
	r.sink.Take(record.Record{At: r.now, Kind: record.Start, Job: x.job, Task: x.task, Alloc: where})
}

// stop ends a task before its work is done; the work so far is kept.
func (r *run) stop(x *item) {
	done := r.worked(x)
	r.leave(x)
	r.ends.drop(x)
	x.attained += float64(x.gpus()) * (r.now - x.since).Seconds()
	x.left -= done
	x.resumes = true
	r.sink.Take(record.Record{At: r.now, Kind: record.Preempt, Job: x.job, Task: x.task})
	r.waiting.add(x)
}

func (r *run) finish(x *item) {
	r.leave(x)
	r.sink.Take(record.Record{At: r.now, Kind: record.Finish, Job: x.job, Task: x.task})
}

// leave removes a task from the running ones, and gives back what it holds.
func (r *run) leave(x *item) {
	r.unlist(x)
	r.free(x)
}

func (r *run) unlist(x *item) {
	if x.preemptible {
		r.preemptible--
	}
	last := len(r.running) - 1
	r.running[x.slot] = r.running[last]
	r.running[x.slot].slot = x.slot
	r.running = r.running[:last]
	x.slot = -1
}

func (r *run) free(x *item) {
	r.places.release(x)
	r.waiting.freed(r.cluster, x.where)
}
