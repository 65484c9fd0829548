package gpu

// Whether a device could serve a need, free or not.

import (
	"fmt"
	"math"

	"github.com/musterhq/muster/job"
)

// Whole is a whole device, in thousandths.
const Whole = 1000

// Milli returns what a need takes of each of its devices, in thousandths: Whole for whole devices, less for a share,
// 0 if it asks for no GPU.
func Milli(need job.Resources) int {
	switch {
	case need.GPUs > 0:
		return Whole
	case need.GPUShare > 0:
		return min(max(int(math.Round(need.GPUShare*Whole)), 1), Whole-1)
	}
	return 0
}

// Count returns the number of devices that a need takes, whole or in part.
func Count(need job.Resources) int {
	if need.GPUs == 0 && need.GPUShare > 0 {
		return 1
	}
	return need.GPUs
}

// Memory returns what a need takes of a device's memory: all of a whole device; of a shared one the amount that the
// need names, else its share.
func Memory(need job.Resources, capacity job.Size) job.Size {
	return memoryOf(Milli(need), need.GPUMemory, capacity)
}

func memoryOf(milli int, named, capacity job.Size) job.Size {
	switch {
	case milli >= Whole:
		return capacity
	case named > 0:
		return named
	}
	return capacity / Whole * job.Size(milli)
}

// Fits reports whether the device could serve the need if it were free.
func Fits(d Device, need job.Resources) bool { return Misfit(d, need) == "" }

// Misfit returns why the device could never serve the need; empty if it could.
func Misfit(d Device, need job.Resources) string {
	switch {
	case need.GPUModel != "" && !d.Is(need.GPUModel):
		return fmt.Sprintf("is %s, not %s", classOr(d), need.GPUModel)
	case need.GPUMemory > d.Memory:
		return fmt.Sprintf("has %s of memory, less than %s", d.Memory, need.GPUMemory)
	case d.Parent != "" && need.GPUs > 1:
		return "is a MIG instance, and a program can use only one"
	}
	return ""
}

func classOr(d Device) string {
	if d.Class != "" {
		return d.Class
	}
	return d.Model
}
