// Package gpu says what a GPU is, how the GPUs of a host are linked, whether
// one fits a need, and who holds it.
//
// Nothing here is tied to a vendor: a Driver lists devices, gpu/nvml is the one
// for NVIDIA hardware and gpu/simgpu the one that simulates. Devices are known
// by UUID, never by index: an index may change with a reboot.
package gpu

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/job"
)

// Device is one GPU, or one MIG instance of one, as its driver reports it.
// What a driver cannot tell is zero.
type Device struct {
	UUID      string   `json:"uuid"`
	Index     int      `json:"index"` // for people; changes with a reboot
	Model     string   `json:"model"` // as the driver says it: "NVIDIA H100 80GB HBM3"
	Class     string   `json:"class"` // short and lower-case, for matching: "h100-80gb"
	Memory    job.Size `json:"memory"`
	Compute   string   `json:"compute_capability,omitempty"` // "9.0"
	Driver    string   `json:"driver,omitempty"`
	PCI       string   `json:"pci,omitempty"`    // bus id
	Node      string   `json:"node,omitempty"`   // device file: "/dev/nvidia0"; of a MIG instance that of its GPU
	NUMA      int      `json:"numa"`             // node, or -1
	Parent    string   `json:"parent,omitempty"` // for a MIG instance: the UUID of its GPU
	Simulated bool     `json:"simulated"`
	Links     []Link   `json:"links,omitempty"` // to the other devices of the host
}

// Link is how near another device of the same host is.
type Link struct {
	To   string   `json:"to"` // UUID
	Kind LinkKind `json:"kind"`
	// NVLinks counts active NVLink connections; on a host with switches it
	// counts those to the switches.
	NVLinks int `json:"nvlinks,omitempty"`
}

// LinkKind is the nearest ancestor of two devices, best first.
type LinkKind string

// The kinds, best first.
const (
	LinkNVLink LinkKind = "nvlink"
	LinkBoard  LinkKind = "board"  // the same card
	LinkSwitch LinkKind = "switch" // PCIe switches only
	LinkBridge LinkKind = "bridge" // a PCIe host bridge
	LinkNUMA   LinkKind = "numa"   // the same NUMA node
	LinkSystem LinkKind = "system" // across sockets
)

// Status is what changes about a device while it runs.
type Status struct {
	UUID        string    `json:"uuid"`
	MemoryUsed  job.Size  `json:"memory_used"`
	Utilization int       `json:"utilization"` // percent, -1 unknown
	Temperature int       `json:"temperature"` // °C, 0 unknown
	PowerMilli  int       `json:"power_milliwatts"`
	Processes   []Process `json:"processes,omitempty"`
	ECC         uint64    `json:"ecc_uncorrected"` // since the driver was loaded
	Recovery    Recovery  `json:"recovery,omitempty"`
	Health      Health    `json:"health"`
	Detail      string    `json:"detail,omitempty"` // why it is not healthy
}

// Process is a program that computes on a device, in the host's own PIDs; one
// that only draws a screen is not meant.
type Process struct {
	PID    int      `json:"pid"`
	Memory job.Size `json:"memory"`
}

// Health says whether a device may be given to a task.
type Health string

// The healths.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
	Unknown   Health = "unknown" // the driver did not answer in time
)

// Recovery is what the driver says has to be done before a device can be used;
// empty if it does not say. A device that needs anything is Unhealthy.
type Recovery string

// What a driver may ask for.
const (
	RecoveryNone   Recovery = "none" // the driver vouches for the device
	RecoveryReset  Recovery = "reset the GPU"
	RecoveryReboot Recovery = "reboot the host"
	RecoveryOther  Recovery = "see nvidia-smi -q"
)

// Fault is something that happened to a device: for NVIDIA an Xid error.
type Fault struct {
	UUID string    `json:"uuid"` // empty if the driver does not tell
	Xid  uint64    `json:"xid"`
	At   time.Time `json:"at"`
}

// ErrClosed says that the driver was closed; there is nothing to ask any more.
var ErrClosed = errors.New("driver is closed")

// Driver reports the GPUs of this host. A host without any has a Driver that
// lists none; an error is a driver that should have worked and did not.
type Driver interface {
	// List reports all devices; the order is the driver's.
	List(ctx context.Context) ([]Device, error)
	// Status reports how each device is now, in the order of List.
	Status(ctx context.Context) ([]Status, error)
	// Faults returns faults as they happen; it is closed when ctx ends.
	Faults(ctx context.Context) (<-chan Fault, error)
	// Close ends whatever the driver runs. Calls after it fail.
	Close() error
}
