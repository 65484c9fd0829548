package load

// Whether a cluster could ever run a job.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// shape is what equal machines have.
type shape struct {
	cpus   int // thousandths
	memory job.Size
	gpus   int
	device gpu.Device
}

// cluster counts the machines of each shape. Many machines have few shapes, so a job is checked quickly.
type cluster struct {
	shapes []shape
	counts []int
	widths map[string]int // GPUs of the widest machine, by model
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
		if s.gpus > widest && contract.GPUMeets(s.device, need) {
			widest = s.gpus
		}
	}
	if len(c.widths) < maxKept {
		c.widths[models] = widest
	}
	return widest
}

// nodes returns how many nodes a gang needs that asks for this number of GPUs; 1 if one machine has them, or if no
// machine has any.
func (c *cluster) nodes(need job.Resources) int {
	if width := c.width(need.GPUModel); width > 0 && need.GPUs > width {
		return over(need.GPUs, width)
	}
	return 1
}

// What too few machines of a cluster may have.
const (
	lackGPUs   = "GPUs"
	lackModel  = "model"
	lackCPUs   = "CPUs"
	lackMemory = "memory"
)

// lackColumns maps them to the columns of a table that ask for them.
var lackColumns = map[string]string{lackGPUs: "num_gpu", lackModel: "gpu_spec", lackCPUs: "cpu_milli", lackMemory: "memory_mib"}

// lacks returns what too few machines have to run the job, and how many have it; empty if the job could run, or if the
// cluster is not known.
func (c *cluster) lacks(s job.Spec) (what string, have int) {
	if len(c.shapes) == 0 {
		return "", 0
	}
	need, nodes := s.Need(), max(1, s.Nodes)
	devices := gpu.Count(need)
	var wide, fit, fast, all int // machines that have enough GPUs; and its model; and enough CPUs; and enough memory
	for i, m := range c.shapes {
		if m.gpus < devices {
			continue
		}
		wide += c.counts[i]
		if devices > 0 && !contract.GPUMeets(m.device, need) {
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

// unmet says what a job needs of which too few machines have enough, and how many have it.
func unmet(s job.Spec, lacks string, have int) string {
	need := s.Need()
	what := fmt.Sprintf("%d GPUs", gpu.Count(need))
	if need.GPUModel != "" {
		what += " of " + need.GPUModel
	}
	return fmt.Sprintf("it needs %d machines, each with %s, %g CPUs and %d MiB; %d have the %s",
		max(1, s.Nodes), what, float64(need.CPUs)/milli, over(int(need.Memory), 1<<20), have, lacks)
}

// Fit changes jobs from another source as ReadJobs does those of a table. It applies Known and Preemptible, and makes
// gangs of jobs that are wider than the cluster's machines. Name is what notes and errors call the source. Jobs that
// the cluster could never run are an error that names the first.
func (o Options) Fit(name string, jobs []Job) (notes []string, err error) {
	c, wide, rounded, bad := clusterOf(o.Cluster), "", 0, 0
	for i := range jobs {
		j := &jobs[i]
		if j.Spec.Preemptible = j.Spec.Preemptible || o.Preemptible; o.Known {
			j.Spec.TimeLimit = o.known(j)
		}
		asked := j.Spec.Resources.GPUs
		widened, why := c.widen(j)
		if why != "" {
			if bad++; bad == 1 {
				err = fmt.Errorf("%s: job %.60q: the cluster could never run it: %s", name, j.Name, why)
			}
		}
		if held := j.Spec.Resources.GPUs * j.Spec.Nodes; widened && held > asked {
			if rounded++; rounded == 1 {
				wide = fmt.Sprintf("%.60q: %d GPUs on %d nodes, and not %d", j.Name, held, j.Spec.Nodes, asked)
			}
		}
	}
	switch {
	case bad > 1:
		return nil, fmt.Errorf("%w; and %d more jobs", err, bad-1)
	case rounded > 0:
		notes = append(notes, roundedNote(name, rounded, wide))
	}
	return notes, err
}

// widen makes a gang of a job that is wider than any machine, or returns why the cluster could never run the job.
func (c *cluster) widen(j *Job) (widened bool, why string) {
	nodes := 1
	if j.Spec.Nodes <= 1 {
		nodes = c.nodes(j.Spec.Resources)
	}
	if nodes > job.MaxNodes {
		return false, fmt.Sprintf("it needs %d machines; at most %d", nodes, job.MaxNodes)
	}
	j.gang(nodes)
	if lacks, have := c.lacks(j.Spec); lacks != "" {
		return false, unmet(j.Spec, lacks, have)
	}
	return nodes > 1, ""
}

func roundedNote(name string, n int, first string) string {
	return fmt.Sprintf("%s: %d gangs hold more GPUs than they ask for, because each node holds the same number; the first is %s", name, n, first)
}
