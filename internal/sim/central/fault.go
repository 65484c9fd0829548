package central

// Faults: the same machines fail at the same times as in the run that the scheduler is compared with. The scheduler gives
// up a machine that is off after as long as muster does, because nobody can tell it from one that is cut off. If it knew of
// a fault at once, the comparison would show what a better failure detector gains, and not what a center gains.

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/record"
)

// FaultKind says what fails.
type FaultKind string

// The kinds of faults.
const (
	// Off is a power cut of machines: their tasks end. The scheduler starts them elsewhere when the machines are back, or once
	// their lease has certainly run out, as muster does: nobody can tell a machine that is off from one that is cut off.
	Off FaultKind = "off"
	// Cut makes machines unreachable. A task there ends when its lease runs out, if the cut lasts that long.
	Cut FaultKind = "cut"
	// Closed machines take no tasks. What runs there goes on.
	Closed FaultKind = "closed"
	// DeviceOut makes a GPU fall out: the tasks on it end at once, and the scheduler knows.
	DeviceOut FaultKind = "gpu"
	// Slow machines run their tasks at Fault.Speed.
	Slow FaultKind = "slow"
)

// Fault is something that fails. No task starts on machines that are off, cut off or closed.
type Fault struct {
	At       time.Duration // from the beginning of the simulation
	For      time.Duration // how long it lasts; 0: for good
	Kind     FaultKind
	Machines []int   // indices in load.Load.Machines
	Device   int     // of DeviceOut: index of the GPU
	Speed    float64 // of Slow: above 0; 1 is the usual speed
}

// happening is something that happens at a time, other than the start or end of a task.
type happening struct {
	at time.Duration
	do func()
}

// faults are the faults of a run, and what follows from them.
type faults struct {
	*run
	agenda  []happening // in the order of time
	unknown int         // tasks that a fault has ended, of which the scheduler does not know yet
}

// next returns when something happens next; false: never.
func (r *faults) next() (time.Duration, bool) {
	if len(r.agenda) == 0 {
		return 0, false
	}
	return r.agenda[0].at, true
}

// at schedules something. What is scheduled for the same time happens in the order of these calls.
func (r *faults) at(t time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(r.agenda, t, func(h happening, t time.Duration) int {
		return cmp.Or(cmp.Compare(h.at, t), -1) // behind its equals
	})
	r.agenda = slices.Insert(r.agenda, i, happening{max(t, r.now), do})
}

// happens runs everything that is due.
func (r *faults) happens() {
	for len(r.agenda) > 0 && r.agenda[0].at <= r.now {
		do := r.agenda[0].do
		r.agenda[0].do = nil
		r.agenda = r.agenda[1:]
		do()
	}
}

// add schedules the faults.
func (r *faults) add() {
	for _, f := range r.options.Faults {
		r.at(f.At, func() { r.begin(f) })
		if f.For > 0 {
			r.at(f.At+f.For, func() { r.end(f) })
		}
	}
}

// begin begins a fault.
func (r *faults) begin(f Fault) {
	for _, i := range f.Machines {
		m := &r.cluster.machines[i]
		switch f.Kind {
		case Off, Cut, Closed:
			m.closed++
			for _, x := range r.on(i) {
				r.endsWith(x, f)
			}
		case DeviceOut:
			for _, x := range r.on(i) {
				if slices.ContainsFunc(x.where, func(a record.Alloc) bool { return a.Machine == i && slices.Contains(a.Devices, f.Device) }) {
					r.fail(x, r.now)
				}
			}
			m.left[f.Device] -= gpu.Whole
			m.all -= gpu.Whole
		case Slow:
			r.pace(i, f.Speed)
		}
		r.places.refresh(i)
	}
}

// end ends a fault: waiting tasks may fit now.
func (r *faults) end(f Fault) {
	for _, i := range f.Machines {
		m := &r.cluster.machines[i]
		switch f.Kind {
		case Off, Cut, Closed:
			m.closed--
		case DeviceOut:
			m.left[f.Device] += gpu.Whole
			m.all += gpu.Whole
		case Slow:
			r.pace(i, 1)
		}
		r.places.refresh(i)
	}
	r.waiting.unblock()
}

// on returns the running tasks with a part on a machine, in the order of their starts.
func (r *faults) on(machine int) (all []*item) {
	for _, x := range r.running {
		if slices.ContainsFunc(x.where, func(a record.Alloc) bool { return a.Machine == machine }) {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *item) int { return cmp.Compare(a.order, b.order) })
	return all
}

// endsWith ends a task because of a fault of its machine, now or when its lease runs out.
func (r *faults) endsWith(x *item, f Fault) {
	d := x.shape.spec.LeaseOr()
	gone := d + d*3/100 + contract.ExpiryMargin // as muster gives up a host that is silent
	hold := x.shape.spec.Partition == "hold"
	switch f.Kind {
	case Off:
		known := r.now + gone
		if hold {
			known = math.MaxInt64
		}
		if f.For > 0 {
			known = min(known, r.now+f.For)
		}
		r.fail(x, known)
	case Cut:
		if hold || f.For > 0 && f.For <= d {
			return
		}
		order, known := x.order, r.now+gone
		r.at(r.now+d, func() {
			if x.order == order && x.slot >= 0 {
				r.fail(x, known)
			}
		})
	case Closed, DeviceOut, Slow:
	}
}

// fail ends a task because of a fault. The scheduler learns of it at time known; until then it takes the task for
// running.
func (r *faults) fail(x *item, known time.Duration) {
	done := r.worked(x)
	r.unlist(x)
	r.ends.drop(x)
	x.attained += float64(x.gpus()) * (r.now - x.since).Seconds()
	kept := time.Duration(0)
	if every := r.options.Checkpoint; every > 0 {
		worked := max(done-x.costs, 0)
		kept = worked - worked%every
	}
	x.left -= x.costs + kept
	x.resumes = x.resumes || kept > 0
	r.sink.Take(record.Record{At: r.now, Kind: record.Lost, Job: x.job, Task: x.task})
	if known == math.MaxInt64 {
		return // the task never runs again
	}
	r.unknown++
	r.at(known, func() {
		r.unknown--
		r.free(x)
		r.waiting.add(x)
	})
}

// worked returns how much work a task has done since its start, including what the start costs.
func (r *run) worked(x *item) time.Duration {
	return x.done + time.Duration(float64(r.now-x.paced)*x.speed)
}

// pace sets the speed of a machine, and plans the ends of its tasks again.
func (r *faults) pace(machine int, speed float64) {
	r.cluster.machines[machine].speed = speed
	for _, x := range r.on(machine) {
		x.done, x.paced = r.worked(x), r.now
		x.speed = r.cluster.speed(x.where)
		r.ends.drop(x)
		r.ends.add(x, r.now+time.Duration(float64(x.left-x.done)/x.speed))
	}
}

// speed returns the speed of the slowest of these machines.
func (c *cluster) speed(where []record.Alloc) float64 {
	slowest := math.Inf(1)
	for _, a := range where {
		slowest = min(slowest, c.machines[a.Machine].speed)
	}
	return slowest
}
