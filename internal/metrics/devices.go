package metrics

// The series of GPUs, and of the tasks that run.

import (
	"strconv"

	"github.com/musterhq/muster/gpu"
)

// collect sends what is known of the GPU. A value that the driver does not report has no series.
func (g *GPU) collect(to sink) {
	id, l := g.UUID, pairsOf(gpuHealthy, g.UUID)
	to.gauge(gpuInfo, 1, id, strconv.Itoa(g.Index), g.Class, g.Model, g.Driver)
	to.gaugeOf(l, gpuSetAside, number(g.SetAside))
	to.gaugeOf(l, gpuHeld, g.Allocated)
	if g.Memory > 0 {
		to.gaugeOf(l, gpuMemory, float64(g.Memory))
	}
	s := g.Status
	if s == nil || s.Health == gpu.Unknown {
		return
	}
	to.gaugeOf(l, gpuHealthy, number(s.Health == gpu.Healthy))
	if s.Known() {
		to.gaugeOf(l, gpuMemoryUsed, float64(s.MemoryUsed))
		to.counterOf(l, gpuErrors, float64(s.ECC))
	}
	if s.Utilization >= 0 {
		to.gaugeOf(l, gpuUtilization, float64(s.Utilization)/100)
	}
	if s.Temperature > 0 {
		to.gaugeOf(l, gpuTemperature, float64(s.Temperature))
	}
	if s.PowerMilli > 0 {
		to.gaugeOf(l, gpuPower, float64(s.PowerMilli)/1000)
	}
}

func (t *Task) collect(to sink, uses *Use) {
	id := string(t.Attempt.Job)
	l := pairsOf(taskStart, id, t.Task, t.User)
	if !t.Started.IsZero() {
		to.gaugeOf(l, taskStart, float64(t.Started.UnixMilli())/1000)
	}
	to.gaugeOf(l, taskCPUs, float64(t.CPUs))
	to.gaugeOf(l, taskMemory, float64(t.Memory))
	to.gaugeOf(l, taskGPUs, float64(len(t.GPUs)))
	for _, uuid := range t.GPUs {
		to.gauge(gpuTask, 1, uuid, id, t.Task, t.User)
	}
	if uses == nil {
		return
	}
	if u, known := uses.Tasks[t.Attempt]; known {
		u.collect(to, l)
	}
}
