package meter

// One task: from what the kernel counts to samples and totals.

import (
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
)

// Task is a running task.
type Task struct {
	Attempt   job.Attempt
	User      string
	Project   string
	PID       int       // of its main process
	Began     time.Time // zero: not known
	Group     string    // the directory in which its runner makes the control groups of tasks; empty: none
	Container bool
	Need      job.Resources
	Devices   []string // UUIDs of its GPUs
	Shared    bool     // it has only a share of its GPU
}

// counter turns a count that grows into a total and a rate.
type counter struct {
	last  float64 // NaN: not known
	at    time.Time
	total float64 // NaN: nothing is known yet
}

func newCounter() counter { return counter{last: math.NaN(), total: math.NaN()} }

// set takes a new count, and returns the rate since the last one; NaN: not known. A count that is lower than the last one
// is that of fewer processes, and adds nothing. The first count belongs to the total unless fresh is false, which means
// that the group was used before.
func (c *counter) set(now time.Time, count float64, ok, fresh bool) (rate float64) {
	rate = math.NaN()
	if !ok {
		c.last = math.NaN()
		return rate
	}
	switch {
	case !usage.Known(c.total):
		c.total = 0
		if fresh {
			c.total = count
		}
	case usage.Known(c.last):
		more := max(0, count-c.last)
		c.total += more
		if elapsed := now.Sub(c.at).Seconds(); elapsed > 0 {
			rate = more / elapsed
		}
	}
	c.last, c.at = count, now
	return rate
}

// taskState is what the meter keeps of a task while it runs.
type taskState struct {
	Task

	groups  groups
	found   bool // groups are known
	cpu     counter
	read    counter
	written counter
	fold    *usage.Fold
	ring    *usage.Ring // nil: too many tasks run
	newest  usage.Sample
}

func newTaskState(t Task, now time.Time) *taskState {
	began := t.Began
	if began.IsZero() || began.After(now) {
		began = now
	}
	return &taskState{Task: t, cpu: newCounter(), read: newCounter(), written: newCounter(), fold: usage.NewFold(began, Every), newest: usage.Sample{Values: usage.Unknown()}}
}

// reading is what the kernel counts of a task at one time.
type reading struct {
	cpu, memory, pids, read, written      float64
	knowCPU, knowMemory, knowPIDs, knowIO bool
	alive                                 bool // one of its processes was seen
}

// measure reads what the kernel counts of a task. It calls host, which lists the processes of the host, only if it must.
func (k *kernel) measure(t *taskState, finder *cgroup.Finder, host func() map[int]process) (r reading) {
	if !t.found {
		if t.groups, t.found = k.groupsOf(&t.Task, finder); !t.found {
			return r
		}
	}
	g := t.groups
	members, listed := []int(nil), false
	if g.holder() != "" {
		members, listed = k.membersOf(g.holder())
	}
	if !listed {
		members = familyOf(t.PID, host())
	}
	r.cpu, r.knowCPU = g.cpu(k)
	r.memory, r.knowMemory = g.resident(k)
	r.pids, r.knowPIDs = g.count(k)
	own := reading{knowIO: true}
	for _, pid := range members {
		if !r.knowCPU || !r.knowMemory || !r.knowPIDs {
			if p, ok := k.stat(pid); ok {
				own.cpu, own.memory, own.pids, own.alive = own.cpu+p.cpu, own.memory+p.memory, own.pids+p.threads, true
			}
		}
		read, written, ok := k.io(pid)
		own.read, own.written, own.knowIO = own.read+read, own.written+written, own.knowIO && ok
	}
	r.alive = own.alive || r.knowCPU
	if !r.knowCPU {
		r.cpu, r.knowCPU = own.cpu, own.alive
	}
	if !r.knowMemory {
		r.memory, r.knowMemory = own.memory, own.alive
	}
	if !r.knowPIDs {
		r.pids, r.knowPIDs = own.pids, own.alive
	}
	r.read, r.written, r.knowIO = own.read, own.written, own.knowIO && len(members) > 0
	return r
}

// take adds a reading to the task, with the status of its GPUs.
func (t *taskState) take(now time.Time, r reading, gpus map[string]gpu.Status) {
	if !r.alive {
		return
	}
	s := usage.Sample{At: now, Values: usage.Unknown()}
	v := &s.Values
	fresh := t.groups.unified != "" || t.groups.cpuacct == "" // groups of version 1 are used again for other tasks
	v[usage.CPU] = t.cpu.set(now, r.cpu, r.knowCPU, fresh)
	v[usage.Read] = t.read.set(now, r.read, r.knowIO, true)
	v[usage.Write] = t.written.set(now, r.written, r.knowIO, true)
	if r.knowMemory {
		v[usage.Memory] = r.memory
	}
	if r.knowPIDs {
		v[usage.PIDs] = r.pids
	}
	t.ofGPUs(v, gpus)
	t.newest = s
	t.fold.Add(s)
	if t.ring != nil {
		t.ring.Add(s)
	}
}

// ofGPUs sets what is known of the GPUs of the task. A sum or a mean is known only if it is known for each GPU. What a
// task does on a shared GPU is not known.
func (t *taskState) ofGPUs(v *usage.Values, gpus map[string]gpu.Status) {
	if len(t.Devices) == 0 || t.Shared {
		return
	}
	v[usage.GPU], v[usage.GPUMemory], v[usage.Power] = 0, 0, 0
	for _, uuid := range t.Devices {
		of := valuesOf(gpus[uuid])
		v[usage.GPU] += of[usage.GPU] / float64(len(t.Devices))
		v[usage.GPUMemory] += of[usage.GPUMemory]
		v[usage.Power] += of[usage.Power]
	}
}

// valuesOf returns what is known of a GPU. NaN makes every sum NaN.
func valuesOf(s gpu.Status) usage.Values {
	v := usage.Unknown()
	if s.UUID == "" || s.Health == gpu.Unknown {
		return v
	}
	if s.Utilization >= 0 {
		v[usage.GPU] = float64(s.Utilization)
	}
	if !s.Unread {
		v[usage.GPUMemory] = float64(s.MemoryUsed)
	}
	if s.PowerMilli > 0 {
		v[usage.Power] = float64(s.PowerMilli) / 1000
	}
	return v
}

// ofRunner is more than a runner has in memory. A process begins as a copy of the runner, so the kernel counts the
// runner's memory as the most that the process had. Values up to that say nothing about the task.
const ofRunner = 32 << 20

// report returns what is sent with the result. used is the CPU time that the kernel reported at the end, and greatest the
// memory of the largest process; 0: not known.
func (t *taskState) report(used time.Duration, greatest job.Size) usage.Report {
	r := t.fold.Report()
	r.CPU, r.Read, r.Written = t.cpu.total, t.read.total, t.written.total
	if s := used.Seconds(); used > 0 && !(r.CPU >= s) { // also if it is NaN
		r.CPU = s
	}
	if m := &r.Series[usage.Memory]; m.Known > 0 && greatest > ofRunner && float64(greatest) > m.Max {
		m.Max = float64(greatest)
	}
	return r
}

// atEnd returns the report about a task if only what the kernel reported at the end is known.
func atEnd(used time.Duration, greatest job.Size) usage.Report {
	r := usage.NewReport()
	r.Samples, r.Step, r.CPU = 1, Every, used.Seconds()
	if greatest > ofRunner {
		r.Series[usage.Memory] = usage.Series{Mean: math.NaN(), Max: float64(greatest), Known: 1}
	}
	return r
}

// clone returns a copy of the task that shares no slice with it.
func (t Task) clone() Task {
	t.Devices = slices.Clone(t.Devices)
	return t
}
