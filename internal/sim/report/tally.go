package report

// From records to figures, while they stream. muster and the yardsticks write the same records, so no two figures differ
// because they were counted in two ways. Nothing is estimated: approximate quantiles would save 16 MB for a million jobs, but
// then every difference of 1 % between two runs would be in doubt. Levels are integers, so that they do not drift.

import (
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// Tally is a record.Sink that adds up the figures of a run. It needs about 70 bytes for each job, whether it has run or
// not, and as much for each run that a fault has ended. The records must be of a legal run, which a Referee checks.
type Tally struct {
	load    *load.Load
	cluster Cluster
	parts   elements
	lives   []life // by element
	begin   time.Duration
	now     time.Duration
	next    int // the job that arrives next
	jobs    Jobs
	space   *space
	level   level
	bins    *bins
	curve   *curve
	again   Again
	away    away
	racks   *racks
	lost    []loss
	open    map[int]int // by element that a fault has ended and that has not started again: the index in lost
	last    time.Duration

	// Checkpoint is how often a job saves its state; 0: never. Only its work since then is lost. It is set before the
	// first record.
	Checkpoint time.Duration
}

// life is what has happened to an element.
type life struct {
	started, since, end, ran time.Duration // first start, latest start, finish, time on its GPUs
	alloc                    []record.Alloc
	phase                    phase
	begun                    bool // has started at least once
}

type phase uint8

const (
	absent phase = iota // not submitted yet
	queued              // never started
	active
	requeued // will run again
	finished
	rejected
)

// loss is the end of a run by a fault.
type loss struct {
	at, until time.Duration // the end and the next start; 0: none
	gpu       float64       // GPU-seconds
	machines  []int32
}

// NewTally returns a Tally for a run of the load. It returns an error if an array of a job cannot be read.
func NewTally(l *load.Load) (*Tally, error) {
	parts, err := numberElements(l.Jobs)
	if err != nil {
		return nil, err
	}
	t := &Tally{
		load: l, cluster: ClusterOf(l.Machines), parts: parts, lives: make([]life, parts.len()), space: newSpace(l),
		bins: newBins(), curve: &curve{}, racks: newRacks(l.Machines), open: map[int]int{},
	}
	if len(l.Jobs) > 0 {
		t.begin = l.Jobs[0].Submit
		t.now = t.begin
	}
	t.level[fragments] = t.space.total
	return t, nil
}

// Take adds a record. Its Alloc must not change until the next record of the same task.
func (t *Tally) Take(r record.Record) {
	t.until(r.At)
	e, known := t.parts.at(r.Job, r.Task)
	if !known {
		return
	}
	l := &t.lives[e]
	switch r.Kind {
	case record.Start:
		t.start(e, l, r)
	case record.Preempt:
		t.stop(l, r, requeued)
		t.again.Preemptions++
	case record.Lost:
		t.lose(e, l, r)
	case record.Finish:
		t.stop(l, r, finished)
		t.jobs.Finished++
		l.end = r.At
		t.last = r.At
	case record.Reject:
		t.stop(l, r, rejected)
		t.jobs.Rejected++
	}
}

// until lets jobs arrive up to a time.
func (t *Tally) until(at time.Duration) {
	for t.next < len(t.load.Jobs) && t.load.Jobs[t.next].Submit <= at {
		t.pass(t.load.Jobs[t.next].Submit)
		n := t.parts.of(t.next)
		for e := int(t.parts.first[t.next]); e < int(t.parts.first[t.next+1]); e++ {
			t.lives[e].phase = queued
		}
		t.jobs.Submitted += n
		t.queue(t.next, int64(n))
		t.next++
	}
	t.pass(at)
}

// pass lets time pass with the levels as they are.
func (t *Tally) pass(to time.Duration) {
	if to > t.now {
		t.bins.add(&t.level, t.now, to)
		t.curve.add(&t.level, int64(t.cluster.GPUs)*milli, t.now, to)
		t.now = to
	}
}

func (t *Tally) queue(job int, n int64) {
	t.level[waiting] += n
	t.level[gpusAsked] += n * milliOf(&t.load.Jobs[job].Spec)
}

func (t *Tally) start(e int, l *life, r record.Record) {
	switch l.phase {
	case absent, active, finished:
		return
	case rejected: // a person lets it run again
		t.jobs.Rejected--
		t.queue(r.Job, 1)
	case queued, requeued:
	}
	first := !l.begun
	if first {
		l.started, l.begun = r.At, true
		t.racks.start(r.Alloc)
	} else {
		t.again.Restarts++
	}
	t.away.start(&t.load.Jobs[r.Job], r, first)
	if i, ok := t.open[e]; ok {
		t.lost[i].until = r.At
		delete(t.open, e)
	}
	t.queue(r.Job, -1)
	l.phase, l.since, l.alloc = active, r.At, r.Alloc
	t.level[running]++
	t.hold(r.Job, r.Alloc, 1)
}

// stop ends a run of an element, or its waiting.
func (t *Tally) stop(l *life, r record.Record, to phase) {
	switch l.phase {
	case active:
		t.level[running]--
		t.hold(r.Job, l.alloc, -1)
		l.ran += r.At - l.since
		l.alloc = nil
	case queued, requeued:
		t.queue(r.Job, -1)
	case absent, finished, rejected:
	}
	if to == requeued {
		t.queue(r.Job, 1)
	}
	l.phase = to
}

func (t *Tally) lose(e int, l *life, r record.Record) {
	t.again.Lost++
	j := &t.load.Jobs[r.Job]
	spent := r.At - l.since
	if l.phase == finished { // its host has failed before its owner heard of the end
		spent = j.Runs
		t.jobs.Finished--
	}
	if t.Checkpoint > 0 {
		spent %= t.Checkpoint
	}
	x := loss{at: r.At, gpu: spent.Seconds() * float64(milliOf(&j.Spec)) / milli}
	for _, a := range l.alloc {
		x.machines = append(x.machines, int32(a.Machine))
	}
	t.again.LostGPU += x.gpu
	t.open[e] = len(t.lost)
	t.lost = append(t.lost, x)
	t.stop(l, r, requeued)
}

func heldMilli(alloc []record.Alloc) int64 {
	n := int64(0)
	for _, a := range alloc {
		n += int64(len(a.Devices)) * int64(a.Milli)
	}
	return n
}

// hold takes (sign 1) or gives back (sign -1) what an element holds.
func (t *Tally) hold(job int, alloc []record.Alloc, sign int64) {
	for _, a := range alloc {
		cpus, memory := held(&t.load.Jobs[job].Spec, &t.load.Machines[a.Machine])
		t.level[cpusHeld] += sign * cpus
		t.level[bytesHeld] += sign * memory
		t.space.take(a, cpus, int(sign))
	}
	t.level[gpusHeld] += sign * heldMilli(alloc)
	t.level[fragments] = t.space.total
}
