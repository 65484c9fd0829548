// Package usage defines what is measured of tasks, GPUs and hosts, and keeps it in bounded memory: a Ring has the
// samples of the last hour, a Fold has a whole life in a few points, and a Report is a Fold that travels with the result
// of a task.
//
// What is not known is NaN, never 0: in a Sample, in a point, and in every figure that is derived from them.
package usage

import (
	"math"
	"time"
)

// Kind is one measured quantity. Its number is part of the format of reports.
type Kind uint8

// The kinds. Those of a task are about all its processes and all its GPUs together.
const (
	CPU       Kind = iota // CPUs in use: seconds of CPU time per second
	Memory                // bytes in use, without the file cache that the kernel can drop
	Read                  // bytes per second from disks
	Write                 // bytes per second to disks
	PIDs                  // processes and threads
	GPU                   // percent of the time in which a program computed, mean of the GPUs
	GPUMemory             // bytes allocated on the GPUs
	Power                 // watts of the GPUs
	Received              // bytes per second from the network; hosts only
	Sent                  // bytes per second to the network; hosts only
	Kinds                 // the number of kinds
)

var names = [Kinds]string{"cpu", "memory", "read", "write", "pids", "gpu", "gpu_memory", "power", "received", "sent"}

// String returns the name of the kind, as in JSON.
func (k Kind) String() string {
	if k >= Kinds {
		return "unknown"
	}
	return names[k]
}

// Values has one value for each kind.
type Values [Kinds]float64

// Unknown returns values of which none is known.
func Unknown() (v Values) {
	for k := range v {
		v[k] = math.NaN()
	}
	return v
}

// Known reports whether a value is known.
func Known(x float64) bool { return !math.IsNaN(x) }

// Sample is what was measured at one time.
type Sample struct {
	At     time.Time
	Values Values
}

// Points are the samples of some kinds. A kind without any known value has no column.
type Points struct {
	At      []time.Time
	Columns [Kinds][]float64 // as long as At, or nil
}
