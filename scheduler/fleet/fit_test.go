package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// devicesFor is one small, one half used and two large devices.
func devicesFor() (lease.Free, map[string]gpu.Device) {
	all := []gpu.Device{
		{UUID: "big1", Class: "h100-80gb", Memory: 80e9},
		{UUID: "big2", Class: "h100-80gb", Memory: 80e9},
		{UUID: "half", Class: "h100-80gb", Memory: 80e9},
		{UUID: "small", Class: "t4", Memory: 16e9},
	}
	free := lease.Free{CPUs: 8, Memory: 64e9}
	devices := map[string]gpu.Device{}
	for _, d := range all {
		devices[d.UUID] = d
		f := lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: wholeMilli}
		if d.UUID == "half" {
			f.Milli, f.Memory = 500, 40e9
		}
		free.GPUs = append(free.GPUs, f)
	}
	return free, devices
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		need   job.Resources
		chosen string
		lack   string
	}{
		{job.Resources{CPUs: 8}, "[]", ""},
		{job.Resources{CPUs: 9}, "[]", "cpus"},
		{job.Resources{Memory: 65e9}, "[]", "memory"},
		{job.Resources{GPUs: 1}, "[small]", ""},
		{job.Resources{GPUs: 1, GPUMemory: 20e9}, "[big1]", ""},
		{job.Resources{GPUs: 3}, "[small big1 big2]", ""},
		{job.Resources{GPUs: 3, GPUModel: "H100"}, "[]", "gpus"},
		{job.Resources{GPUShare: .5}, "[half]", ""},
		{job.Resources{GPUShare: .6}, "[small]", ""},
		{job.Resources{GPUShare: .25, GPUMemory: 50e9}, "[big1]", ""},
	} {
		free, devices := devicesFor()
		chosen, lack := fits(c.need, &free, devices)
		if fmt.Sprint(chosen) != c.chosen || lack != c.lack {
			t.Errorf("fits(%+v) = %v, %q; want %s, %q", c.need, chosen, lack, c.chosen, c.lack)
		}
	}
}

// What is taken is not there any more, and nothing falls below none.
func TestTake(t *testing.T) {
	free, devices := devicesFor()
	need := job.Resources{CPUs: 6, GPUs: 2, GPUModel: "h100"}
	for range 2 {
		chosen := choose(need, &free, devices)
		take(need, &free, chosen[:min(len(chosen), 2)])
	}
	if free.CPUs != 0 || len(choose(need, &free, devices)) != 0 {
		t.Errorf("left: %+v", free)
	}
	half := job.Resources{GPUShare: .5}
	chosen := choose(half, &free, devices)
	take(half, &free, chosen[:1])
	i := slices.IndexFunc(free.GPUs, func(g lease.FreeGPU) bool { return g.UUID == chosen[0] })
	if chosen[0] != "half" || free.GPUs[i].Milli != 0 || free.GPUs[i].Memory != 0 {
		t.Errorf("half of a device took %+v of %s", free.GPUs[i], chosen[0])
	}
}
