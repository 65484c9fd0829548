//go:build cgo && !nonvml

package nvml

// A value that cannot be read is unknown, not zero: each call of the library is tried with each error.

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
)

// spoilers make one call of the first device fail.
var spoilers = map[string]func(m *machine, ret nvml.Return){
	"memory": func(m *machine, ret nvml.Return) {
		m.devices[0].GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, ret }
		m.devices[0].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, ret }
	},
	"programs": func(m *machine, ret nvml.Return) {
		m.devices[0].GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ret }
	},
	"programs of mps": func(m *machine, ret nvml.Return) {
		m.devices[0].GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ret }
	},
	"errors": func(m *machine, ret nvml.Return) {
		m.devices[0].GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, ret }
	},
	"rows": func(m *machine, ret nvml.Return) {
		m.devices[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, ret }
	},
	"pages": func(m *machine, ret nvml.Return) {
		m.devices[0].GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, ret }
	},
	"recovery": func(m *machine, ret nvml.Return) {
		m.devices[0].GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return ret }
	},
	"fabric": func(m *machine, ret nvml.Return) {
		m.devices[0].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) { return nvml.GpuFabricInfo{}, ret }
	},
	"value of the recovery": func(m *machine, ret nvml.Return) { m.recovers(0, ret, 0) },
}

func TestValueThatCannotBeReadIsUnknown(t *testing.T) {
	want := map[nvml.Return]gpu.Health{
		nvml.ERROR_NOT_SUPPORTED: gpu.Healthy, nvml.ERROR_NO_PERMISSION: gpu.Healthy, nvml.ERROR_FUNCTION_NOT_FOUND: gpu.Healthy,
		nvml.ERROR_UNKNOWN: gpu.Unknown, nvml.ERROR_TIMEOUT: gpu.Unknown, nvml.ERROR_IN_USE: gpu.Unknown, nvml.ERROR_MEMORY: gpu.Unknown,
		nvml.ERROR_INSUFFICIENT_RESOURCES: gpu.Unknown, nvml.ERROR_UNINITIALIZED: gpu.Unknown, nvml.ERROR_NO_DATA: gpu.Unknown,
		nvml.ERROR_GPU_IS_LOST: gpu.Unhealthy, nvml.ERROR_RESET_REQUIRED: gpu.Unhealthy, nvml.ERROR_GPU_NOT_FOUND: gpu.Unhealthy,
	}
	for name, spoil := range spoilers {
		for ret, health := range want {
			m := newMachine()
			m.devices[0].MemoryInfo.Used = 10_590 * mib
			c := m.collector()
			if _, _, err := c.list(); err != nil {
				t.Fatal(err)
			}
			spoil(m, ret)
			all, err := c.status()
			if err != nil {
				t.Fatal(err)
			}
			s := all[0]
			if s.Health != health || (s.Detail == "") != (health == gpu.Healthy) || all[1].Health != gpu.Healthy {
				t.Errorf("%s fails with %s: %s, %q; the next device is %s, want only this one affected", name, ret, s.Health, s.Detail, all[1].Health)
			}
			if bare := gpu.NotKnown(s.UUID, s.Detail); health == gpu.Unknown && (s.MemoryUsed != bare.MemoryUsed || s.Utilization != -1 || s.Temperature != 0 || s.PowerMilli != 0) {
				t.Errorf("%s fails with %s: a device of unknown health has numbers: %+v", name, ret, s)
			}
			if health == gpu.Unhealthy && (s.Known() || s.MemoryUsed != 0) {
				t.Errorf("%s fails with %s: a value that was not read counts as read: %+v", name, ret, s)
			}
		}
	}
}
