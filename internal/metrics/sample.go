package metrics

// What a daemon knows of itself at the time of a scrape.

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Sample is what is known. A part that is nil or zero is not known.
type Sample struct {
	Node    *Node
	GPUs    []GPU
	Tasks   []Task // that run here
	Members map[string]int
	// CredentialEnd is when the credential of this daemon ends unless it is renewed. InvitersEnd is when the first
	// credential of an inviter ends that this daemon's credential depends on.
	CredentialEnd, InvitersEnd time.Time
	Jobs                       map[job.State]int // of this daemon
	Totals                     *Totals
	Use                        *Use
}

// Node is this host. What it offers to tasks may be less than it has.
type Node struct {
	ID, Name, Version, Arch, OS string
	Ready, Draining             bool
	CPUs, CPUsAllocated         int
	Memory, MemoryAllocated     job.Size
	GPUsAllocated               float64 // a share of a GPU counts as a part
	Disk, DiskFree              job.Size
	Running, Queued             int // tasks; offers
	TasksUnlisted, GPUsSetAside int
}

// GPU is a GPU of this host. Status is nil if it is not known, or too old.
type GPU struct {
	gpu.Device

	Allocated float64 // the part of it that tasks hold, from 0 to 1
	SetAside  bool    // it is in quarantine
	Status    *gpu.Status
}

// Task is a task that runs here.
type Task struct {
	Attempt job.Attempt
	Task    string // as people number it
	User    string
	Started time.Time
	CPUs    int
	Memory  job.Size
	GPUs    []string // UUIDs
}

// Totals count what has happened since the daemon began.
type Totals struct {
	Offers  map[string]uint64
	Ended   map[job.State]uint64
	Queued  Histogram
	Started Histogram
}

// Histogram counts durations, in seconds. Counts[i] is the number of durations above Bounds[i-1] and up to Bounds[i].
// One more count at the end is for durations above all bounds.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

var (
	nodeInfo         = describe("muster_node_info", "This node: its value is 1.", "id", "name", "version", "arch", "os")
	nodeReady        = describe("muster_node_ready", "1 if the node accepts tasks.")
	nodeDraining     = describe("muster_node_draining", "1 if an operator has taken the node out of service.")
	nodeCPUs         = describe("muster_node_cpus", "CPUs that the node offers to tasks.")
	nodeCPUsHeld     = describe("muster_node_cpus_allocated", "CPUs that tasks hold.")
	nodeMemory       = describe("muster_node_memory_bytes", "Memory that the node offers to tasks.")
	nodeMemoryHeld   = describe("muster_node_memory_allocated_bytes", "Memory that tasks hold, whether they use it or not.")
	nodeGPUs         = describe("muster_node_gpus", "GPUs that the node offers to tasks.")
	nodeGPUsHeld     = describe("muster_node_gpus_allocated", "GPUs that tasks hold; a share of a GPU counts as a part.")
	nodeGPUsSetAside = describe("muster_node_gpus_set_aside", "GPUs in quarantine.")
	nodeDisk         = describe("muster_node_disk_bytes", "Size of the file system of the data directory.")
	nodeDiskFree     = describe("muster_node_disk_free_bytes", "Free space on the file system of the data directory.")
	nodeRunning      = describe("muster_node_tasks_running", "Tasks that run on the node.")
	nodeUnlisted     = describe("muster_node_tasks_unlisted", "Tasks that run on the node and have no series of their own, because there are more than the setting metrics-tasks allows.")
	nodeQueued       = describe("muster_node_offers_queued", "Offers of tasks that wait for room on the node.")
	members          = describe("muster_members", "Members of the cluster as this daemon sees them, by state.", "state")
	credentialEnd    = describe("muster_credential_end_timestamp_seconds", "When the credential of this daemon ends, unless it is renewed.")
	invitersEnd      = describe("muster_inviters_end_timestamp_seconds", "When the credentials of the inviters end that this daemon depends on, unless they are renewed.")

	gpuInfo        = describe("muster_gpu_info", "A GPU of the node: its value is 1.", "uuid", "index", "class", "model", "driver")
	gpuHealthy     = describe("muster_gpu_healthy", "1 if the driver finds nothing wrong, 0 if it does.", "uuid")
	gpuSetAside    = describe("muster_gpu_set_aside", "1 if the GPU is in quarantine: no further task gets it.", "uuid")
	gpuHeld        = describe("muster_gpu_allocated_ratio", "The part of the GPU that tasks hold.", "uuid")
	gpuUtilization = describe("muster_gpu_utilization_ratio", "The part of the last second or so in which the GPU computed.", "uuid")
	gpuMemory      = describe("muster_gpu_memory_bytes", "Memory of the GPU.", "uuid")
	gpuMemoryUsed  = describe("muster_gpu_memory_used_bytes", "Memory of the GPU that is in use.", "uuid")
	gpuTemperature = describe("muster_gpu_temperature_celsius", "Temperature of the GPU.", "uuid")
	gpuPower       = describe("muster_gpu_power_watts", "Power that the GPU draws.", "uuid")
	gpuErrors      = describe("muster_gpu_memory_errors_total", "Memory errors that could not be corrected, since the driver was loaded.", "uuid")
	gpuTask        = describe("muster_gpu_task_info", "A task that holds the GPU or a share of it: its value is 1.", "uuid", "job", "task", "user")

	taskStart  = describe("muster_task_start_time_seconds", "When the task started on the node.", "job", "task", "user")
	taskCPUs   = describe("muster_task_cpus", "CPUs that the task holds.", "job", "task", "user")
	taskMemory = describe("muster_task_memory_allocated_bytes", "Memory that the task holds, whether it uses it or not.", "job", "task", "user")
	taskGPUs   = describe("muster_task_gpus", "GPUs that the task holds, whole or in part.", "job", "task", "user")

	jobsByState = describe("muster_jobs", "Jobs of this daemon by state, ended ones as long as they are kept.", "state")
	offers      = describe("muster_offers_total", "Offers of tasks of this daemon to hosts, by what became of them.", "result")
	ended       = describe("muster_tasks_ended_total", "Attempts of tasks of this daemon that have ended, by state.", "state")
	queueWait   = describe("muster_queue_wait_seconds", "Time for which tasks of this daemon waited for a host, from when they might have been placed until a host was told to start them.")
	submitStart = describe("muster_submit_start_seconds", "Time from the submission of a job until a process of a task ran, for first attempts.")
)

// Collect sends the series of the sample.
func (s *Sample) Collect(ch chan<- prometheus.Metric) {
	to := sink(ch)
	if s.Node != nil {
		s.Node.collect(to)
		to.gauge(nodeGPUs, float64(len(s.GPUs)))
	}
	for i := range s.GPUs {
		s.GPUs[i].collect(to)
	}
	for i := range s.Tasks {
		s.Tasks[i].collect(to, s.Use)
	}
	if s.Use != nil {
		s.Use.Host.collect(to)
	}
	for state, n := range s.Members {
		to.gauge(members, float64(n), state)
	}
	to.time(credentialEnd, s.CredentialEnd)
	to.time(invitersEnd, s.InvitersEnd)
	for state, n := range s.Jobs {
		to.gauge(jobsByState, float64(n), string(state))
	}
	if t := s.Totals; t != nil {
		for result, n := range t.Offers {
			to.counter(offers, float64(n), result)
		}
		for state, n := range t.Ended {
			to.counter(ended, float64(n), string(state))
		}
		to.histogram(queueWait, t.Queued)
		to.histogram(submitStart, t.Started)
	}
}

// time sends a time that is known.
func (s sink) time(d *prometheus.Desc, at time.Time, labels ...string) {
	if !at.IsZero() {
		s.gauge(d, float64(at.UnixMilli())/1000, labels...)
	}
}

func (n *Node) collect(to sink) {
	to.gauge(nodeInfo, 1, n.ID, n.Name, n.Version, n.Arch, n.OS)
	to.gauge(nodeReady, number(n.Ready))
	to.gauge(nodeDraining, number(n.Draining))
	to.gauge(nodeCPUs, float64(n.CPUs))
	to.gauge(nodeCPUsHeld, float64(n.CPUsAllocated))
	to.gauge(nodeMemory, float64(n.Memory))
	to.gauge(nodeMemoryHeld, float64(n.MemoryAllocated))
	to.gauge(nodeGPUsHeld, n.GPUsAllocated)
	to.gauge(nodeGPUsSetAside, float64(n.GPUsSetAside))
	if n.Disk > 0 {
		to.gauge(nodeDisk, float64(n.Disk))
		to.gauge(nodeDiskFree, float64(n.DiskFree))
	}
	to.gauge(nodeRunning, float64(n.Running))
	to.gauge(nodeUnlisted, float64(n.TasksUnlisted))
	to.gauge(nodeQueued, float64(n.Queued))
}
