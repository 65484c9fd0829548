//go:build cgo && !nonvml

package nvml

// The status of each unit: memory, processes, health and measurements.

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

var errNotListed = errors.New("status before list")

// status reads all units of the last list, but those of cards that are not to be touched.
func (c *collector) status() ([]gpu.Status, error) {
	if c.units == nil {
		if _, _, err := c.list(); err != nil {
			return nil, errors.Join(errNotListed, err)
		}
	}
	all := make([]gpu.Status, 0, len(c.units))
	for _, u := range c.units {
		if c.turn(at{Card: u.device.Index}) {
			all = append(all, c.read(u))
		}
	}
	return all, nil
}

// reading is a status that is being read, and the problems found.
type reading struct {
	gpu.Status
	sick    []string
	unknown []string // what could not be read, and why
}

// absent are the answers that say that the device or the library does not have a value. Any other error says nothing
// about the value.
var absent = []nvml.Return{
	nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED,
}

// lost are the answers that say that the device itself does not work.
var lost = []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND}

// ok reports whether a call returned a value, and records a device that is lost.
func (r *reading) ok(ret nvml.Return) bool {
	if slices.Contains(lost, ret) {
		r.wrong(ret.Error())
	}
	return ret == nvml.SUCCESS
}

// need is like ok, for a value on which the health depends or that says what is free. If the value is not known, need
// records that.
func (r *reading) need(what string, ret nvml.Return) bool {
	if !r.ok(ret) && !slices.Contains(absent, ret) {
		r.unknown = append(r.unknown, what+" cannot be read: "+ret.Error())
	}
	return ret == nvml.SUCCESS
}

func (r *reading) wrong(why string) {
	if len(r.sick) == 0 || r.sick[len(r.sick)-1] != why {
		r.sick = append(r.sick, why)
	}
}

// status returns what was read. If a needed value is not known, the status has none of the numbers.
func (r *reading) status() gpu.Status {
	switch {
	case len(r.sick) > 0:
		r.Health, r.Detail = gpu.Unhealthy, strings.Join(r.sick, "; ")
		if len(r.unknown) > 0 {
			r.Unread, r.MemoryUsed, r.Processes, r.ECC = true, 0, nil, 0
		}
		return r.Status
	case len(r.unknown) > 0:
		return gpu.NotKnown(r.UUID, strings.Join(r.unknown, "; "))
	}
	r.Health = gpu.Healthy
	return r.Status
}

// read returns one unit's status. MIG instances share the measurements and the health of their card.
func (c *collector) read(u unit) gpu.Status {
	r := &reading{Status: gpu.Status{UUID: u.device.UUID, Utilization: -1}}
	_, used, ret := c.memory(u.handle)
	if r.need("its memory", ret) {
		r.MemoryUsed = min(used, u.device.Memory)
	}
	c.readProcesses(r, u.handle)
	if u.device.Parent == "" { // an instance has no rates of its own
		if rates, ret := u.handle.GetUtilizationRates(); r.ok(ret) {
			r.Utilization = int(min(rates.Gpu, 100))
		}
	}
	if t, ret := u.card.handle.GetTemperature(nvml.TEMPERATURE_GPU); r.ok(ret) {
		r.Temperature = int(t)
	}
	if p, ret := u.card.handle.GetPowerUsage(); r.ok(ret) {
		r.PowerMilli = int(p)
	}
	c.readErrors(r, u.card.handle)
	c.readFabric(r, u.card)
	c.readRecovery(r, u.card.handle)
	return r.status()
}

// readErrors reads the card's memory errors. A row or a page that waits to be replaced needs a reset of the card.
func (c *collector) readErrors(r *reading, handle nvml.Device) {
	if n, ret := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r.need("its memory errors", ret) {
		r.ECC = n
	}
	if c.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := handle.GetRemappedRows(); r.need("its remapped rows", ret) {
			if failed {
				r.wrong("a memory row could not be remapped")
			}
			if pending {
				r.wrong("a memory row waits to be remapped: reset the GPU")
			}
		}
	}
	if c.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		if pending, ret := handle.GetRetiredPagesPendingStatus(); r.need("its retired pages", ret) && pending == nvml.FEATURE_ENABLED {
			r.wrong("a memory page waits to be retired: reset the GPU")
		}
	}
}

// readFabric reads whether the NVLink switches that the card is linked to work. Until NVIDIA's fabric manager has set them
// up, no program can use the card.
func (c *collector) readFabric(r *reading, crd *card) {
	if crd.switches == 0 || !c.has("nvmlDeviceGetGpuFabricInfo") {
		return
	}
	info, ret := crd.handle.GetGpuFabricInfo()
	if !r.need("the state of its fabric", ret) {
		return
	}
	switch info.State {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		r.wrong("its NVLink fabric is not set up: start the fabric manager")
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		r.wrong("the fabric manager is setting up its NVLink fabric")
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		if status := nvml.Return(info.Status); status != nvml.SUCCESS {
			r.wrong("its NVLink fabric could not be set up: " + status.Error())
		}
	}
}

// readRecovery reads which recovery the driver requests for the card. Newer drivers report it, and know more than
// their error numbers say.
func (c *collector) readRecovery(r *reading, handle nvml.Device) {
	if !c.has("nvmlDeviceGetFieldValues") {
		return
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	what := "the recovery that its driver asks for"
	if !r.need(what, handle.GetFieldValues(values)) || !r.need(what, nvml.Return(values[0].NvmlReturn)) {
		return
	}
	switch nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])) {
	case nvml.GPU_RECOVERY_ACTION_NONE:
		r.Recovery = gpu.RecoveryNone
		return
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET, nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		r.Recovery = gpu.RecoveryReset
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		r.Recovery = gpu.RecoveryReboot
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P, nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN:
		r.Recovery = gpu.RecoveryOther
	default: // a newer kind of recovery
		r.Recovery = gpu.RecoveryOther
	}
	r.wrong("its driver asks for a recovery: " + string(r.Recovery))
}

// readProcesses lists the programs that compute on the device.
func (c *collector) readProcesses(r *reading, handle nvml.Device) {
	lists := []func() ([]nvml.ProcessInfo, nvml.Return){handle.GetComputeRunningProcesses}
	if c.has("nvmlDeviceGetMPSComputeRunningProcesses") {
		lists = append(lists, handle.GetMPSComputeRunningProcesses)
	}
	unknown, sum := 0, job.Size(0)
	for _, list := range lists {
		infos, ret := list()
		if !r.need("its programs", ret) {
			continue
		}
		for _, p := range infos {
			if mpsServer(int(p.Pid)) {
				continue
			}
			memory := size(p.UsedGpuMemory)
			if memory == 0 {
				unknown++
			}
			sum += memory
			r.Processes = append(r.Processes, gpu.Process{PID: int(p.Pid), Memory: memory})
		}
	}
	// If the driver does not report the memory of some programs, they get what the others leave.
	for i := range r.Processes {
		if r.Processes[i].Memory == 0 && unknown > 0 {
			r.Processes[i].Memory = max(0, r.MemoryUsed-sum) / job.Size(unknown)
		}
	}
}
