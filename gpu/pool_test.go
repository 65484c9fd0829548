package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

const gib = job.Size(1) << 30

// host returns n devices of one model. kind returns the link of each pair.
func host(prefix, model string, memory job.Size, n int, kind func(i, j int) LinkKind) []Device {
	all := make([]Device, n)
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	for i := range all {
		all[i] = Device{UUID: name(i), Index: i, Model: model, Class: Class(model, memory), Memory: memory}
		for j := range n {
			if i == j {
				continue
			}
			l := Link{To: name(j), Kind: kind(i, j)}
			if l.Kind == LinkNVLink {
				l.NVLinks = 18
			}
			all[i].Links = append(all[i].Links, l)
		}
	}
	return all
}

func allNVLink(int, int) LinkKind { return LinkNVLink }

// twoIslands is a host with two NVLink islands of four devices, each on its own socket.
func twoIslands(i, j int) LinkKind {
	if i/4 == j/4 {
		return LinkNVLink
	}
	return LinkSystem
}

// oneSocket is four devices behind two PCIe switches of one socket.
func oneSocket(i, j int) LinkKind {
	if i/2 == j/2 {
		return LinkSwitch
	}
	return LinkBridge
}

// twoSockets is eight devices, two behind each switch, four on each socket.
func twoSockets(i, j int) LinkKind {
	switch {
	case i/2 == j/2:
		return LinkSwitch
	case i/4 == j/4:
		return LinkNUMA
	}
	return LinkSystem
}

// chainOrBridge is three devices in an NVLink chain whose ends are far from each other, and three behind one host
// bridge.
func chainOrBridge(i, j int) LinkKind {
	switch {
	case i/3 != j/3, min(i, j) == 0 && max(i, j) == 2:
		return LinkSystem
	case i/3 == 0:
		return LinkNVLink
	}
	return LinkBridge
}

func dgx() []Device { return host("h", "NVIDIA H100 80GB HBM3", 81559*mib, 8, allNVLink) }

func mustPool(t interface{ Fatal(...any) }, devices []Device) *Pool {
	p, err := NewPool(devices)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gpus(n int) job.Resources { return job.Resources{GPUs: n} }

func TestChooseTakesTheBestLinkedDevices(t *testing.T) {
	v100 := func(i, j int) LinkKind { // two rings of a cube: some pairs have no direct link
		if i/4 == j/4 || i%4 == j%4 {
			return LinkNVLink
		}
		return LinkSystem
	}
	mixed := append(host("h", "NVIDIA H100 80GB HBM3", 80*gib, 4, allNVLink), host("t", "Tesla T4", 15*gib, 2, oneSocket)...)
	a100 := host("a", "NVIDIA A100-SXM4-40GB", 40*gib, 8, allNVLink)
	unlinked := append(host("a", "A2", 16*gib, 1, nil), host("b", "A40", 45*gib, 2, oneSocket)...)
	for i := range unlinked {
		unlinked[i].Links = nil
	}
	for _, c := range []struct {
		name    string
		devices []Device
		held    string
		need    job.Resources
		want    string // "" if nothing can be chosen
	}{
		{"dgx, any two", dgx(), "", gpus(2), "h-0 h-1"},
		{"dgx, all", dgx(), "", gpus(8), "h-0 h-1 h-2 h-3 h-4 h-5 h-6 h-7"},
		{"dgx, one is held", dgx(), "h-3", gpus(8), ""},
		{"dgx a100, around the held", a100, "a-0 a-2", gpus(3), "a-1 a-3 a-4"},
		{"islands: use up the one that is partly taken", host("h", "H100", 80*gib, 8, twoIslands), "h-4 h-5", gpus(2), "h-6 h-7"},
		{"islands: a single one leaves a free island whole", host("h", "H100", 80*gib, 8, twoIslands), "h-5", gpus(1), "h-4"},
		{"islands: four need a whole one", host("h", "H100", 80*gib, 8, twoIslands), "h-2", gpus(4), "h-4 h-5 h-6 h-7"},
		{"islands: two are on the same one", host("h", "H100", 80*gib, 8, twoIslands), "h-0 h-1 h-2 h-4 h-5", gpus(2), "h-6 h-7"},
		{"cube: four in a ring", host("v", "Tesla V100-SXM2-16GB", 16*gib, 8, v100), "v-1", gpus(4), "v-4 v-5 v-6 v-7"},
		{"four cards: a pair on one switch", host("t", "Tesla T4", 15*gib, 4, oneSocket), "t-1", gpus(2), "t-2 t-3"},
		{"four cards: a single one whose neighbour is taken", host("t", "Tesla T4", 15*gib, 4, oneSocket), "t-2", gpus(1), "t-3"},
		{"four cards: three", host("t", "Tesla T4", 15*gib, 4, oneSocket), "t-0", gpus(3), "t-1 t-2 t-3"},
		{"two sockets: four on one", host("l", "NVIDIA L40S", 45*gib, 8, twoSockets), "l-0", gpus(4), "l-4 l-5 l-6 l-7"},
		{"two sockets: two on one switch", host("l", "NVIDIA L40S", 45*gib, 8, twoSockets), "l-0 l-3 l-4 l-6", gpus(2), "l-1 l-2"},
		{"two sockets: a free pair, not half of another", host("l", "NVIDIA L40S", 45*gib, 8, twoSockets), "l-0", gpus(2), "l-2 l-3"},
		{"mixed: a single one is the small", mixed, "", gpus(1), "t-0"},
		{"mixed: a single one of enough memory", mixed, "", job.Resources{GPUs: 1, GPUMemory: 40 * gib}, "h-0"},
		{"mixed: by model", mixed, "", job.Resources{GPUs: 2, GPUModel: "T4"}, "t-0 t-1"},
		{"mixed: two are of one kind", mixed, "h-0 h-1 h-2", gpus(2), "t-0 t-1"},
		{"mixed: too many of a model", mixed, "", job.Resources{GPUs: 3, GPUModel: "T4"}, ""},
		{"the longest distance of a set decides", host("h", "H100", 80*gib, 6, chainOrBridge), "", gpus(3), "h-3 h-4 h-5"},
		{"unlinked: two are of one kind", unlinked, "", gpus(2), "b-0 b-1"},
		{"none asked", dgx(), "", job.Resources{CPUs: 4}, ""},
	} {
		p := mustPool(t, c.devices)
		if err := p.Hold("held", strings.Fields(c.held), Whole, 0); err != nil {
			t.Fatal(err)
		}
		got, ok := p.Choose(c.need)
		if strings.Join(got, " ") != c.want || ok != (c.want != "" || Milli(c.need) == 0) {
			t.Errorf("%s: %v %v, want %s", c.name, got, ok, c.want)
		}
	}
}

func TestManyChosenDevicesAreWellLinked(t *testing.T) {
	quads := func(i, j int) LinkKind {
		if i/8 == j/8 {
			return LinkNVLink
		}
		return LinkNUMA
	}
	p := mustPool(t, host("x", "H100", 80*gib, 64, quads))
	if err := p.Hold("a", []string{"x-0", "x-9", "x-10"}, Whole, 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := p.Choose(gpus(8)); !slices.Equal(got, []string{"x-16", "x-17", "x-18", "x-19", "x-20", "x-21", "x-22", "x-23"}) {
		t.Errorf("chose %v, want %v", got, []string{"x-16", "x-17", "x-18", "x-19", "x-20", "x-21", "x-22", "x-23"})
	}
}

func TestSharesFillDevices(t *testing.T) {
	devices := append(host("h", "H100", 80*gib, 2, allNVLink), host("t", "Tesla T4", 15*gib, 2, oneSocket)...)
	p := mustPool(t, devices)
	share := func(s float64, memory job.Size) job.Resources { return job.Resources{GPUShare: s, GPUMemory: memory} }
	take := func(key string, need job.Resources, want string) {
		t.Helper()
		got, ok := p.Choose(need)
		if strings.Join(got, " ") != want || ok != (want != "") {
			t.Fatalf("%s: chose %v, want %s", key, got, want)
		}
		if ok {
			if err := p.Hold(key, got, Milli(need), need.GPUMemory); err != nil {
				t.Fatal(err)
			}
		}
	}
	take("a", share(0.5, 0), "t-0")        // the smallest device
	take("b", share(0.25, 0), "t-0")       // already shared
	take("c", share(0.5, 0), "t-1")        // does not fit beside a and b
	take("d", share(0.1, 10*gib), "h-0")   // needs the memory
	take("e", share(0.1, 60*gib), "h-0")   // fits beside d
	take("f", share(0.25, 1*gib), "t-0")   // takes the rest of the device
	take("g", share(0.1, 20*gib), "h-1")   // d and e leave 10 GiB
	take("h", share(0.5, 100*gib), "")     // no such device
	take("i", gpus(1), "")                 // all are shared
	take("j", share(0.999, 1*gib), "")     // nothing of that size is left
	take("k", share(0.3334, 4*gib), "t-1") // best fit
	p.Release("d")
	p.Release("e")
	take("l", gpus(1), "h-0")
	if h := p.Holders("t-0"); len(h) != 3 || h[0] != (Held{Key: "a", Milli: 500, Memory: 15 * gib / 1000 * 500}) {
		t.Errorf("holders of t-0: %v, want 3 of them and [0] %v", h, (Held{Key: "a", Milli: 500, Memory: 15 * gib / 1000 * 500}))
	}
}

func TestForeignMemoryIsNotChosen(t *testing.T) {
	p := mustPool(t, dgx())
	p.Foreign("h-0", 10*mib) // as much as a screen needs
	p.Foreign("h-1", 20*gib)
	if got, _ := p.Choose(gpus(8)); got != nil {
		t.Errorf("chose %v though a program uses one", got)
	}
	if got, ok := p.Choose(gpus(7)); !ok || slices.Contains(got, "h-1") {
		t.Errorf("chose %v, want 7 without h-1", got)
	}
	if got, _ := p.Choose(job.Resources{GPUShare: 0.5}); !slices.Equal(got, []string{"h-1"}) {
		t.Errorf("a share went to %v, not to the device that is partly in use, want %v", got, []string{"h-1"})
	}
	if f := p.Free(); len(f) != 8 || f[1].Milli >= Whole || f[1].Memory != 81559*mib-20*gib || f[0].Milli != Whole {
		t.Errorf("free: %v, want all 8 and less memory of h-1", f)
	}
	p.Foreign("h-1", 0)
	if _, ok := p.Choose(gpus(8)); !ok {
		t.Error("the program has ended, but the device cannot be chosen")
	}
}

func TestDeviceInQuarantineIsNotChosen(t *testing.T) {
	p := mustPool(t, dgx())
	p.Quarantine("h-2", "Xid 79")
	if _, ok := p.Choose(gpus(8)); ok {
		t.Error("chose a device in quarantine")
	}
	if err := p.Hold("a", []string{"h-0", "h-1"}, Whole, 0); err != nil {
		t.Fatal(err)
	}
	if ok, why := p.CouldEver(gpus(8)); !ok {
		t.Errorf("CouldEver is false for a device in quarantine: %s", why)
	}
	if ok, why := p.CouldEver(job.Resources{GPUs: 9}); ok || why != "8 of 8 GPUs fit, 9 wanted" {
		t.Errorf("%v: %s, want false and \"8 of 8 GPUs fit, 9 wanted\"", ok, why)
	}
	if ok, why := p.CouldEver(job.Resources{GPUs: 1, GPUModel: "A100"}); ok || !strings.Contains(why, "8 is h100-80gb, not A100") {
		t.Errorf("%v: %s, want false and the model", ok, why)
	}
	if ok, why := p.CouldEver(job.Resources{GPUs: 1, GPUMemory: 90 * gib}); ok || !strings.Contains(why, "less than 90GiB") {
		t.Errorf("%v: %s, want false and the memory", ok, why)
	}
	p.EndQuarantine("h-2")
	p.Release("a")
	if _, ok := p.Choose(gpus(8)); !ok {
		t.Error("the device cannot be chosen after its quarantine")
	}
}

func TestMIGInstanceIsNeverAWholeGPU(t *testing.T) {
	var devices []Device
	for i := range 3 {
		devices = append(devices, Device{UUID: fmt.Sprintf("MIG-%d", i), Model: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", Class: "h100-80gb-mig-1g.10gb", Memory: 10 * gib, Parent: "GPU-x"})
	}
	p := mustPool(t, devices)
	if got, _ := p.Choose(gpus(1)); !slices.Equal(got, []string{"MIG-0"}) {
		t.Errorf("chose %v, want %v", got, []string{"MIG-0"})
	}
	if ok, why := p.CouldEver(gpus(2)); ok || !strings.Contains(why, "MIG") {
		t.Errorf("one task may get two instances: %v %s", ok, why)
	}
	if ok, _ := p.CouldEver(job.Resources{GPUs: 1, GPUModel: "H100"}); ok {
		t.Error("an instance counts as a whole H100")
	}
	p.Quarantine("GPU-x", "Xid 79")
	if p.Quarantined("MIG-2") == "" || len(p.Free()) != 0 {
		t.Error("an instance of a GPU in quarantine was chosen")
	}
}

func TestHoldIsAllOrNone(t *testing.T) {
	p := mustPool(t, dgx())
	if err := p.Hold("a", []string{"h-0"}, 600, 0); err != nil {
		t.Fatal(err)
	}
	before := p.Free()
	for name, c := range map[string]struct {
		key    string
		uuids  []string
		milli  int
		memory job.Size
		want   error
	}{
		"twice":      {"a", []string{"h-1"}, Whole, 0, ErrHolds},
		"taken":      {"b", []string{"h-1", "h-0"}, Whole, 0, ErrTaken},
		"too much":   {"b", []string{"h-1", "h-0"}, 401, gib, ErrTaken},
		"memory":     {"b", []string{"h-1", "h-0"}, 400, 70 * gib, ErrTaken},
		"unknown":    {"b", []string{"h-1", "h-9"}, Whole, 0, ErrNoDevice},
		"same twice": {"b", []string{"h-1", "h-1"}, 100, 0, ErrTaken},
	} {
		if err := p.Hold(c.key, c.uuids, c.milli, c.memory); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := p.Hold("b", []string{"h-1"}, 0, 0); err == nil {
		t.Error("a hold of zero thousandths was accepted")
	}
	if err := p.Adopt("b", []string{"h-0"}, Whole, 0); !errors.Is(err, ErrTaken) {
		t.Errorf("adopted a device that is taken: %v, want ErrTaken", err)
	}
	if !slices.Equal(p.Free(), before) {
		t.Error("a refused Hold changed the pool")
	}
	if _, err := NewPool(append(dgx(), dgx()[0])); err == nil {
		t.Error("a pool with a device twice was accepted")
	}
}

// TestAdoptedDeviceIsNotChosen has a task that still holds a device after a restart, while the driver does not list the
// device yet.
func TestAdoptedDeviceIsNotChosen(t *testing.T) {
	p := mustPool(t, nil)
	if err := p.Hold("a", []string{"h-0"}, Whole, 0); !errors.Is(err, ErrNoDevice) {
		t.Fatalf("hold of a device that is not listed: %v, want ErrNoDevice", err)
	}
	if err := p.Adopt("a", []string{"h-0"}, Whole, 0); err != nil {
		t.Fatal(err)
	}
	if len(p.Devices()) != 0 || len(p.Free()) != 0 {
		t.Fatal("an adopted device counts as listed")
	}
	if err := p.Update(dgx()); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Choose(gpus(8)); ok {
		t.Fatal("chose a device that a task holds")
	}
	if err := p.Update(dgx()[4:]); err != nil { // h-0 is no longer listed
		t.Fatal(err)
	}
	if got := p.Of("a"); !slices.Equal(got, []string{"h-0"}) || len(p.Devices()) != 4 {
		t.Fatalf("a holds %v of %d devices, want %v and 4", got, len(p.Devices()), []string{"h-0"})
	}
	p.Release("a")
	p.Release("a")
	if len(p.Free()) != 4 || len(p.Holders("h-0")) != 0 {
		t.Error("a device that is no longer listed is still in the pool")
	}
	if got, ok := p.Choose(gpus(4)); !ok || !slices.Equal(got, []string{"h-4", "h-5", "h-6", "h-7"}) {
		t.Errorf("chose %v, want h-4 to h-7", got)
	}
}

// TestGreedySearchIsAsGoodAsTheExactOne compares the greedy search with the exact one, on hosts for which both are possible.
func TestGreedySearchIsAsGoodAsTheExactOne(t *testing.T) {
	for name, kind := range map[string]func(int, int) LinkKind{"all": allNVLink, "islands": twoIslands, "sockets": twoSockets} {
		p := mustPool(t, host("h", "H100", 80*gib, 8, kind))
		if err := p.Hold("x", []string{"h-1"}, Whole, 0); err != nil {
			t.Fatal(err)
		}
		for n := 2; n <= 6; n++ {
			free := p.whole()
			exact := search{p: p, fit: free, n: n, worth: p.linkValues(free)}
			exact.exact(set{}, 0)
			greedy := search{p: p, fit: free, n: n, worth: p.linkValues(free)}
			greedy.greedy()
			if greedy.best.worst != exact.best.worst {
				t.Errorf("%s, %d devices: greedy %v (%d), want as good as the exact %v (%d)", name, n, greedy.best.slots, greedy.best.worst, exact.best.slots, exact.best.worst)
			}
		}
	}
}

func BenchmarkChooseEightOfSixteen(b *testing.B) {
	p := mustPool(b, host("h", "H100", 80*gib, 16, twoSockets))
	for b.Loop() {
		if _, ok := p.Choose(gpus(8)); !ok {
			b.Fatal("nothing, want a choice")
		}
	}
}

func BenchmarkChooseTwoOfEight(b *testing.B) {
	p := mustPool(b, dgx())
	for b.Loop() {
		if _, ok := p.Choose(gpus(2)); !ok {
			b.Fatal("nothing, want a choice")
		}
	}
}
