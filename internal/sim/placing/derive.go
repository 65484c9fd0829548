package placing

// Unpublished variants: machines and tables that are derived from others, so that a policy is judged on more than the
// files with which it was developed.

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// Resample returns a table of the same length, each request a random one of the table.
func Resample(table []load.Request, seed uint64) []load.Request {
	r := rand.New(rand.NewPCG(seed, 2))
	out := make([]load.Request, len(table))
	for i := range out {
		out[i] = table[r.IntN(len(table))]
		out[i].Name = fmt.Sprintf("%s-copy-%05d", out[i].Name, i)
	}
	return out
}

// Pin makes a part of the requests for GPUs ask for certain models. A request that it pins gets the models of a random
// pinned request for the same number of GPUs in the table from. Requests that are pinned already count towards the
// part.
func Pin(table, from []load.Request, part float64, seed uint64) []load.Request {
	r := rand.New(rand.NewPCG(seed, 3))
	models := map[int][]string{}
	for i := range from {
		if x := &from[i]; x.Models != "" {
			models[x.Need.GPUs] = append(models[x.Need.GPUs], x.Models) // 0 GPUs: a share
		}
	}
	out := slices.Clone(table)
	with, pinned := 0, 0
	var open []int
	for i := range out {
		x := &out[i]
		if x.GPUs == 0 {
			continue
		}
		with++
		switch {
		case x.Models != "":
			pinned++
		case len(models[x.Need.GPUs]) > 0:
			open = append(open, i)
		}
	}
	r.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, i := range open[:max(0, min(len(open), int(part*float64(with))-pinned))] {
		x := &out[i]
		x.Models = models[x.Need.GPUs][r.IntN(len(models[x.Need.GPUs]))]
		x.Need.GPUModel = contract.ModelName(x.Models)
	}
	return out
}

// Some returns a random part of the machines.
func Some(machines []load.Machine, part float64, seed uint64) []load.Machine {
	r := rand.New(rand.NewPCG(seed, 4))
	out := slices.Clone(machines)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return sorted(out[:int(part*float64(len(out)))])
}

// OtherMix returns machines with about the same total number of GPUs. How many there are of each model and size is
// random.
func OtherMix(machines []load.Machine, seed uint64) []load.Machine {
	r := rand.New(rand.NewPCG(seed, 5))
	type sort struct {
		model string
		gpus  int
	}
	var sorts []sort
	like := map[sort]load.Machine{}
	total := 0
	for _, m := range machines {
		total += m.GPUs
		s := sort{m.Model, m.GPUs}
		if _, known := like[s]; !known {
			sorts = append(sorts, s)
		}
		like[s] = m
	}
	slices.SortFunc(sorts, func(a, b sort) int { return cmp.Or(strings.Compare(a.model, b.model), cmp.Compare(a.gpus, b.gpus)) })
	weights := make([]float64, len(sorts))
	sum := 0.0
	for i := range sorts {
		weights[i] = r.ExpFloat64()
		sum += weights[i]
	}
	var out []load.Machine
	for i, s := range sorts {
		for range int(weights[i]/sum*float64(total))/max(s.gpus, 1) + 1 {
			m := like[s]
			m.Name = fmt.Sprintf("mix-%05d", len(out))
			out = append(out, m)
		}
	}
	return out
}

// AllOfSize returns machines of the same models that have this number of GPUs each. The total number of GPUs is about
// the same, and so are the CPUs and the memory for each GPU.
func AllOfSize(machines []load.Machine, gpus int) []load.Machine {
	total := map[string]load.Machine{}
	for _, m := range machines {
		t := total[m.Model]
		t.CPUs += m.CPUs
		t.Memory += m.Memory
		t.GPUs += m.GPUs
		t.Model = m.Model
		total[m.Model] = t
	}
	models := make([]string, 0, len(total))
	for model := range total {
		models = append(models, model)
	}
	slices.Sort(models)
	var out []load.Machine
	for _, model := range models {
		t := total[model]
		for range max(1, t.GPUs/gpus) {
			out = append(out, load.Machine{
				Name: fmt.Sprintf("node-%05d", len(out)), Model: model, GPUs: gpus,
				CPUs: t.CPUs / t.GPUs * gpus, Memory: t.Memory / job.Size(t.GPUs) * job.Size(gpus),
			})
		}
	}
	return out
}

// TimesCPUs returns the machines with their CPUs multiplied by times.
func TimesCPUs(machines []load.Machine, times float64) []load.Machine {
	out := slices.Clone(machines)
	for i := range out {
		out[i].CPUs = int(times * float64(out[i].CPUs))
	}
	return out
}

func sorted(machines []load.Machine) []load.Machine {
	slices.SortFunc(machines, func(a, b load.Machine) int { return strings.Compare(a.Name, b.Name) })
	return machines
}
