//go:build cgo && !nonvml

package nvml

// A DGX A100 from go-nvml's mock, patched where the mock panics.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

const mib = uint64(1) << 20

// machine is the mock and its devices.
type machine struct {
	*dgxa100.Server
	devices []*dgxa100.Device
	events  chan nvml.EventData
	hangs   atomic.Bool   // calls that read a temperature do not return
	release chan struct{} // once it is closed those calls return
}

func newMachine() *machine {
	m := &machine{Server: dgxa100.New(), events: make(chan nvml.EventData, 8), release: make(chan struct{})}
	for i, d := range m.Devices {
		dev := d.(*dgxa100.Device)
		dev.UUID = fmt.Sprintf("GPU-%d", i)
		m.devices = append(m.devices, dev)
		m.patch(dev)
	}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
				timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
				defer timer.Stop()
				select {
				case e := <-m.events:
					return e, nvml.SUCCESS
				case <-timer.C:
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	return m
}

// lack removes symbols from the library.
func (m *machine) lack(symbols ...string) {
	m.LookupSymbolFunc = func(symbol string) error {
		for _, s := range symbols {
			if s == symbol || s == "*" {
				return fmt.Errorf("undefined symbol: %s", symbol)
			}
		}
		return nil
	}
}

// pciOf returns the address as the library writes it: 32 bytes, zero-terminated.
func pciOf(bus string) nvml.PciInfo {
	var p nvml.PciInfo
	for i := range bus {
		p.BusId[i] = int8(bus[i])
	}
	return p
}

func busOf(index int) string { return fmt.Sprintf("00000000:%02X:00.0", index+1) }

// patch gives a device what the mock lacks. It is idle and healthy, with two devices to a PCIe switch, four to a
// socket, and twelve NVLinks to switches.
func (m *machine) patch(dev *dgxa100.Device) {
	dev.MemoryInfo = nvml.Memory{Total: 40960 * mib, Used: 600 * mib, Free: 40360 * mib}
	dev.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: dev.MemoryInfo.Total, Reserved: 590 * mib, Used: dev.MemoryInfo.Used - 590*mib}, nvml.SUCCESS
	}
	dev.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pciOf(busOf(dev.Index)), nvml.SUCCESS }
	dev.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
		return []uint{1 << (dev.Index / 4), 0}, nvml.SUCCESS
	}
	dev.GetNvLinkStateFunc = func(l int) (nvml.EnableState, nvml.Return) {
		if l >= 12 {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	dev.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
	}
	dev.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED }
	dev.GetTopologyCommonAncestorFunc = func(to nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		a, b := dev.Index, to.(*dgxa100.Device).Index
		switch {
		case a/2 == b/2:
			return nvml.TOPOLOGY_SINGLE, nvml.SUCCESS
		case a/4 == b/4:
			return nvml.TOPOLOGY_NODE, nvml.SUCCESS
		}
		return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
	}
	dev.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 3}, nvml.SUCCESS }
	dev.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
		if m.hangs.Load() {
			<-m.release
		}
		return 31, nvml.SUCCESS
	}
	dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 52_000, nvml.SUCCESS }
	dev.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, nvml.SUCCESS }
	dev.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS }
	dev.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
	dev.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) { return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED }
	dev.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	dev.GetComputeRunningProcessesFunc, dev.GetMPSComputeRunningProcessesFunc = none, none
	dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
		return nvml.EventTypeXidCriticalError | nvml.EventTypeClock, nvml.SUCCESS
	}
	dev.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
		if types != nvml.EventTypeXidCriticalError {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.SUCCESS
	}
}

// instance returns a MIG instance of the mock.
func instance(parent, slot int, name string, memory uint64) *mock.Device {
	dev := &mock.Device{}
	dev.GetUUIDFunc = func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d-%d", parent, slot), nvml.SUCCESS }
	dev.GetNameFunc = func() (string, nvml.Return) { return name, nvml.SUCCESS }
	dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: memory, Used: 13 * mib}, nvml.SUCCESS }
	dev.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: memory, Used: 13 * mib}, nvml.SUCCESS
	}
	dev.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{GpuInstanceSliceCount: 3}, nvml.SUCCESS
	}
	dev.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return slot + 1, nvml.SUCCESS }
	dev.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	dev.GetComputeRunningProcessesFunc, dev.GetMPSComputeRunningProcessesFunc = none, none
	return dev
}

// splitCard puts a device into MIG mode with these instances; nil is an empty slot.
func (m *machine) splitCard(index int, instances ...*mock.Device) {
	dev := m.devices[index]
	dev.MigMode = nvml.DEVICE_MIG_ENABLE
	dev.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	dev.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= len(instances) || instances[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return instances[i], nvml.SUCCESS
	}
}

// agent returns a child of this machine that runs in this process.
func (m *machine) agent(t *testing.T) *play {
	t.Cleanup(func() { time.Sleep(2 * eventWait * time.Millisecond) }) // the last wait for an event must end
	p := &play{t: t}
	p.scripts = []func(life){func(l life) {
		in, requests := io.Pipe()
		go func() {
			for r := range l.requests {
				line := `{"id":` + strconv.FormatUint(r.ID, 10) + `,"op":"` + string(r.Op) + "\"}\n"
				if _, err := io.WriteString(requests, line); err != nil {
					return
				}
			}
			requests.Close()
		}()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		context.AfterFunc(ctx, func() { in.Close() })
		go func() { <-l.killed; stop() }()
		if err := serve(ctx, m, in, l.out); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("serve: %v", err)
		}
	}}
	return p
}
