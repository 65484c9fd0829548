package fleet

// The nearest fit: to how much of one resource a need must be reduced so that it fits.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Nearest returns for each resource the most of it that the need could have to fit at one of the hosts, or at as many
// hosts as a gang has members, if the rest of the need stayed as it is. CPUs and memory are those of one member, GPUs
// those of all members. A resource is zero if less of it alone would not help. freeAt returns what counts as free at a
// host: what is free now, or what would be free without tasks, as IdleOf returns it. Hosts that have refused the need
// to the user because of a limit are left out, because what they would take is not known.
func Nearest(clauses []Clause, user string, need job.Resources, members int, hosts []*Host, freeAt func(*Host) *contract.Free) contract.Nearest {
	clauses = withoutCounts(clauses)
	need.GPUModel = contract.ModelName(need.GPUModel)
	var each [3][]int64 // by resource: for each host, with how much of it the need would fit
	for _, h := range hosts {
		if !h.Open() || !Meets(clauses, h) || user != "" && h.Quotas.Over(user, need) != "" {
			continue
		}
		for i, fits := range nearest(h, user, need, freeAt(h)) {
			if fits > 0 {
				each[i] = append(each[i], fits)
			}
		}
	}
	members = max(members, 1)
	var most [3]int64
	for i, all := range each {
		if slices.SortFunc(all, func(a, b int64) int { return cmp.Compare(b, a) }); len(all) >= members {
			most[i] = all[members-1]
		}
	}
	asked := [3]int64{int64(need.CPUs), int64(need.Memory), int64(need.GPUs)}
	for i := range most {
		if most[i] >= asked[i] { // enough hosts have all of it: this resource is not what is short
			most[i] = 0
		}
	}
	return contract.Nearest{CPUs: int(most[0]), Memory: job.Size(most[1]), GPUs: int(most[2]) * members}
}

// nearest returns for each resource with how much of it the need would fit at the host, if the rest stayed as it is; 0
// if less of it alone does not help. It is never more than the need asks for. What the user may never hold at the host
// counts as not free.
func nearest(h *Host, user string, need job.Resources, free *contract.Free) (fits [3]int64) {
	most := capOf(h, user)
	if shared(need, free) || most.none(need) {
		return fits
	}
	one := need
	one.GPUs = min(1, need.GPUs)
	able := min(int64(len(choose(one, free, h.Devices.byUUID))), most.gpus)
	cpus, memory := min(int64(free.CPUs), most.cpus), min(int64(free.Memory), most.memory)
	enoughCPUs, enoughMemory, enoughGPUs := cpus >= int64(need.CPUs), memory >= int64(need.Memory), able >= int64(gpu.Count(need))
	if enoughMemory && enoughGPUs {
		fits[0] = min(cpus, int64(need.CPUs))
	}
	if enoughCPUs && enoughGPUs {
		fits[1] = min(memory, int64(need.Memory))
	}
	if enoughCPUs && enoughMemory && need.GPUs > 1 {
		fits[2] = min(able, int64(need.GPUs))
	}
	return fits
}

// IdleOf returns what would be free on a host without tasks.
func IdleOf(h *Host) *contract.Free {
	p := &h.Profile
	f := &contract.Free{CPUs: p.CPUs, Memory: p.Memory}
	for _, d := range p.GPUs {
		f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole})
	}
	return f
}
