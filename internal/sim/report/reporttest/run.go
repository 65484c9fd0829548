// Package reporttest makes loads and legal runs at random, and documents of them, for tests.
package reporttest

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// Restart is what each start after a preemption costs in a run.
const Restart = 60 * time.Second

// Load returns a load with these numbers of machines and jobs: arrays, gangs, jobs with shares of GPUs and without
// GPUs.
func Load(r *rand.Rand, machines, jobs int) *load.Load {
	l := &load.Load{}
	models := []string{"A100", "H100"}
	for i := range machines {
		l.Machines = append(l.Machines, load.Machine{
			Name: fmt.Sprintf("node-%03d", i), CPUs: 96_000, Memory: 512 << 30, GPUs: []int{0, 4, 8, 8}[i%4], Model: models[i/4%2],
			DeviceMemory: 80 << 30, Labels: map[string]string{"rack": fmt.Sprintf("rack-%d", i/8)},
		})
	}
	at := time.Duration(0)
	for i := range jobs {
		at += time.Duration(r.ExpFloat64() * float64(20*time.Second)).Round(time.Millisecond)
		j := load.Job{
			Name: fmt.Sprintf("job-%05d", i), User: fmt.Sprintf("user%d", r.IntN(7)), Class: []string{"BE", "LS"}[r.IntN(2)], Submit: at,
			Runs: time.Duration(1+r.IntN(600)) * time.Second, Bytes: int64(r.IntN(1 << 20)),
			Spec: job.Spec{Resources: job.Resources{CPUs: 500 + r.IntN(8000), Memory: job.Size(r.IntN(16)) << 30}},
		}
		switch r.IntN(8) {
		case 0:
		case 1, 2:
			j.Spec.Resources.GPUShare = float64(1+r.IntN(99)) / 100
		case 3:
			j.Spec.Resources.GPUs, j.Spec.Nodes = 4, 2+r.IntN(3)
		case 4:
			j.Spec.Resources.GPUs, j.Spec.Array = 1, "0-3"
		default:
			j.Spec.Resources.GPUs = []int{1, 1, 2, 4, 8}[r.IntN(5)]
			if r.IntN(3) == 0 {
				j.Spec.Resources.GPUModel = models[r.IntN(2)]
			}
		}
		l.Jobs = append(l.Jobs, j)
	}
	return l
}

// run is a scheduler that starts the oldest tasks that fit, wherever they fit first.
type run struct {
	load *load.Load
	r    *rand.Rand
	out  record.Log
	wait []*task
	ends ends
	left [][]int
	cpus []int
	mem  []job.Size
	// how often a task is preempted or lost
	preempted, lost float64
}

type task struct {
	job, task   int
	since, done time.Duration
	cost        time.Duration
	alloc       []record.Alloc
	end         time.Duration
	kind        record.Kind
	order       int
}

type ends []*task

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].end, e[j].end), cmp.Compare(e[i].order, e[j].order)) < 0
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(*task)) }
func (e *ends) Pop() any {
	n := len(*e) - 1
	x := (*e)[n]
	*e = (*e)[:n]
	return x
}

// Run returns the records of a legal run. preempted and lost say how often a task is preempted, or lost by a fault.
func Run(r *rand.Rand, l *load.Load, preempted, lost float64) record.Log {
	w := &run{load: l, r: r, preempted: preempted, lost: lost}
	for _, m := range l.Machines {
		w.left = append(w.left, slices.Repeat([]int{gpu.Whole}, m.GPUs))
		w.cpus, w.mem = append(w.cpus, m.CPUs), append(w.mem, m.Memory)
	}
	next, order := 0, 0
	for next < len(l.Jobs) || len(w.ends) > 0 {
		if len(w.ends) == 0 || next < len(l.Jobs) && l.Jobs[next].Submit <= w.ends[0].end {
			n := 1
			if l.Jobs[next].Spec.Array != "" {
				n = 4
			}
			for i := range n {
				w.wait = append(w.wait, &task{job: next, task: i, order: order})
				order++
			}
			next++
			w.fill(l.Jobs[next-1].Submit)
			continue
		}
		t := heap.Pop(&w.ends).(*task)
		w.end(t)
		w.fill(t.end)
	}
	return w.out
}

func (w *run) end(t *task) {
	w.out.Take(record.Record{At: t.end, Kind: t.kind, Job: t.job, Task: t.task})
	w.give(t, 1)
	switch t.kind {
	case record.Preempt:
		t.done += max(0, t.end-t.since-t.cost)
		t.cost = Restart
		w.wait = append(w.wait, t)
	case record.Lost:
		w.wait = append(w.wait, t)
	case record.Start, record.Finish, record.Reject:
	}
}

func (w *run) give(t *task, sign int) {
	need := w.load.Jobs[t.job].Spec.Resources
	for _, a := range t.alloc {
		for _, d := range a.Devices {
			w.left[a.Machine][d] += sign * a.Milli
		}
		w.cpus[a.Machine] += sign * need.CPUs
		w.mem[a.Machine] += job.Size(sign) * need.Memory
	}
}

func (w *run) fill(now time.Duration) {
	w.wait = slices.DeleteFunc(w.wait, func(t *task) bool {
		j := &w.load.Jobs[t.job]
		t.alloc = w.place(j)
		if t.alloc == nil {
			return false
		}
		w.give(t, -1)
		t.since, t.kind = now, record.Finish
		t.end = now + t.cost + j.Runs - t.done
		if x := w.r.Float64(); x < w.preempted+w.lost {
			t.kind = record.Preempt
			if x < w.lost {
				t.kind = record.Lost
			}
			t.end = now + time.Duration(w.r.Int64N(int64(t.end-now)))
		}
		w.out.Take(record.Record{At: now, Kind: record.Start, Job: t.job, Task: t.task, Alloc: t.alloc})
		heap.Push(&w.ends, t)
		return true
	})
}

func (w *run) place(j *load.Job) []record.Alloc {
	var out []record.Alloc
	need := j.Spec.Resources
	for m, machine := range w.load.Machines {
		if w.cpus[m] < need.CPUs || w.mem[m] < need.Memory {
			continue
		}
		var devices []int
		if gpu.Count(need) > 0 && gpu.Fits(gpu.Device{Model: machine.Model, Memory: machine.DeviceMemory}, need) {
			for d, g := range w.left[m] {
				if g >= gpu.Milli(need) && len(devices) < gpu.Count(need) {
					devices = append(devices, d)
				}
			}
		}
		if len(devices) < gpu.Count(need) {
			continue
		}
		out = append(out, record.Alloc{Machine: m, Devices: devices, Milli: gpu.Milli(need), Hops: w.r.IntN(3) * 2})
		if len(out) == max(1, j.Spec.Nodes) {
			return out
		}
	}
	return nil
}
