package report

// The rules of a run, and what breaks them.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// Rules are what differs between runs.
type Rules struct {
	// Restart is what each start after a preemption costs: the job holds its devices longer by this time.
	Restart time.Duration
	// Slack is by how much a job may run longer than its load says.
	Slack time.Duration
	// Checkpoint is how often a job saves its state; 0: never. The saved work counts when a fault ends it.
	Checkpoint time.Duration
	// Undone allows that a fault undoes a finish of which the owner has not heard, and that the owner hears of it while
	// the job runs again. It also allows that a person lets a job run again that has failed for good.
	Undone bool
}

// Referee checks the records of a run against its load:
//
//   - Records are in the order of time, and nothing starts before it was submitted.
//   - A job starts while it waits, and ends while it runs. After its finish or its refusal nothing happens to it.
//   - A start has one allocation for each machine that the job asks for, on different machines, all at once; with as
//     many different devices as it asks for, of a suitable model and memory.
//   - No machine gives away more CPUs, memory or thousandths of a device than it has.
//   - A job runs exactly as long as its load says. Work before a preemption counts. Work before a fault does not,
//     unless it was saved. Each start after some work that counts costs Rules.Restart. If a preemption comes before
//     that cost is paid, the rest may be paid at a later start, or not at all.
type Referee struct {
	load  *load.Load
	rules Rules
	parts elements
	cases []trial
	room  []room
	at    time.Duration
}

// trial is what the Referee knows of an element.
type trial struct {
	since, done time.Duration // of its run; work that counts
	cost        time.Duration // of its restart
	unpaid      time.Duration // parts of earlier restarts that were cut short
	alloc       []record.Alloc
	phase       phase
	unheard     bool // it had finished once, but its owner has not heard of it
}

// room is the free capacity of a machine.
type room struct {
	cpus, memory int64
	left         []int
	tasks        int
	exclusive    bool
}

// NewReferee returns a Referee for a run of the load. It returns an error if an array of a job cannot be read.
func NewReferee(l *load.Load, rules Rules) (*Referee, error) {
	parts, err := numberElements(l.Jobs)
	if err != nil {
		return nil, err
	}
	f := &Referee{load: l, rules: rules, parts: parts, cases: make([]trial, parts.len()), room: make([]room, len(l.Machines))}
	for i, m := range l.Machines {
		f.room[i] = room{cpus: int64(m.CPUs), memory: int64(m.Memory), left: slices.Repeat([]int{gpu.Whole}, m.GPUs)}
	}
	for i := range f.cases {
		f.cases[i].phase = queued
	}
	return f, nil
}

// Check returns an error if the record breaks a rule. The record is then not applied.
func (f *Referee) Check(r record.Record) error {
	if r.At < f.at {
		return fmt.Errorf("%s at %v: the record before it is at %v", r.Kind, r.At, f.at)
	}
	f.at = r.At
	e, known := f.parts.at(r.Job, r.Task)
	if !known {
		return fmt.Errorf("%s of job %d, task %d: the load has none", r.Kind, r.Job, r.Task)
	}
	j, c := &f.load.Jobs[r.Job], &f.cases[e]
	err := error(nil)
	switch r.Kind {
	case record.Start:
		err = f.start(j, c, r)
	case record.Preempt, record.Lost, record.Finish:
		err = f.end(j, c, r)
	case record.Reject:
		err = f.reject(j, c)
	default:
		err = fmt.Errorf("kind %.40q is unknown", r.Kind)
	}
	if err != nil {
		return fmt.Errorf("%s of %s at %v: %w", r.Kind, j.Name, r.At, err)
	}
	return nil
}

// Open returns how many jobs have neither finished nor been refused.
func (f *Referee) Open() int {
	n := 0
	for i := range f.cases {
		if p := f.cases[i].phase; p != finished && p != rejected {
			n++
		}
	}
	return n
}

var errNotRunning = errors.New("it is not running")

func (f *Referee) start(j *load.Job, c *trial, r record.Record) error {
	switch {
	case c.phase == active:
		return errors.New("it runs already")
	case c.phase == finished, c.phase == rejected && !f.rules.Undone:
		return errors.New("it has ended")
	case r.At < j.Submit:
		return fmt.Errorf("it is submitted at %v", j.Submit)
	case len(r.Alloc) != max(1, j.Spec.Nodes):
		return fmt.Errorf("it has %d allocations, and needs %d at once", len(r.Alloc), max(1, j.Spec.Nodes))
	}
	for i, a := range r.Alloc {
		err := f.fits(j, a)
		for _, b := range r.Alloc[:i] {
			if err == nil && b.Machine == a.Machine {
				err = errors.New("two of its tasks are there")
			}
		}
		if err != nil {
			return fmt.Errorf("on %s: %w", f.machine(a.Machine), err)
		}
	}
	for _, a := range r.Alloc {
		f.give(j, a, -1)
	}
	c.phase, c.since, c.alloc = active, r.At, r.Alloc
	return nil
}

func (f *Referee) machine(i int) string {
	if i < 0 || i >= len(f.load.Machines) {
		return fmt.Sprintf("machine %d", i)
	}
	return f.load.Machines[i].Name
}

// fits checks one allocation against what is free.
func (f *Referee) fits(j *load.Job, a record.Alloc) error {
	if a.Machine < 0 || a.Machine >= len(f.room) {
		return errors.New("the load has no such machine")
	}
	m, room, need := &f.load.Machines[a.Machine], &f.room[a.Machine], j.Spec.Resources
	cpus, memory := held(&j.Spec, m)
	switch {
	case room.exclusive || j.Spec.Exclusive && room.tasks > 0:
		return errors.New("a job that asks for the whole machine shares it")
	case cpus > room.cpus:
		return fmt.Errorf("it needs %d thousandths of a CPU, and %d are free", cpus, room.cpus)
	case memory > room.memory:
		return fmt.Errorf("it needs %d bytes of memory, and %d are free", memory, room.memory)
	case len(a.Devices) != gpu.Count(need):
		return fmt.Errorf("it has %d devices, and needs %d", len(a.Devices), gpu.Count(need))
	case len(a.Devices) > 0 && a.Milli != gpu.Milli(need):
		return fmt.Errorf("it has %d thousandths of each device, and needs %d", a.Milli, gpu.Milli(need))
	case len(a.Devices) > 0:
		if why := gpu.Misfit(gpu.Device{Model: m.Model, Memory: m.DeviceMemory}, need); why != "" {
			return fmt.Errorf("a device %s", why)
		}
	}
	for i, d := range a.Devices {
		switch {
		case d < 0 || d >= len(room.left):
			return fmt.Errorf("device %d: the machine has %d", d, len(room.left))
		case slices.Contains(a.Devices[:i], d):
			return fmt.Errorf("device %d is named twice", d)
		case room.left[d] < a.Milli:
			return fmt.Errorf("device %d: %d thousandths are free, and %d are needed", d, room.left[d], a.Milli)
		}
	}
	return nil
}

// give gives back (sign 1) or takes (sign -1) an allocation.
func (f *Referee) give(j *load.Job, a record.Alloc, sign int) {
	room := &f.room[a.Machine]
	cpus, memory := held(&j.Spec, &f.load.Machines[a.Machine])
	room.cpus += int64(sign) * cpus
	room.memory += int64(sign) * memory
	room.tasks -= sign
	room.exclusive = j.Spec.Exclusive && sign < 0
	for _, d := range a.Devices {
		room.left[d] += sign * a.Milli
	}
}

func (f *Referee) end(j *load.Job, c *trial, r record.Record) error {
	if c.phase == finished && r.Kind == record.Lost && f.rules.Undone {
		c.phase, c.done, c.cost, c.unpaid, c.unheard = requeued, 0, 0, 0, true
		return nil
	}
	if c.phase != active {
		return errNotRunning
	}
	ran := r.At - c.since - c.cost // useful time of this run, below 0 if it has ended within the restart
	switch r.Kind {
	case record.Finish:
		if over := c.done + ran - j.Runs; over < 0 && !c.unheard || over > c.unpaid+f.rules.Slack {
			return fmt.Errorf("it has run for %v, and its load says %v", c.done+ran, j.Runs)
		}
		c.phase = finished
	case record.Preempt:
		c.done += max(0, ran)
		c.unpaid += max(0, -ran)
		if c.done > j.Runs+c.unpaid+f.rules.Slack {
			return fmt.Errorf("it has run for %v, and its load says %v", c.done, j.Runs)
		}
		c.cost = f.rules.Restart
		c.phase = requeued
	case record.Lost, record.Start, record.Reject: // only Lost comes here
		if every := f.rules.Checkpoint; every > 0 {
			c.done += max(0, ran).Truncate(every)
		}
		if c.done > 0 {
			c.cost = f.rules.Restart
		}
		c.phase = requeued
	}
	f.release(j, c)
	return nil
}

func (f *Referee) reject(j *load.Job, c *trial) error {
	switch c.phase {
	case finished, rejected:
		return errors.New("it has ended")
	case active:
		f.release(j, c)
	case absent, queued, requeued:
	}
	c.phase = rejected
	return nil
}

func (f *Referee) release(j *load.Job, c *trial) {
	for _, a := range c.alloc {
		f.give(j, a, 1)
	}
	c.alloc = nil
}
