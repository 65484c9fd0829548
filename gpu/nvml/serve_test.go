//go:build cgo && !nonvml

package nvml

// The child's side with the mocked library.

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
	"github.com/musterhq/muster/gpu/nvidia"
	"github.com/musterhq/muster/job"
)

func (m *machine) collector() *collector {
	return &collector{library: library{lib: m, symbols: map[string]bool{}}, kernel: nvidia.NewKernel("nothing")}
}

func mustCollect(t *testing.T, c *collector) ([]gpu.Device, []gpu.Status) {
	t.Helper()
	devices, notes, err := c.list()
	if err != nil || len(notes) > 0 {
		t.Fatalf("list: %v, %v, want no error and none", notes, err)
	}
	statuses, err := c.status()
	if err != nil || len(statuses) != len(devices) {
		t.Fatalf("%d statuses of %d devices, %v, want as many and no error", len(statuses), len(devices), err)
	}
	return devices, statuses
}

func TestDevicesAndTheirStatusAreCollected(t *testing.T) {
	devices, statuses := mustCollect(t, newMachine().collector())
	if len(devices) != 8 {
		t.Fatalf("%d devices, want 8", len(devices))
	}
	d := devices[5]
	d.Links = nil
	want := gpu.Device{
		UUID: "GPU-5", Index: 5, Model: "Mock NVIDIA A100-SXM4-40GB", Class: "a100-40gb", Memory: job.Size(40960 * mib),
		Compute: "8.0", Driver: "550.54.15", PCI: "00000000:06:00.0", NUMA: 1,
	}
	if d.UUID != want.UUID || d.Index != want.Index || d.Model != want.Model || d.Class != want.Class || d.Memory != want.Memory ||
		d.Compute != want.Compute || d.Driver != want.Driver || d.PCI != want.PCI || d.NUMA != want.NUMA || d.Parent != "" || d.Simulated {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}
	for _, l := range devices[0].Links {
		if l.Kind != gpu.LinkNVLink || l.NVLinks != 12 {
			t.Errorf("a link of a host with switches: %+v, want Kind %v and NVLinks 12", l, gpu.LinkNVLink)
		}
	}
	s := statuses[5]
	if s.UUID != "GPU-5" || s.MemoryUsed != job.Size(10*mib) || s.Utilization != 3 || s.Temperature != 31 || s.PowerMilli != 52_000 || s.Health != gpu.Healthy || len(s.Processes) != 0 {
		t.Errorf("status %+v, want the values of the mock", s)
	}
}

// TestCollectWithoutOptionalFeatures checks that devices are listed with a very old library, or with hardware that
// supports nothing.
func TestCollectWithoutOptionalFeatures(t *testing.T) {
	m := newMachine()
	m.lack("*")
	for _, d := range m.devices {
		d.GetMemoryInfo_v2Func, d.GetMemoryAffinityFunc, d.GetNvLinkStateFunc, d.GetTopologyCommonAncestorFunc = nil, nil, nil, nil
		d.GetRemappedRowsFunc, d.GetRetiredPagesPendingStatusFunc, d.GetMPSComputeRunningProcessesFunc, d.GetMigModeFunc = nil, nil, nil, nil
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	}
	devices, statuses := mustCollect(t, m.collector())
	if devices[0].NUMA != -1 || devices[0].Links[0].Kind != gpu.LinkSystem {
		t.Errorf("device %+v, want NUMA -1 and Links[0].Kind %v", devices[0], gpu.LinkSystem)
	}
	if s := statuses[0]; s.Health != gpu.Healthy || s.Utilization != -1 || s.MemoryUsed != job.Size(600*mib) {
		t.Errorf("status %+v, want Health %v, Utilization -1 and MemoryUsed %v", s, gpu.Healthy, job.Size(600*mib))
	}
	m.EventSetCreateFunc = nil // panics
	c := m.collector()
	c.events.wait = func(nvml.EventSet, map[nvml.Device]gpu.Device) { t.Error("events of a library that has none") }
	mustCollect(t, c)
}

func TestNUMANodesOfDevices(t *testing.T) {
	for want, set := range map[int][]uint{0: {1, 0}, 3: {8, 0}, 65: {0, 2}, -1: {1, 1}} {
		m := newMachine()
		m.devices[0].GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return set, nvml.SUCCESS }
		if got, _ := m.collector().numa(m.devices[0]); got != want {
			t.Errorf("NUMA node of %b: %d, want %d", set, got, want)
		}
	}
	m := newMachine()
	m.devices[0].GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return []uint{6}, nvml.SUCCESS }
	if got, _ := m.collector().numa(m.devices[0]); got != -1 {
		t.Errorf("a card near two nodes: NUMA node %d, want -1", got)
	}
}

func TestLinksFollowThePCIeTopology(t *testing.T) {
	m := newMachine()
	for _, d := range m.devices {
		d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	}
	devices, _ := mustCollect(t, m.collector())
	var kinds []gpu.LinkKind
	for _, l := range devices[1].Links {
		kinds = append(kinds, l.Kind)
	}
	want := []gpu.LinkKind{gpu.LinkSwitch, gpu.LinkNUMA, gpu.LinkNUMA, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem}
	if !slices.Equal(kinds, want) {
		t.Errorf("links of device 1: %v, want %v", kinds, want)
	}
}

// TestDirectNVLinksAreReported has pairs of cards that NVLink bridges join. The library does not always report the kind
// of the other end.
func TestDirectNVLinksAreReported(t *testing.T) {
	m := newMachine()
	for _, d := range m.devices {
		d.GetNvLinkStateFunc = func(l int) (nvml.EnableState, nvml.Return) {
			if l < 4 {
				return nvml.FEATURE_ENABLED, nvml.SUCCESS
			}
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		d.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) { return pciOf(busOf(d.Index ^ 1)), nvml.SUCCESS }
	}
	devices, _ := mustCollect(t, m.collector())
	for i, d := range devices {
		for _, l := range d.Links {
			if bridged := l.To == devices[i^1].UUID; bridged != (l.Kind == gpu.LinkNVLink) || bridged != (l.NVLinks == 4) {
				t.Errorf("%s to %s: %+v, want 4 NVLinks exactly between the pair", d.UUID, l.To, l)
			}
		}
	}
}

func TestMIGInstancesAreListed(t *testing.T) {
	m := newMachine()
	m.splitCard(1, instance(1, 0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib), nil, instance(1, 2, "NVIDIA A100-SXM4-40GB", 19968*mib))
	m.splitCard(2) // in MIG mode without instances
	devices, statuses := mustCollect(t, m.collector())
	if len(devices) != 8 {
		t.Fatalf("%d devices, want 8", len(devices))
	}
	one, three := devices[1], devices[2]
	if one.UUID != "MIG-1-0" || one.Parent != "GPU-1" || one.Class != "a100-40gb-mig-1g.5gb" || one.Memory != job.Size(4864*mib) || one.Index != 1 {
		t.Errorf("instance %+v, want MIG-1-0 of GPU-1", one)
	}
	if three.UUID != "MIG-1-2" || three.Class != "a100-40gb-mig-3g.20gb" {
		t.Errorf(`an instance that the library does not name: %+v, want UUID "MIG-1-2" and Class "a100-40gb-mig-3g.20gb"`, three)
	}
	for _, l := range one.Links {
		switch {
		case l.Kind == gpu.LinkNVLink, l.To == three.UUID && l.Kind != gpu.LinkBoard, l.To == "GPU-0" && l.Kind != gpu.LinkSwitch:
			t.Errorf("an instance has the wrong link %+v", l)
		}
	}
	if s := statuses[1]; s.UUID != "MIG-1-0" || s.MemoryUsed != job.Size(13*mib) || s.Utilization != -1 || s.Temperature != 31 || s.Health != gpu.Healthy {
		t.Errorf("status %+v, want the memory of MIG-1-0 and no utilisation", s)
	}
	m.devices[1].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 1, true, false, nvml.SUCCESS }
	if _, statuses = mustCollect(t, m.collector()); statuses[1].Health != gpu.Unhealthy || statuses[2].Health != gpu.Unhealthy || statuses[0].Health != gpu.Healthy {
		t.Errorf("instances of an unhealthy card: %+v, want them unhealthy", statuses[:3])
	}
}

// The instances of a card have its device files, and each has those of its own capabilities.
func TestInstancesHaveTheirDeviceFiles(t *testing.T) {
	m := newMachine()
	m.splitCard(1, instance(1, 0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib), instance(1, 1, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib))
	c := m.collector()
	root := t.TempDir()
	c.kernel = nvidia.NewKernel(root)
	for path, text := range map[string]string{
		"proc/devices":                       "Character devices:\n195 nvidia\n507 nvidia-caps\n",
		"proc/driver/nvidia-caps/mig-minors": "config 1\ngpu1/gi1/access 12\ngpu1/gi1/ci0/access 13\ngpu1/gi2/access 21\ngpu1/gi2/ci0/access 22\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	devices, _ := mustCollect(t, c)
	var got []string
	for _, d := range devices[:4] {
		var numbers []string
		for _, n := range d.Nodes {
			numbers = append(numbers, fmt.Sprintf("%d:%d", n.Major, n.Minor))
		}
		got = append(got, d.UUID+" "+strings.Join(numbers, " "))
	}
	want := []string{
		"GPU-0 195:0 195:255 195:254", "MIG-1-0 195:1 195:255 195:254 507:12 507:13", "MIG-1-1 195:1 195:255 195:254 507:21 507:22",
		"GPU-2 195:2 195:255 195:254",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	// An instance whose files are unknown would be open to others, or closed to its own task.
	m.splitCard(1, instance(1, 4, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib))
	c.units = nil
	devices, notes, err := c.list()
	if err != nil || len(devices) != 7 || len(notes) != 1 || !strings.Contains(notes[0], "gpu1/gi5/access") {
		t.Errorf("%d devices, %q, %v, want 7 and a note about the missing file", len(devices), notes, err)
	}
}

// recovers makes the driver request a recovery of a card.
func (m *machine) recovers(index int, ret nvml.Return, action uint32) {
	m.devices[index].GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		for i := range values {
			values[i].NvmlReturn = uint32(ret)
			binary.NativeEndian.PutUint32(values[i].Value[:], action)
		}
		return nvml.SUCCESS
	}
}

// fabric sets what the first card reports about the fabric of its NVLink switches.
func (m *machine) fabric(state int, status nvml.Return) {
	m.devices[0].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
		return nvml.GpuFabricInfo{State: uint8(state), Status: uint32(status)}, nvml.SUCCESS
	}
}

// A single card without NVLink to a switch needs no fabric.
func TestCardWithoutSwitchesNeedsNoFabric(t *testing.T) {
	m := newMachine()
	m.devices[0].GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	m.fabric(nvml.GPU_FABRIC_STATE_NOT_STARTED, 0)
	if _, statuses := mustCollect(t, m.collector()); statuses[0].Health != gpu.Healthy {
		t.Errorf("%s: %s, want %v", statuses[0].Health, statuses[0].Detail, gpu.Healthy)
	}
}

// Cards that share the memory of the host report none, and neither do some split cards.
func TestCardThatReportsNoMemoryIsListed(t *testing.T) {
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION} {
		m := newMachine()
		spoilers["memory"](m, ret)
		m.devices[1].GetMemoryInfo_v2Func, m.devices[1].GetMemoryInfoFunc = m.devices[0].GetMemoryInfo_v2Func, m.devices[0].GetMemoryInfoFunc
		m.splitCard(1, instance(1, 0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864*mib))
		devices, statuses := mustCollect(t, m.collector())
		if len(devices) != 8 || devices[0].Memory != 0 || devices[0].Class != "a100-40gb" || statuses[0].Health != gpu.Healthy {
			t.Errorf("%s: %d devices, the first %+v, %+v, want 8, healthy and without memory", ret, len(devices), devices[0], statuses[0])
		}
		if mig := devices[1]; mig.UUID != "MIG-1-0" || mig.Memory != job.Size(4864*mib) || mig.Class != "a100-40gb-mig-1g.5gb" {
			t.Errorf(`%s: instance of a card without memory: %+v, want UUID "MIG-1-0", Memory %v and Class "a100-40gb-mig-1g.5gb"`, ret, mig, job.Size(4864*mib))
		}
	}
}

// The library tells neither the UUID nor anything else of a lost card.
func TestXidOfALostCardNamesIt(t *testing.T) {
	gone := func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	for name, c := range map[string]struct {
		spoil func(m *machine) nvml.Device
		want  string
	}{
		"handle": {func(m *machine) nvml.Device { return m.devices[6] }, "GPU-6"},
		"address": {func(m *machine) nvml.Device {
			return &mock.Device{
				GetUUIDFunc: gone, GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return pciOf(busOf(6)), nvml.SUCCESS },
				GetIndexFunc: func() (int, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST },
			}
		}, "GPU-6"},
		"index": {func(m *machine) nvml.Device {
			return &mock.Device{
				GetUUIDFunc: gone, GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_GPU_IS_LOST },
				GetIndexFunc: func() (int, nvml.Return) { return 6, nvml.SUCCESS },
			}
		}, "GPU-6"},
		"nothing": {func(m *machine) nvml.Device {
			return &mock.Device{
				GetUUIDFunc: gone, GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_GPU_IS_LOST },
				GetIndexFunc: func() (int, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST },
			}
		}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			d, _ := stage(t, m.agent(t))
			faults, err := d.Faults(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mustList(t, d, 8)
			m.devices[6].GetUUIDFunc = gone
			m.events <- nvml.EventData{Device: c.spoil(m), EventType: nvml.EventTypeXidCriticalError, EventData: 79}
			if f := <-faults; f.UUID != c.want {
				t.Errorf("%s: fault of %q, want %q", name, f.UUID, c.want)
			}
		})
	}
}

func TestHealthOfEachCondition(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*machine)
		want  gpu.Health
		word  string
	}{
		"row pending": {func(m *machine) {
			m.devices[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 1, true, false, nvml.SUCCESS }
		}, gpu.Unhealthy, "waits to be remapped"},
		"row failed": {func(m *machine) {
			m.devices[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, false, true, nvml.SUCCESS }
		}, gpu.Unhealthy, "could not be remapped"},
		"page pending": {func(m *machine) {
			m.devices[0].GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
		}, gpu.Unhealthy, "page waits"},
		"lost": {func(m *machine) {
			lost := func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
			m.devices[0].GetMemoryInfo_v2Func = lost
			m.devices[0].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
			m.devices[0].GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
		}, gpu.Unhealthy, "GPU_IS_LOST"},
		"memory unreadable": {func(m *machine) {
			m.lack("nvmlDeviceGetMemoryInfo_v2")
			m.devices[0].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
		}, gpu.Unknown, "memory cannot be read"},
		"recovery": {func(m *machine) {
			m.recovers(0, nvml.SUCCESS, uint32(nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET))
		}, gpu.Unhealthy, "asks for a recovery: reset the GPU"},
		"reboot": {func(m *machine) {
			m.recovers(0, nvml.SUCCESS, uint32(nvml.GPU_RECOVERY_ACTION_NODE_REBOOT))
		}, gpu.Unhealthy, "asks for a recovery: reboot the host"},
		"recovery of a newer driver": {func(m *machine) { m.recovers(0, nvml.SUCCESS, 99) }, gpu.Unhealthy, "nvidia-smi"},
		"fabric not started":         {func(m *machine) { m.fabric(nvml.GPU_FABRIC_STATE_NOT_STARTED, 0) }, gpu.Unhealthy, "fabric manager"},
		"fabric is being started":    {func(m *machine) { m.fabric(nvml.GPU_FABRIC_STATE_IN_PROGRESS, 0) }, gpu.Unhealthy, "fabric manager"},
		"fabric failed":              {func(m *machine) { m.fabric(nvml.GPU_FABRIC_STATE_COMPLETED, nvml.ERROR_UNKNOWN) }, gpu.Unhealthy, "ERROR_UNKNOWN"},
		"fabric works":               {func(m *machine) { m.fabric(nvml.GPU_FABRIC_STATE_COMPLETED, 0) }, gpu.Healthy, ""},
		"no fabric":                  {func(m *machine) { m.fabric(nvml.GPU_FABRIC_STATE_NOT_SUPPORTED, 0) }, gpu.Healthy, ""},
		"no recovery needed":         {func(m *machine) { m.recovers(0, nvml.SUCCESS, 0) }, gpu.Healthy, ""},
		"recovery not known":         {func(m *machine) { m.recovers(0, nvml.ERROR_NOT_SUPPORTED, 1) }, gpu.Healthy, ""},
		"ecc alone": {func(m *machine) {
			m.devices[0].GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, nvml.SUCCESS }
		}, gpu.Healthy, ""},
	} {
		m := newMachine()
		coll := m.collector()
		if _, _, err := coll.list(); err != nil {
			t.Fatal(err)
		}
		c.spoil(m)
		clear(coll.symbols)
		statuses, err := coll.status()
		if err != nil {
			t.Fatal(err)
		}
		if s := statuses[0]; s.Health != c.want || !strings.Contains(s.Detail, c.word) || (s.Detail == "") != (c.want == gpu.Healthy) {
			t.Errorf("%s: %s, %q, want the health and the word of the case", name, s.Health, s.Detail)
		}
		if s := statuses[0]; (s.Recovery == gpu.RecoveryNone) != (name == "no recovery needed") {
			t.Errorf("%s: recovery %q, want none exactly if none is needed", name, s.Recovery)
		}
		if name == "ecc alone" && statuses[0].ECC != 2 {
			t.Errorf("%d ECC errors, want 2", statuses[0].ECC)
		}
	}
}

func TestProcessesOfADevice(t *testing.T) {
	m := newMachine()
	m.devices[0].MemoryInfo.Used = 10_590 * mib
	m.devices[0].GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 4000 * mib}, {Pid: 8, UsedGpuMemory: 1<<64 - 1}}, nvml.SUCCESS
	}
	m.devices[0].GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 9, UsedGpuMemory: 1000 * mib}}, nvml.SUCCESS
	}
	_, statuses := mustCollect(t, m.collector())
	want := []gpu.Process{{PID: 7, Memory: job.Size(4000 * mib)}, {PID: 8, Memory: job.Size(5000 * mib)}, {PID: 9, Memory: job.Size(1000 * mib)}}
	if !slices.Equal(statuses[0].Processes, want) {
		t.Errorf("processes %v, want %v", statuses[0].Processes, want)
	}
}

func TestDeviceThatCannotBeListedIsLeftOut(t *testing.T) {
	m := newMachine()
	m.devices[4].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	devices, notes, err := m.collector().list()
	if err != nil || len(devices) != 7 || len(notes) != 1 || !strings.HasPrefix(notes[0], "GPU 4: its UUID") {
		t.Errorf("%d devices, %v, %v, want 7 and a note about GPU 4", len(devices), notes, err)
	}
	for _, d := range m.devices {
		d.GetUUIDFunc = m.devices[4].GetUUIDFunc
	}
	if devices, _, err := m.collector().list(); err == nil {
		t.Errorf("%d devices and no error, want an error", len(devices))
	}
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if _, _, err := m.collector().list(); !errors.Is(err, nvml.ERROR_UNKNOWN) {
		t.Errorf("list: %v, want nvml.ERROR_UNKNOWN", err)
	}
}

// A lost card is listed as before, and its status says that it is lost.
func TestLostCardStaysListed(t *testing.T) {
	m := newMachine()
	c := m.collector()
	mustCollect(t, c)
	for _, i := range []int{4, 5} {
		for _, call := range []string{"memory", "programs", "errors"} {
			spoilers[call](&machine{devices: m.devices[i:]}, nvml.ERROR_GPU_IS_LOST)
		}
	}
	devices, notes, err := c.list()
	if err != nil || len(devices) != 8 || len(notes) != 2 {
		t.Fatalf("%d devices, %v, %v, want no error, 8 and 2 of them", len(devices), notes, err)
	}
	if statuses, err := c.status(); err != nil || statuses[4].Health != gpu.Unhealthy || statuses[4].Known() || statuses[3].Health != gpu.Healthy {
		t.Errorf("statuses %+v, %v, want GPU 4 unhealthy without values", statuses, err)
	}
}

func TestHelloNamesTheCauseOfAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*machine)
		want  string
	}{
		"library":  {func(m *machine) { m.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND } }, `{"hello":{"none":"libnvidia-ml.so.1 is not installed"}}`},
		"module":   {func(m *machine) { m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED } }, `{"hello":{"none":"the kernel's nvidia module is not loaded"}}`},
		"mismatch": {func(m *machine) { m.InitFunc = func() nvml.Return { return nvml.ERROR_LIB_RM_VERSION_MISMATCH } }, `{"hello":{"error":"start the library: ERROR_LIB_RM_VERSION_MISMATCH"}}`},
		"no GPU":   {func(m *machine) { m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS } }, `{"hello":{"none":"the driver lists no GPU"}}`},
		"count":    {func(m *machine) { m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN } }, `{"hello":{"error":"count the GPUs: ERROR_UNKNOWN"}}`},
	} {
		m := newMachine()
		if c.spoil(m); m.InitFunc() != nvml.SUCCESS { // then nothing else may be called
			m.DeviceGetCountFunc, m.SystemGetDriverVersionFunc, m.ExtensionsFunc = nil, nil, nil
		}
		var out bytes.Buffer
		if err := serve(t.Context(), m, strings.NewReader(""), &out); err != nil || strings.TrimSpace(out.String()) != c.want {
			t.Errorf("%s: %s, %v, want %s", name, out.String(), err, c.want)
		}
	}
}

func TestMockFulfilsContract(t *testing.T) {
	for name, arrange := range map[string]func(*machine){
		"dgx": func(*machine) {},
		"mig": func(m *machine) {
			m.splitCard(0, instance(0, 0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968*mib), instance(0, 1, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968*mib))
		},
		"old library": func(m *machine) { m.lack("*") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				arrange(m)
				p := m.agent(t)
				d, log := stage(t, p)
				gputest.TestDriver(t, d)
				if p.starts != 1 || lines(log) != 0 {
					t.Errorf("%d children, want 1 and no log: %s", p.starts, log)
				}
			})
		})
	}
}

func TestXidsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		d, _ := stage(t, m.agent(t))
		faults, err := d.Faults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // no output
		m.events <- nvml.EventData{Device: m.devices[6], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
		m.events <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 48}
		if f := <-faults; f.UUID != "GPU-6" || f.Code != 79 || f.At.IsZero() {
			t.Errorf("fault %+v, want xid 79 of GPU-6", f)
		}
		if f := <-faults; f.UUID != "" || f.Code != 48 {
			t.Errorf("fault %+v, want UUID none and Code 48", f)
		}
	})
}

func TestHungCallIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p := m.agent(t)
		d, _ := stage(t, p)
		mustList(t, d, 8)
		m.hangs.Store(true)
		defer close(m.release)
		asked := time.Now()
		if got := health(t, d); !strings.HasPrefix(got, "unknown unknown") || time.Since(asked) != 5*time.Second {
			t.Errorf(`%s after %s, want prefix "unknown unknown" and %v`, got, time.Since(asked), 5*time.Second)
		}
		m.hangs.Store(false)
		time.Sleep(time.Minute)
		if got := health(t, d); !strings.HasPrefix(got, "healthy healthy") || p.starts != 2 {
			t.Errorf(`%s, %d children, want prefix "healthy healthy" and 2`, got, p.starts)
		}
	})
}

// TestInvalidRequestEndsServe checks that a line that is not a request ends the child. An unknown operation does not.
func TestInvalidRequestEndsServe(t *testing.T) {
	for text, word := range map[string]string{
		"nonsense\n":                              "nvml: request",
		strings.Repeat("x", 2*maxRequest):         "read requests",
		`{"id":1,"op":"list"}` + "\n" + "garbage": "nvml: request",
	} {
		in, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, text)
			w.Close()
		}()
		if err := serve(t.Context(), newMachine(), in, io.Discard); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%.20q: %v, want an error and %v in it", text, err, word)
		}
	}
	var out bytes.Buffer
	c := newMachine().collector()
	requests := make(chan request, 1)
	requests <- request{ID: 7, Op: "format"}
	close(requests)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := answer(ctx, c.lib, requests, &writer{to: json.NewEncoder(&out)}); err != nil || !strings.Contains(out.String(), "unknown request") {
		t.Errorf(`answered %s, %v, want no error and "unknown request" in it`, out.String(), err)
	}
}
