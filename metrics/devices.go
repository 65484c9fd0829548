package metrics

// The series of GPUs, and of the tasks that run.

import (
	"strconv"

	"github.com/musterhq/muster/gpu"
)

// collect sends what is known of the GPU. What a driver cannot tell has no series.
func (g *GPU) collect(to sink) {
	id := g.UUID
	to.gauge(gpuInfo, 1, id, strconv.Itoa(g.Index), g.Class, g.Model, g.Driver)
	to.gauge(gpuSetAside, number(g.SetAside), id)
	to.gauge(gpuHeld, g.Allocated, id)
	if g.Memory > 0 {
		to.gauge(gpuMemory, float64(g.Memory), id)
	}
	s := g.Status
	if s == nil || s.Health == gpu.Unknown {
		return
	}
	to.gauge(gpuHealthy, number(s.Health == gpu.Healthy), id)
	if s.Known() {
		to.gauge(gpuMemoryUsed, float64(s.MemoryUsed), id)
		to.counter(gpuErrors, float64(s.ECC), id)
	}
	if s.Utilization >= 0 {
		to.gauge(gpuUtilization, float64(s.Utilization)/100, id)
	}
	if s.Temperature > 0 {
		to.gauge(gpuTemperature, float64(s.Temperature), id)
	}
	if s.PowerMilli > 0 {
		to.gauge(gpuPower, float64(s.PowerMilli)/1000, id)
	}
}

func (t *Task) collect(to sink, uses *Use) {
	id := string(t.Attempt.Job)
	to.time(taskStart, t.Started, id, t.Task, t.User)
	to.gauge(taskCPUs, float64(t.CPUs), id, t.Task, t.User)
	to.gauge(taskMemory, float64(t.Memory), id, t.Task, t.User)
	to.gauge(taskGPUs, float64(len(t.GPUs)), id, t.Task, t.User)
	for _, uuid := range t.GPUs {
		to.gauge(gpuTask, 1, uuid, id, t.Task, t.User)
	}
	if uses == nil {
		return
	}
	if u, known := uses.Tasks[t.Attempt]; known {
		u.collect(to, id, t.Task, t.User)
	}
}
