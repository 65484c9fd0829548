// Package gpu defines what a GPU is and how the GPUs of a host are linked. It decides whether a GPU fits a need, and
// records who holds it.
//
// The package is independent of vendors: a Driver lists devices. gpu/nvml is the driver for NVIDIA hardware, and
// gpu/simgpu simulates devices. Devices are identified by UUID, never by index, because an index may change with a
// reboot.
package gpu

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/job"
)

// Device is one GPU, or one MIG instance of a GPU, as its driver reports it. A field is zero if the driver does not
// report it.
type Device struct {
	UUID      string   `json:"uuid"`
	Index     int      `json:"index"` // for people; may change with a reboot
	Model     string   `json:"model"` // as reported by the driver: "NVIDIA H100 80GB HBM3"
	Class     string   `json:"class"` // short and in lower case, for matching: "h100-80gb"
	Memory    job.Size `json:"memory"`
	Compute   string   `json:"compute_capability,omitempty"` // "9.0"
	Driver    string   `json:"driver,omitempty"`
	PCI       string   `json:"pci,omitempty"`    // bus id
	Node      string   `json:"node,omitempty"`   // device file: "/dev/nvidia0"; for a MIG instance that of its GPU
	NUMA      int      `json:"numa"`             // node, or -1
	Parent    string   `json:"parent,omitempty"` // for a MIG instance the UUID of its GPU
	Simulated bool     `json:"simulated"`
	Links     []Link   `json:"links,omitempty"` // to the other devices of the host
}

// Link says how near another device of the same host is.
type Link struct {
	To   string   `json:"to"` // UUID
	Kind LinkKind `json:"kind"`
	// NVLinks counts active NVLink connections. On a host with NVLink switches it counts the connections to the
	// switches.
	NVLinks int `json:"nvlinks,omitempty"`
}

// LinkKind is the nearest common ancestor of two devices.
type LinkKind string

// The kinds of links, best first.
const (
	LinkNVLink LinkKind = "nvlink"
	LinkBoard  LinkKind = "board"  // the same circuit board
	LinkSwitch LinkKind = "switch" // PCIe switches only
	LinkBridge LinkKind = "bridge" // a PCIe host bridge
	LinkNUMA   LinkKind = "numa"   // the same NUMA node
	LinkSystem LinkKind = "system" // across sockets
)

// Status is the changing part of a device's state. A status of Unknown health carries no numbers: nothing may be
// concluded from it.
type Status struct {
	UUID        string    `json:"uuid"`
	MemoryUsed  job.Size  `json:"memory_used"`
	Utilization int       `json:"utilization"` // percent; -1: not known
	Temperature int       `json:"temperature"` // °C, 0 unknown
	PowerMilli  int       `json:"power_milliwatts"`
	Processes   []Process `json:"processes,omitempty"`
	ECC         uint64    `json:"ecc_uncorrected"` // since the driver was loaded
	Recovery    Recovery  `json:"recovery,omitempty"`
	Health      Health    `json:"health"`
	Detail      string    `json:"detail,omitempty"` // why it is not healthy
	// Unread says that the memory, the programs or the errors of a device that is Unhealthy could not be read. Then
	// MemoryUsed, Processes and ECC say nothing.
	Unread bool `json:"unread,omitempty"`
}

// NotKnown returns the status of a device that the driver says nothing about, and why.
func NotKnown(uuid, why string) Status {
	return Status{UUID: uuid, Utilization: -1, Health: Unknown, Detail: why}
}

// Known reports whether the memory, the programs and the errors of the device were read.
func (s Status) Known() bool { return s.Health != Unknown && !s.Unread }

// Process is a program that computes on a device, with its PID on the host. Programs that only draw a screen do not
// count.
type Process struct {
	PID    int      `json:"pid"`
	Memory job.Size `json:"memory"`
}

// Health reports whether a device may be given to a task.
type Health string

// The states of health.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
	Unknown   Health = "unknown" // the driver did not answer in time
)

// Recovery is what the driver says must be done before a device can be used; empty if the driver says nothing. A
// device that needs any recovery is Unhealthy.
type Recovery string

// The recoveries that a driver can request.
const (
	RecoveryNone   Recovery = "none" // the driver says that the device is sound
	RecoveryReset  Recovery = "reset the GPU"
	RecoveryReboot Recovery = "reboot the host"
	RecoveryOther  Recovery = "see nvidia-smi -q"
)

// Fault is an error event of a device: for NVIDIA an Xid error.
type Fault struct {
	UUID string    `json:"uuid"` // empty if the driver does not report it
	Xid  uint64    `json:"xid"`
	At   time.Time `json:"at"`
}

// ErrClosed means that the driver was closed. Stop using it.
var ErrClosed = errors.New("driver is closed")

// Driver reports the GPUs of this host. On a host without GPUs it lists none; an error means that a driver does not
// work.
type Driver interface {
	// List returns all devices in the driver's order.
	List(ctx context.Context) ([]Device, error)
	// Status returns the status of each device, in the order of List.
	Status(ctx context.Context) ([]Status, error)
	// Faults returns a channel of faults as they happen. It is closed when ctx ends.
	Faults(ctx context.Context) (<-chan Fault, error)
	// Close ends everything that the driver runs. Later calls fail.
	Close() error
}
