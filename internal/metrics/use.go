package metrics

// The series of what tasks and the host use, as far as it is measured; of GPUs, and of the tasks that run.

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Use is the newest sample of what is used.
type Use struct {
	Host  HostUse
	Tasks map[job.Attempt]TaskUse
}

// HostUse is what the whole host uses, including programs that are not tasks. NaN: not known.
type HostUse struct {
	CPUs           float64 // in use
	Memory         float64 // bytes
	Read, Written  float64 // bytes per second, from and to disks
	Received, Sent float64 // bytes per second, from and to the network
}

// UnknownHost is a HostUse of which nothing is known.
var UnknownHost = HostUse{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}

// TaskUse is what a task uses. NaN: not known.
type TaskUse struct {
	CPUSeconds    float64 // in all
	Memory        float64 // bytes
	Read, Written float64 // bytes in all, from and to disks
	Processes     float64 // and threads
}

var (
	nodeCPUsUsed   = describe("muster_node_cpus_used", "CPUs in use on the node, by tasks and by all else.")
	nodeMemoryUsed = describe("muster_node_memory_used_bytes", "Memory in use on the node, by tasks and by all else.")
	nodeRead       = describe("muster_node_disk_read_bytes_per_second", "Bytes that the node reads from its disks.")
	nodeWritten    = describe("muster_node_disk_written_bytes_per_second", "Bytes that the node writes to its disks.")
	nodeReceived   = describe("muster_node_network_received_bytes_per_second", "Bytes that the node receives from the network.")
	nodeSent       = describe("muster_node_network_sent_bytes_per_second", "Bytes that the node sends to the network.")

	taskCPUSeconds = describe("muster_task_cpu_seconds_total", "CPU time of the task.", "job", "task", "user")
	taskMemoryUsed = describe("muster_task_memory_used_bytes", "Memory that the task uses, without the file cache that the kernel can drop.", "job", "task", "user")
	taskRead       = describe("muster_task_disk_read_bytes_total", "Bytes that the task has read from disks.", "job", "task", "user")
	taskWritten    = describe("muster_task_disk_written_bytes_total", "Bytes that the task has written to disks.", "job", "task", "user")
	taskProcesses  = describe("muster_task_processes", "Processes and threads of the task.", "job", "task", "user")
)

func (u *HostUse) collect(to sink) {
	to.known(nil, nodeCPUsUsed, false, u.CPUs)
	to.known(nil, nodeMemoryUsed, false, u.Memory)
	to.known(nil, nodeRead, false, u.Read)
	to.known(nil, nodeWritten, false, u.Written)
	to.known(nil, nodeReceived, false, u.Received)
	to.known(nil, nodeSent, false, u.Sent)
}

func (u *TaskUse) collect(to sink, l pairs) {
	to.known(l, taskCPUSeconds, true, u.CPUSeconds)
	to.known(l, taskMemoryUsed, false, u.Memory)
	to.known(l, taskRead, true, u.Read)
	to.known(l, taskWritten, true, u.Written)
	to.known(l, taskProcesses, false, u.Processes)
}

// known sends a value unless it is not known.
func (s sink) known(l pairs, d *prometheus.Desc, counter bool, v float64) {
	if !math.IsNaN(v) {
		s <- &value{d, counter, v, l}
	}
}

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
