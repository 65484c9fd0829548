// Package central is what a simulation compares muster with: schedulers of one place that see the whole cluster at once,
// know each job the moment it is submitted, and start it in no time. There is no network. Machines fail as Options.Faults
// says.
//
// They are simple on purpose: the orders of the literature, each with the same placement.
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

// Order says which job goes first, and whether one that goes first may end one that runs.
type Order string

// The orders.
const (
	// FIFO starts jobs in the order of their submission. One that does not fit holds up all after it.
	FIFO Order = "fifo"
	// Greedy starts what fits, in the order of submission.
	Greedy Order = "greedy"
	// Centre starts what fits, by priority and then by submission, and ends preemptible jobs of lower priority. It is what
	// muster would do if one daemon saw all.
	Centre Order = "centre"
	// EASY is FIFO with backfill: the first job that does not fit has a reservation by the durations of those that run,
	// and a later one may start if it does not delay that one. It knows all durations.
	EASY Order = "easy"
	// Shortest starts the shortest jobs that fit. It knows all durations.
	Shortest Order = "shortest"
	// Preemptive is Centre where every job is preemptible.
	Preemptive Order = "priority"
	// LeastAttained gives the GPUs to the jobs that have had the fewest GPU-seconds, and knows no durations.
	LeastAttained Order = "attained"
	// Remaining gives the GPUs to the jobs with the shortest remaining work, and knows all durations.
	Remaining Order = "remaining"
)

// Orders lists all orders.
var Orders = []Order{Centre, FIFO, Greedy, EASY, Shortest, Preemptive, LeastAttained, Remaining}

// Place says where a job goes of the machines where it fits.
type Place string

// The placements that are built in; every other name is that of a placement policy of muster.
const (
	BestFit Place = "best-fit" // least left over
	Random  Place = "random"
)

// Options are one yardstick.
type Options struct {
	Order   Order
	Place   Place
	Restart time.Duration // what a job that was preempted loses at its next start
	Faults  []Fault       // in any order
	// Checkpoint is how often a running task saves its state. After a fault it goes on from there; 0: from where it began
	// this time.
	Checkpoint time.Duration
	Seed       uint64
	Horizon    time.Duration // when the run ends; 0: with the last job
}

// Run has the scheduler run the load, and tells the sink what happens. The error is that of the context or of a job that
// no machine could ever run.
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
	preemptible int // of them
	ends        ends
	tick        time.Duration // when LeastAttained looks again; 0: never
	starts      int
	faults      faults
}

// play goes from event to event.
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

// next is when something happens next.
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
	if ok || r.waiting.len() > 0 || r.faults.unknown > 0 { // else all is over
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
		r.waiting.unblock() // those that run have had more by now
		r.whatFits(r.preempt)
		r.tick = r.now + quantum
	}
}

// start begins or goes on with a task, or with all members of a gang.
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

// stop ends a task before its work is done; what it has done is kept.
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

// leave takes a task from those that run, and gives back what it holds.
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
