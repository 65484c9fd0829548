package load

// Whether a cluster could ever run a job.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// shape is what equal machines have.
type shape struct {
	cpus   int // thousandths
	memory job.Size
	gpus   int
	device gpu.Device
}

// cluster counts the machines of each shape. Few shapes make many machines, so a job is checked quickly.
type cluster struct {
	shapes []shape
	counts []int
	widths map[string]int // of the widest machine, by model
}

func clusterOf(machines []Machine) cluster {
	type key struct {
		cpus   int
		memory job.Size
		gpus   int
		class  string
		device job.Size
	}
	c := cluster{widths: map[string]int{}}
	seen := map[key]int{}
	for _, m := range machines {
		k := key{m.CPUs, m.Memory, m.GPUs, m.Class(), m.DeviceMemory}
		i, there := seen[k]
		if !there {
			i = len(c.shapes)
			seen[k] = i
			c.shapes = append(c.shapes, shape{m.CPUs, m.Memory, m.GPUs, gpu.Device{Class: k.class, Model: m.Model, Memory: m.DeviceMemory}})
			c.counts = append(c.counts, 0)
		}
		c.counts[i]++
	}
	return c
}

// width returns the GPUs of the widest machine with one of these models; 0 if there is none.
func (c *cluster) width(models string) int {
	widest, known := c.widths[models]
	if known {
		return widest
	}
	need := job.Resources{GPUModel: models}
	for _, s := range c.shapes {
		if s.gpus > widest && lease.GPUMeets(s.device, need) {
			widest = s.gpus
		}
	}
	if len(c.widths) < maxKept {
		c.widths[models] = widest
	}
	return widest
}

// What too few machines of a cluster have.
const (
	lackGPUs   = "GPUs"
	lackModel  = "model"
	lackCPUs   = "CPUs"
	lackMemory = "memory"
)

// lackColumns lists the columns in which a table asks for them.
var lackColumns = map[string]string{lackGPUs: "num_gpu", lackModel: "gpu_spec", lackCPUs: "cpu_milli", lackMemory: "memory_mib"}

// lacks returns what too few machines have to run the job, and how many have it; empty if the job could run, or if the
// cluster is not known.
func (c *cluster) lacks(s job.Spec) (what string, have int) {
	if len(c.shapes) == 0 {
		return "", 0
	}
	need, nodes := s.Need(), max(1, s.Nodes)
	devices := gpu.Count(need)
	var wide, fit, fast, all int // machines that have GPUs enough; of its model too; CPUs too; memory too
	for i, m := range c.shapes {
		if m.gpus < devices {
			continue
		}
		wide += c.counts[i]
		if devices > 0 && !lease.GPUMeets(m.device, need) {
			continue
		}
		fit += c.counts[i]
		if m.cpus < need.CPUs {
			continue
		}
		fast += c.counts[i]
		if m.memory < need.Memory {
			continue
		}
		if all += c.counts[i]; all >= nodes {
			return "", all
		}
	}
	switch {
	case wide < nodes:
		return lackGPUs, wide
	case fit < nodes:
		return lackModel, fit
	case fast < nodes:
		return lackCPUs, fast
	}
	return lackMemory, all
}
