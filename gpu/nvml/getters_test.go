//go:build cgo && !nonvml

package nvml

// Each call of the library that the driver makes is tried with each error: no device is dropped, no value is invented,
// and nothing panics.

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/musterhq/muster/gpu"
)

// everyReturn are the errors of the library.
var everyReturn = func() []nvml.Return {
	var all []nvml.Return
	for ret := nvml.ERROR_UNINITIALIZED; ret <= nvml.ERROR_INVALID_STATE; ret++ {
		all = append(all, ret)
	}
	return append(all, nvml.ERROR_UNKNOWN, 12345)
}()

// TestEachErrorOfTheLibraryIsTried checks that the list has no gap that matters.
func TestEachErrorOfTheLibraryIsTried(t *testing.T) {
	for _, ret := range slices.Concat(absent, lost, []nvml.Return{nvml.ERROR_TIMEOUT, nvml.ERROR_UNKNOWN, nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT}) {
		if !slices.Contains(everyReturn, ret) {
			t.Errorf("the error %s is not tried", ret)
		}
	}
}

// splitMachine returns a machine with MIG: GPU-1 has an instance without a name of its own, and GPU-2 has one with a
// name.
func splitMachine() (m *machine, unnamed *mock.Device) {
	m = newMachine()
	unnamed = instance(1, 0, "NVIDIA A100-SXM4-40GB", 19968*mib)
	m.splitCard(1, unnamed, nil)
	m.splitCard(2, instance(2, 0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib))
	return m, unnamed
}

// getter makes a call fail. needed says that its card cannot be listed without the value.
type getter struct {
	fail   func(m *machine, dev *dgxa100.Device, inst *mock.Device, ret nvml.Return)
	needed bool
	// absentIsFine says that a device may lack the value. If the device has it, it is needed.
	absentIsFine bool
	of           int // the card: 0, or 1 for what is read of split cards only
}

var listGetters = map[string]getter{
	"handle": {fail: func(m *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		was := m.DeviceGetHandleByIndexFunc
		m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == dev.Index {
				return nil, ret
			}
			return was(i)
		}
	}, needed: true},
	"uuid": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetUUIDFunc = func() (string, nvml.Return) { return "", ret }
	}, needed: true},
	"name": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetNameFunc = func() (string, nvml.Return) { return "", ret }
	}, needed: true},
	"memory": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, ret }
		dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, ret }
	}, needed: true, absentIsFine: true},
	"newer memory alone": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, ret }
	}, needed: true, absentIsFine: true},
	"minor number": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMinorNumberFunc = func() (int, nvml.Return) { return 0, ret }
	}, needed: true, absentIsFine: true},
	"mig mode": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, ret }
	}, needed: true, absentIsFine: true},
	"compute capability": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 0, 0, ret }
	}},
	"pci": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, ret }
	}},
	"memory affinity": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return []uint{0}, ret }
	}},
	"state of an nvlink": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, ret }
	}},
	"other end of an nvlink": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) { return 0, ret }
	}},
	"common ancestor": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) { return 0, ret }
	}},
	"driver version": {fail: func(m *machine, _ *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		m.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "", ret }
	}},
	"event set": {fail: func(m *machine, _ *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, ret }
	}},
	"types of events": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, ret }
	}},
	"registration for events": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return ret }
	}},
	"most instances": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		dev.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, ret }
	}, needed: true, of: 1},
	"uuid of an instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetUUIDFunc = func() (string, nvml.Return) { return "", ret }
	}, needed: true, of: 1},
	"memory of an instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, ret }
		inst.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, ret }
	}, needed: true, of: 1},
	"name of an instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetNameFunc = func() (string, nvml.Return) { return "", ret }
	}, needed: true, absentIsFine: true, of: 1},
	"profile of an instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) { return nvml.DeviceAttributes{}, ret }
	}, needed: true, of: 1},
	"gpu instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 0, ret }
	}, needed: true, of: 1},
	"compute instance": {fail: func(_ *machine, _ *dgxa100.Device, inst *mock.Device, ret nvml.Return) {
		inst.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, ret }
	}, needed: true, of: 1},
	"handle of an instance": {fail: func(_ *machine, dev *dgxa100.Device, _ *mock.Device, ret nvml.Return) {
		if ret == nvml.ERROR_NOT_FOUND { // there is none
			ret = nvml.ERROR_UNKNOWN
		}
		dev.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, ret }
	}, needed: true, of: 1},
}

// eventful returns a collector that wants events.
func eventful(m *machine) *collector {
	c := m.collector()
	c.events.wait = func(nvml.EventSet, map[nvml.Device]gpu.Device) {}
	return c
}

// A listed card stays as it was, whatever fails later, unless the library says that the card lacks something.
func TestListedCardSurvivesEachFailure(t *testing.T) {
	for name, g := range listGetters {
		for _, ret := range everyReturn {
			m, inst := splitMachine()
			c := eventful(m)
			before, notes, err := c.list()
			if err != nil || len(notes) > 0 {
				t.Fatalf("got %v, %v, want no error and none", notes, err)
			}
			g.fail(m, m.devices[g.of], inst, ret)
			after, notes, err := c.list()
			if err != nil || len(after) != len(before) {
				t.Errorf("%s fails with %s: %d of %d devices are left, %v, want all", name, ret, len(after), len(before), err)
				continue
			}
			missing := slices.Contains(absent, ret)
			if wantNote := g.needed && (!g.absentIsFine || !missing); wantNote != (len(notes) == 1) {
				t.Errorf("%s fails with %s: notes %q, want one exactly for a value that is needed", name, ret, notes)
			}
			for i, d := range after {
				if d.UUID != before[i].UUID || d.Class != before[i].Class && !missing || d.Memory == 0 && !missing {
					t.Errorf("%s fails with %s: %+v, want the values of %+v", name, ret, d, before[i])
				}
				// INVALID_ARGUMENT of a link means that there are no more links.
				if !missing && ret != nvml.ERROR_INVALID_ARGUMENT && !reflect.DeepEqual(d, before[i]) {
					t.Errorf("%s fails with %s: %+v, want %+v as before", name, ret, d, before[i])
				}
			}
		}
	}
}

// A card that was never listed is left out with a note, or is listed without the value. It is never listed as something
// else, and the other cards are listed as usual.
func TestNewCardIsNeverListedAsSomethingElse(t *testing.T) {
	m, _ := splitMachine()
	sound, _, err := m.collector().list()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]gpu.Device{}
	for _, d := range sound {
		known[d.UUID] = d
	}
	for name, g := range listGetters {
		for _, ret := range everyReturn {
			m, inst := splitMachine()
			g.fail(m, m.devices[g.of], inst, ret)
			got, notes, err := eventful(m).list()
			if err != nil {
				t.Errorf("%s fails with %s: %v", name, ret, err)
				continue
			}
			missing := slices.Contains(absent, ret)
			want := len(sound)
			if g.needed && (!g.absentIsFine || !missing) {
				want--
			}
			if len(got) != want || len(notes) != len(sound)-want {
				t.Errorf("%s fails with %s: %d devices, want %d, notes %q", name, ret, len(got), want, notes)
			}
			for _, d := range got {
				was, there := known[d.UUID]
				if !there || d.Parent != was.Parent {
					t.Errorf("%s fails with %s: the device %+v is invented", name, ret, d)
				}
				if d.Memory != 0 && d.Memory != was.Memory || d.Nodes != nil && len(d.Nodes) != len(was.Nodes) || d.Nodes == nil && !missing {
					t.Errorf("%s fails with %s: %+v, want %+v", name, ret, d, was)
				}
			}
		}
	}
}

// statusGetters are the calls for values that health does not depend on. The others are spoilers.
var statusGetters = map[string]func(dev *dgxa100.Device, ret nvml.Return){
	"utilization": func(dev *dgxa100.Device, ret nvml.Return) {
		dev.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 77}, ret }
	},
	"temperature": func(dev *dgxa100.Device, ret nvml.Return) {
		dev.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 77, ret }
	},
	"power": func(dev *dgxa100.Device, ret nvml.Return) {
		dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 77, ret }
	},
}

// A status never has a number that was not read.
func TestStatusHasNoInventedNumbers(t *testing.T) {
	all := maps.Clone(spoilers)
	for name, fail := range statusGetters {
		all[name] = func(m *machine, ret nvml.Return) { fail(m.devices[0], ret) }
	}
	for name, fail := range all {
		for _, ret := range everyReturn {
			m := newMachine()
			c := m.collector()
			if _, _, err := c.list(); err != nil {
				t.Fatal(err)
			}
			fail(m, ret)
			statuses, err := c.status()
			if err != nil || len(statuses) != 8 {
				t.Errorf("%s fails with %s: %d statuses, %v, want no error and 8", name, ret, len(statuses), err)
				continue
			}
			s := statuses[0]
			if s.Utilization == 77 || s.Temperature == 77 || s.PowerMilli == 77 {
				t.Errorf("%s fails with %s: a number that was not read: %+v", name, ret, s)
			}
			if dead := slices.Contains(lost, ret); dead != (s.Health == gpu.Unhealthy) || dead && !strings.Contains(s.Detail, ret.Error()) {
				t.Errorf("%s fails with %s: %s, %q, want unhealthy with the error exactly if the card is lost", name, ret, s.Health, s.Detail)
			}
			if s.Health == gpu.Unknown && !reflect.DeepEqual(s, gpu.NotKnown(s.UUID, s.Detail)) {
				t.Errorf("%s fails with %s: unknown health, but numbers: %+v", name, ret, s)
			}
			for _, other := range statuses[1:] {
				if other.Health != gpu.Healthy {
					t.Errorf("%s of a card fails with %s: another one is %s, want %v", name, ret, other.Health, gpu.Healthy)
				}
			}
		}
	}
}
