package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// devicesFor returns one small, one half used and two large devices.
func devicesFor() (contract.Free, map[string]gpu.Device) {
	all := []gpu.Device{
		{UUID: "big1", Class: "h100-80gb", Memory: 80e9},
		{UUID: "big2", Class: "h100-80gb", Memory: 80e9},
		{UUID: "half", Class: "h100-80gb", Memory: 80e9},
		{UUID: "small", Class: "t4", Memory: 16e9},
	}
	free := contract.Free{CPUs: 8, Memory: 64e9}
	devices := map[string]gpu.Device{}
	for _, d := range all {
		devices[d.UUID] = d
		f := contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole}
		if d.UUID == "half" {
			f.Milli, f.Memory = 500, 40e9
		}
		free.GPUs = append(free.GPUs, f)
	}
	return free, devices
}

func TestFitOfEachNeed(t *testing.T) {
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

// A share is rounded to thousandths like on hosts: 0.57 of a device does not fit if 569 thousandths are free.
func TestSharesAreRoundedToThousandths(t *testing.T) {
	for milli := 1; milli < gpu.Whole; milli++ {
		need := job.Resources{GPUShare: float64(milli) / gpu.Whole}
		for _, left := range []int{milli - 1, milli} {
			free := contract.Free{GPUs: []contract.FreeGPU{{UUID: "a", Memory: 1, Milli: left}}}
			d := devicesOf([]gpu.Device{{UUID: "a", Memory: 1}})
			d.setFree(free.GPUs)
			if chosen, _ := d.Fit(need, &free); len(chosen) > 0 != (left >= milli) || d.Suffices(need, &free) != (left >= milli) {
				t.Errorf("%d thousandths fit into %d: %v, %v, want that only if they are no more", milli, left, chosen, d.Suffices(need, &free))
			}
		}
	}
}

// The free devices of a host have their NVLink islands and NUMA nodes.
func TestFreeDevicesHaveIslandsAndNUMANodes(t *testing.T) {
	var all []gpu.Device
	for i := range 6 {
		all = append(all, gpu.Device{UUID: fmt.Sprint(i), NUMA: i / 3, Class: "x", Memory: job.Size(i / 3)})
	}
	link := func(a, b int, kind gpu.LinkKind) {
		all[a].Links = append(all[a].Links, gpu.Link{To: fmt.Sprint(b), Kind: kind})
	}
	link(4, 1, gpu.LinkNVLink)
	link(1, 5, gpu.LinkNVLink)
	link(2, 3, gpu.LinkNVLink)
	link(0, 2, gpu.LinkNUMA)
	link(0, 9, gpu.LinkNVLink) // the host does not list it
	d := devicesOf(all)
	var free []contract.FreeGPU
	for _, i := range []int{5, 3, 1, 0, 7, 2} {
		free = append(free, contract.FreeGPU{UUID: fmt.Sprint(i)})
	}
	d.setFree(free)
	got := ""
	for i := range append(free, contract.FreeGPU{}) {
		island, numa := d.Place(i)
		uuid := "none"
		if x := d.Device(i); x != nil {
			uuid = x.UUID
		}
		got += fmt.Sprintf("%s: %d %d; ", uuid, island, numa)
	}
	if want := "5: 1 1; 3: 2 1; 1: 1 0; 0: 0 0; none: -1 -1; 2: 2 0; none: -1 -1; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Taken capacity is gone, and nothing falls below zero.
func TestTakeRemovesCapacity(t *testing.T) {
	free, devices := devicesFor()
	need := job.Resources{CPUs: 6, GPUs: 2, GPUModel: "h100"}
	for range 2 {
		chosen := choose(need, &free, devices)
		take(need, &free, chosen[:min(len(chosen), 2)])
	}
	if free.Tasks != 2 || free.CPUs != 0 || len(choose(need, &free, devices)) != 0 {
		t.Errorf("left: %+v, want 2 tasks, no CPUs and no device", free)
	}
	half := job.Resources{GPUShare: .5}
	chosen := choose(half, &free, devices)
	take(half, &free, chosen[:1])
	i := slices.IndexFunc(free.GPUs, func(g contract.FreeGPU) bool { return g.UUID == chosen[0] })
	if chosen[0] != "half" || free.GPUs[i].Milli != 0 || free.GPUs[i].Memory != 0 {
		t.Errorf(`half of a device took %+v of %s, want "half", Milli 0 and Memory 0`, free.GPUs[i], chosen[0])
	}
}
