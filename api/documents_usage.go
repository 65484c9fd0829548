package api

// The documents of the usage of tasks and nodes. Unknown values are null or absent, never 0.

import (
	"math"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// Used is what a task has used: totals, means and peaks.
type Used struct {
	Samples      uint64   `json:"samples" doc:"How often it was measured. A task that ended before it was measured has 1, for what the kernel told at its end."`
	CPUSeconds   *float64 `json:"cpu_seconds" doc:"CPU time of all its processes; null: unknown, as all others here."`
	CPUs         *float64 `json:"cpus" doc:"CPUs in use, on average."`
	Memory       *float64 `json:"memory" doc:"Bytes of memory in use, on average; without file cache."`
	MemoryPeak   *float64 `json:"memory_peak" doc:"The greatest number of bytes of memory in use that was seen."`
	ReadBytes    *float64 `json:"read_bytes" doc:"Bytes read from disks."`
	WrittenBytes *float64 `json:"written_bytes" doc:"Bytes written to disks."`
	PIDsPeak     *float64 `json:"pids_peak" doc:"The greatest number of processes and threads that was seen."`
	GPU          *float64 `json:"gpu_utilization" doc:"Percent of the time in which its GPUs computed, on average. Unknown for a share of a GPU."`
	GPUMemory    *float64 `json:"gpu_memory_peak" doc:"The greatest number of bytes allocated on its GPUs together that was seen."`
	Power        *float64 `json:"gpu_power" doc:"Watts of its GPUs together, on average."`
}

// TaskUsage is the document of what a task uses.
type TaskUsage struct {
	Schema  string       `json:"schema"`
	Job     job.ID       `json:"job"`
	Task    int          `json:"task" doc:"Number of the task."`
	Attempt int          `json:"attempt" doc:"The attempt that is meant: the newest; 0 before the first."`
	State   job.State    `json:"state"`
	NodeID  job.Peer     `json:"node_id"`
	Node    string       `json:"node"`
	Used    *Used        `json:"used" doc:"Null: it has not been measured."`
	Life    *UsageSeries `json:"life" doc:"Its whole life in at most 120 points, each the mean of the time to the next; null if it has not been measured."`
	Recent  *UsageSeries `json:"recent" doc:"While it runs: each sample of the last hour; null if there are none."`
	Idle    []IdleGPU    `json:"idle_gpus,omitempty" doc:"While it runs: those of its GPUs that it has hardly used for 15 minutes."`
}

// IdleGPU is a GPU that a task holds and hardly uses.
type IdleGPU struct {
	UUID  string    `json:"uuid" doc:"UUID of the GPU."`
	Since time.Time `json:"since" doc:"Since when, by the clock of the node."`
	// Seconds is missing in answers of nodes of earlier versions.
	Seconds float64 `json:"seconds,omitempty" doc:"For how many seconds."`
}

// NodeUsage is the document of what a node used in the last hour.
type NodeUsage struct {
	Schema string      `json:"schema"`
	NodeID job.Peer    `json:"node_id"`
	Host   UsageSeries `json:"host" doc:"Samples of the whole host, also of what is not of tasks."`
	GPUs   []GPUUsage  `json:"gpus" nullable:"false"`
}

// GPUUsage is what a GPU used in the last hour.
type GPUUsage struct {
	UUID   string      `json:"uuid" doc:"UUID of the GPU."`
	Recent UsageSeries `json:"recent" doc:"Samples of the last hour."`
}

// NodeNow is what a node used when it was measured last.
type NodeNow struct {
	At       time.Time `json:"at" doc:"When it was measured, by the clock of the node."`
	CPUs     *float64  `json:"cpus" doc:"CPUs in use; null: unknown, as all others here."`
	Memory   *float64  `json:"memory" doc:"Bytes of memory in use, without file cache."`
	Read     *float64  `json:"read" doc:"Bytes per second from disks."`
	Write    *float64  `json:"write" doc:"Bytes per second to disks."`
	Received *float64  `json:"received" doc:"Bytes per second from the network."`
	Sent     *float64  `json:"sent" doc:"Bytes per second to the network."`
	GPU      *float64  `json:"gpu_utilization" doc:"Percent of the time in which its GPUs computed: the mean of those that tell it."`
}

// nodeNow returns what a node uses; nil if nothing is known. GPUs that are not monitored do not count.
func nodeNow(s usage.Sample, gpus []GPU, released bool) *NodeNow {
	if s.At.IsZero() {
		return nil
	}
	v := &s.Values
	d := &NodeNow{
		At: s.At.UTC(), CPUs: rounded(v[usage.CPU], 1000), Memory: rounded(v[usage.Memory], 1), Read: rounded(v[usage.Read], 1), Write: rounded(v[usage.Write], 1),
		Received: rounded(v[usage.Received], 1), Sent: rounded(v[usage.Sent], 1),
	}
	sum, n := 0, 0
	for i := range gpus {
		if g := &gpus[i]; g.Utilization >= 0 && g.ReadAt != nil && g.Health != gpu.Unknown && !released {
			sum, n = sum+g.Utilization, n+1
		}
	}
	if n > 0 {
		d.GPU = rounded(float64(sum)/float64(n), 10)
	}
	return d
}

// rounded returns x rounded to 1/parts, or nil if it is not known.
func rounded(x, parts float64) *float64 {
	return known(math.Round(x*parts) / parts)
}

// UsageSeries holds values at the same times. A list is absent if none of its values is known.
type UsageSeries struct {
	Start     time.Time  `json:"start" doc:"From when at counts, by the clock of the node."`
	At        []float64  `json:"at" nullable:"false" doc:"Time of each point, in seconds after start."`
	CPUs      []*float64 `json:"cpus,omitempty" doc:"CPUs in use; null: unknown, as in all lists."`
	Memory    []*float64 `json:"memory,omitempty" doc:"Bytes of memory in use, without file cache."`
	Read      []*float64 `json:"read,omitempty" doc:"Bytes per second from disks."`
	Write     []*float64 `json:"write,omitempty" doc:"Bytes per second to disks."`
	PIDs      []*float64 `json:"pids,omitempty" doc:"Processes and threads."`
	GPU       []*float64 `json:"gpu_utilization,omitempty" doc:"Percent of the time in which the GPUs computed."`
	GPUMemory []*float64 `json:"gpu_memory,omitempty" doc:"Bytes allocated on the GPUs."`
	Power     []*float64 `json:"gpu_power,omitempty" doc:"Watts of the GPUs."`
	Received  []*float64 `json:"received,omitempty" doc:"Bytes per second from the network; of nodes."`
	Sent      []*float64 `json:"sent,omitempty" doc:"Bytes per second to the network; of nodes."`
}

// known returns a value, or nil if it is not known.
func known(x float64) *float64 {
	if !usage.Known(x) {
		return nil
	}
	return &x
}

// usedOf returns the document of an encoded report, and the report. The document is nil if the report is empty or cannot
// be decoded.
func usedOf(encoded string) (*Used, usage.Report) {
	if encoded == "" {
		return nil, usage.NewReport()
	}
	r, err := usage.Decode([]byte(encoded))
	if err != nil {
		return nil, r // it was checked when it arrived, so a newer version has encoded it
	}
	return usedDocument(r), r
}

func usedDocument(r usage.Report) *Used {
	s := &r.Series
	return &Used{
		Samples: r.Samples, CPUSeconds: known(r.CPU), CPUs: known(s[usage.CPU].Mean), Memory: known(s[usage.Memory].Mean), MemoryPeak: known(s[usage.Memory].Max),
		ReadBytes: known(r.Read), WrittenBytes: known(r.Written), PIDsPeak: known(s[usage.PIDs].Max),
		GPU: known(s[usage.GPU].Mean), GPUMemory: known(s[usage.GPUMemory].Max), Power: known(s[usage.Power].Mean),
	}
}

// lists returns the lists of the series by their kinds.
func (d *UsageSeries) lists() [usage.Kinds]*[]*float64 {
	return [usage.Kinds]*[]*float64{&d.CPUs, &d.Memory, &d.Read, &d.Write, &d.PIDs, &d.GPU, &d.GPUMemory, &d.Power, &d.Received, &d.Sent}
}

// lifeDocument returns the points of the report of a task that began at the time began; nil if there are none.
func lifeDocument(r usage.Report, began time.Time) *UsageSeries {
	n := 0
	for _, s := range r.Series {
		n = max(n, len(s.Points))
	}
	if n == 0 {
		return nil
	}
	d := &UsageSeries{Start: began.UTC(), At: make([]float64, n)}
	for i := range d.At {
		d.At[i] = float64(i) * r.Step.Seconds()
	}
	for k, list := range d.lists() {
		points := r.Series[k].Points
		if len(points) == 0 {
			continue
		}
		*list = make([]*float64, n) // null where a series ends before others
		for i, x := range points {
			(*list)[i] = known(x)
		}
	}
	return d
}

// recentDocument returns the document of samples.
func recentDocument(p usage.Points) UsageSeries {
	d := UsageSeries{At: make([]float64, len(p.At))}
	if len(p.At) == 0 {
		return d
	}
	d.Start = p.At[0].UTC()
	for i, at := range p.At {
		d.At[i] = at.Sub(p.At[0]).Seconds()
	}
	for k, list := range d.lists() {
		for _, x := range p.Columns[k] {
			*list = append(*list, known(x))
		}
	}
	return d
}
