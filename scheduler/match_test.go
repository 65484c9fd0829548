package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

func TestIsNode(t *testing.T) {
	p := &lease.Profile{Name: "gpu-07", Peer: "12D3KooWAbCdEf"}
	for name, want := range map[string]bool{
		"gpu-07": true, "gpu-*": true, "gpu-0?": true, "12D3KooWAbCdEf": true, "CdEf": true,
		"gpu": false, "Ef": false, "cpu-*": false, "[": false, "": false,
	} {
		if got := isNode(p, name); got != want {
			t.Errorf("isNode(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestDemanded(t *testing.T) {
	for text, want := range map[string]string{
		"": "map[]", "rack=r1": "map[rack:r1]", "rack=r1&nvlink&zone==z": "map[rack:r1 zone:z]", "name=n1": "map[]",
		"rack=r1|rack=r2": "map[]", "!rack=r1": "map[]", "rack!=r1": "map[]",
	} {
		if got := fmt.Sprint(demanded(text)); got != want {
			t.Errorf("demanded(%q) = %s, want %s", text, got, want)
		}
	}
}

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

// A burst over many hosts: nobody is offered at once more than it has free, and
// everybody has something to do.
func TestBurstDoesNotOverOffer(t *testing.T) {
	s := newStory(t, 0)
	s.do("lead")
	for i := range 200 {
		s.do(fmt.Sprintf("worker n%03d cpus=4", i))
	}
	for i := range 900 {
		s.do(fmt.Sprintf("submit j%d", i))
	}
	used := 0
	for _, w := range s.core.workers {
		claimed, standing := 0, 0
		for _, o := range w.offers {
			if o.standing {
				standing++
			} else {
				claimed += o.claim.need.CPUs
			}
		}
		used += claimed
		if claimed > 4 || standing > standingLimit {
			t.Errorf("%s is offered %d of 4 CPUs, and %d queue there", w.peer, claimed, standing)
		}
	}
	if used != 800 {
		t.Errorf("%d of 800 CPUs are used", used)
	}
}

func TestImageClauses(t *testing.T) {
	bare := &lease.Profile{Worker: true, Drivers: []string{lease.DriverExec}}
	engine := &lease.Profile{Worker: true, Drivers: []string{lease.DriverExec, lease.DriverDocker}, Mounts: []string{"/data"}}
	for _, c := range []struct {
		mounts       []string
		bare, engine string
	}{
		{nil, "no Docker engine", ""},
		{[]string{"/data/set:/in:ro"}, "no Docker engine", ""},
		{[]string{"/etc:/in"}, "no Docker engine", "lets containers see /data"},
	} {
		clauses, err := clausesOf(job.Spec{Image: "busybox", Mounts: c.mounts})
		if err != nil {
			t.Fatal(err)
		}
		for p, want := range map[*lease.Profile]string{bare: c.bare, engine: c.engine} {
			got := ""
			for _, clause := range clauses {
				if why := clause.test(p); why != "" && got == "" {
					got = why
				}
			}
			if got != want {
				t.Errorf("mounts %v on %v: %q, want %q", c.mounts, p.Drivers, got, want)
			}
		}
	}
}

// Requests share their hosts only if no clause tells them apart, however their
// parts run together.
func TestPoolKeysDiffer(t *testing.T) {
	specs := []job.Spec{
		{},
		{Image: "busybox"},
		{Constraint: "x|y"},
		{Constraint: "x", NodeList: []string{"y"}},
		{Constraint: "x", Exclude: []string{"y"}},
		{NodeList: []string{"x", "y"}},
		{NodeList: []string{"x,y"}},
		{NodeList: []string{"x y"}},
		{NodeList: []string{`x" "y`}},
		{NodeList: []string{"x"}, Exclude: []string{"y"}},
		{Image: "busybox", Mounts: []string{"/a:/b"}},
		{Resources: job.Resources{GPUs: 1}},
		{Resources: job.Resources{GPUShare: 0.5}},
		{Resources: job.Resources{GPUs: 1, GPUModel: "a100"}},
		{Resources: job.Resources{GPUs: 1, GPUMemory: 1e9}},
	}
	seen := map[string]job.Spec{}
	for _, s := range specs {
		key := poolKey(s)
		if other, twice := seen[key]; twice {
			t.Errorf("%+v and %+v share one key", s, other)
		}
		seen[key] = s
	}
}

// A request for one host by name is looked for by that name.
func TestClassForOneName(t *testing.T) {
	for _, c := range []struct {
		spec job.Spec
		want string
	}{
		{job.Spec{NodeList: []string{"n7"}}, "label/name=n7"},
		{job.Spec{NodeList: []string{"n7"}, Resources: job.Resources{GPUs: 1, GPUModel: "h100"}}, "label/name=n7"},
		{job.Spec{NodeList: []string{"n*"}}, "worker"},
		{job.Spec{NodeList: []string{"n7", "n8"}}, "worker"},
		{job.Spec{NodeList: []string{"n7", "n8"}, Resources: job.Resources{GPUs: 1, GPUModel: "h100"}}, "gpu/model/h100"},
	} {
		if got := classFor(c.spec); got != c.want {
			t.Errorf("%v is looked for as %s, want %s", c.spec.NodeList, got, c.want)
		}
	}
}
