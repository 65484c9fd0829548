package fleet

// Which free resources a host keeps from a task.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
)

// KeptFrom tells people for which job the host keeps what the task needs, and for how long. It is empty if the task
// fits beside what is kept, or would not fit even without that.
func KeptFrom(h *Host, a Asked, now time.Time) string {
	if _, lack := h.Devices.Fit(a.Need, &h.Free); len(h.told.kept) == 0 || lack != "" {
		return ""
	}
	free := h.Free
	free.GPUs = slices.Clone(free.GPUs)
	for i := range h.told.kept {
		k := &h.told.kept[i]
		if !k.from(&a, now) {
			continue
		}
		k.takeDevices(&free) // devices first: a task that asks for GPUs is told about GPUs
		_, lack := h.Devices.Fit(a.Need, &free)
		if k.takeRest(&h.Free, &free); lack == "" {
			_, lack = h.Devices.Fit(a.Need, &free)
		}
		if lack != "" || a.Need.Exclusive {
			return k.text(lack, now)
		}
	}
	return ""
}

// Unkept returns what is free at a host, less what the host keeps from a task.
func Unkept(h *Host, a Asked, now time.Time) *contract.Free {
	free := h.Free
	free.GPUs = slices.Clone(free.GPUs)
	for i := range h.told.kept {
		if k := &h.told.kept[i]; k.from(&a, now) {
			k.takeDevices(&free)
			k.takeRest(&h.Free, &free)
		}
	}
	return &free
}

// takeDevices subtracts the kept devices from those that are left.
func (k *kept) takeDevices(left *contract.Free) {
	for n := range left.GPUs {
		if g := &left.GPUs[n]; slices.Contains(k.devices, g.UUID) {
			g.Milli = max(0, g.Milli-k.Milli)
		}
	}
}

// takeRest leaves no more CPUs and memory than are free beside what is kept.
func (k *kept) takeRest(free, left *contract.Free) {
	left.CPUs, left.Memory = min(left.CPUs, max(0, free.CPUs-k.CPUs)), min(left.Memory, max(0, free.Memory-k.Memory))
}
