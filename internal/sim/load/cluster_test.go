package load

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func TestMachinesAreParsed(t *testing.T) {
	all, err := ParseMachines("512x8xH100-80GB,64cpu,512GiB + 2x, 1.5cpus, 1GiB+4xT4,16cpu,64GiB")
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]Machine{
		0:   {Name: "host-00000", CPUs: 64_000, Memory: 512 << 30, GPUs: 8, Model: "H100-80GB", DeviceMemory: 80 << 30},
		511: {Name: "host-00511", CPUs: 64_000, Memory: 512 << 30, GPUs: 8, Model: "H100-80GB", DeviceMemory: 80 << 30},
		512: {Name: "host-00512", CPUs: 1500, Memory: 1 << 30},
		514: {Name: "host-00514", CPUs: 16_000, Memory: 64 << 30, GPUs: 4, Model: "T4", DeviceMemory: DefaultDeviceMemory},
	}
	if len(all) != 515 {
		t.Fatalf("%d machines, want 515", len(all))
	}
	for i, w := range want {
		if !reflect.DeepEqual(all[i], w) {
			t.Errorf("machine %d is %+v, want %+v", i, all[i], w)
		}
	}
	for text, want := range map[string]string{
		"":                           `machines "": "" has 1 parts and not 3; write it like 512x8xH100-80GB,64cpu,512GiB`,
		"8xH100,64cpu":               "has 2 parts and not 3",
		"0x8xH100,64cpu,1GiB":        "want 1 to 200000 machines",
		"1x65xH100,64cpu,1GiB":       "want 1 to 64 GPUs of a machine",
		"999999x8xH100,64cpu,1GiB":   "want 1 to 200000 machines",
		"8x9,64cpu,1GiB":             "is not a number of machines and GPUs",
		"8xH100,64,1GiB":             `"64" is not a number of CPUs, such as 64cpu`,
		"8xH100,9999999cpu,1GiB":     "at most 16777 CPUs",
		"8xH100,64cpu,512":           "a number needs a unit",
		"8xH100,64cpu,9EiB":          "too large",
		"8xH100,64cpu,1EiB":          "at most 1PiB",
		"200000x,1cpu,1B+1x,1cpu,1B": "more than 200000 machines",
	} {
		if _, err := ParseMachines(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// The models of machines and requests are compared like in the scheduler.
func TestModelsMeetLikeInTheScheduler(t *testing.T) {
	for _, c := range []struct {
		machine, request string
		meet             bool
	}{
		{"G2", "G2", true},
		{"G2", "T4|G2", true},
		{"A10", "A100", false},
		{"A100", "A10", false},
		{"H100-80GB", "H100", true},
		{"H100-80GB", "H100-80GB", true},
		{"V100M16", "V100M32|V100M16", true},
		{"V100M16", "V100", false},
	} {
		m := Machine{Model: c.machine, GPUs: 1, DeviceMemory: memoryOf(c.machine)}
		d := gpu.Device{Class: m.Class(), Memory: m.DeviceMemory}
		if got := contract.GPUMeets(d, job.Resources{GPUs: 1, GPUModel: contract.ModelName(c.request)}); got != c.meet {
			t.Errorf("%s for %s: %v, want %v", c.machine, c.request, got, c.meet)
		}
	}
}

func TestMachinesAreLaidOutOnLeaves(t *testing.T) {
	machines, err := ParseMachines("10x8xH100,64cpu,512GiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		leaves, hosts, want, each int
		last                      string
		slot                      int
	}{{0, 0, 1, 32, "leaf0", 9}, {3, 0, 3, 4, "leaf2", 9}, {0, 4, 3, 4, "leaf2", 9}, {16, 32, 1, 32, "leaf0", 9}, {10, 1, 10, 1, "leaf9", 9}} {
		l, err := OnLeaves(machines, c.leaves, c.hosts)
		if err != nil {
			t.Fatal(err)
		}
		m := l.Machines[9]
		if len(l.Names) != c.want || l.Hosts != c.each || l.Names[l.Of[9]] != c.last || m.Labels["leaf"] != c.last || m.Labels["rack"] != c.last || l.Slots()[9] != c.slot {
			t.Errorf("%d leaves of %d hosts: %+v, want those of the case", c.leaves, c.hosts, l)
		}
	}
	if machines[0].Labels != nil {
		t.Error("the given machines have changed")
	}
	refuses := func(leaves, hosts int, want string) {
		t.Helper()
		if _, err := OnLeaves(machines, leaves, hosts); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refuses(2, 4, "10 machines are on 3 leaves; the network has 2")
	for i := range machines {
		machines[i].Labels = map[string]string{"rack": "r" + string(rune('a'+i%3))}
	}
	l, err := OnLeaves(machines, 0, 0)
	if err != nil || !slices.Equal(l.Names, []string{"ra", "rb", "rc"}) || l.Hosts != 4 || !slices.Equal(l.Slots(), []int{0, 4, 8, 1, 5, 9, 2, 6, 10, 3}) ||
		l.Machines[1].Labels["leaf"] != "rb" {
		t.Errorf("got %+v, %v, want the leaves ra, rb and rc of 4 hosts each", l, err)
	}
	refuses(3, 3, "machine host-00009: rack ra has more machines than the 3 hosts of a leaf")
	machines[9].Labels["leaf"] = "l9"
	refuses(0, 0, `machine host-00000: it has no label "leaf", and others have; name the leaf of each machine, or of none`)
}

func TestOfferedLoadOfJobs(t *testing.T) {
	jobs, _ := readJobs(t, strings.TrimSpace(jobHeader)+",tasks,nodes\n"+`a,100,10,8,1000,1000,0,,,,,
b,150,20,1,500,2000,0,,,,3,
c,200,30,4,1000,4000,0,,,,,2
`, Options{Cluster: four(t)})
	l := Load{Machines: four(t), Jobs: jobs} // 18 GPUs
	want := (10.0*8 + 3*20*0.5 + 30*4) / (18 * 100)
	if got := l.Offered(); math.Abs(got-want) > 1e-12 {
		t.Errorf("the offered load is %v, want %v", got, want)
	}
	if err := l.ScaleTo(2 * want); err != nil {
		t.Fatal(err)
	}
	if at := []time.Duration{l.Jobs[0].Submit, l.Jobs[1].Submit, l.Jobs[2].Submit}; !reflect.DeepEqual(at, []time.Duration{100 * time.Second, 125 * time.Second, 150 * time.Second}) {
		t.Errorf("submitted at %v, want %v", at, []time.Duration{100 * time.Second, 125 * time.Second, 150 * time.Second})
	}
	cpus := Load{Machines: []Machine{{Name: "a", CPUs: 7000}}, Jobs: jobs}
	if got, want := cpus.Offered(), (10.0*1+3*20*2+30*4)/(7*50); math.Abs(got-want) > 1e-12 {
		t.Errorf("the offered load of CPUs is %v, want %v", got, want)
	}
	for want, l := range map[string]Load{
		"want more than 0":           {Machines: l.Machines, Jobs: jobs},
		"submitted at the same time": {Machines: l.Machines, Jobs: jobs[:1]},
		"neither GPUs nor CPUs":      {Jobs: jobs},
		"ask for no GPU time":        {Machines: l.Machines, Jobs: []Job{{}, {Submit: 1}}},
		"ask for no CPU time":        {Machines: cpus.Machines, Jobs: []Job{{}, {Submit: 1}}},
		"after more than 36500 days": {Machines: []Machine{{GPUs: 1}}, Jobs: []Job{{}, {Submit: 1, Runs: 100_000 * time.Hour, Spec: job.Spec{Nodes: 512, Resources: job.Resources{GPUs: 1024}}}}},
	} {
		offered := 0.5
		if strings.HasPrefix(want, "want") {
			offered = math.NaN()
		}
		if err := l.ScaleTo(offered); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for text, want := range map[string]float64{"0.8": 0.8, "80%": 0.8, "2": 2, "0": -1, "x": -1, "101": -1, "-1": -1} {
		got, err := ParseOffered(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}
