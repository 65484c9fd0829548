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
	UUID    string   `json:"uuid"`
	Index   int      `json:"index"` // for people; may change with a reboot
	Model   string   `json:"model"` // as reported by the driver: "NVIDIA H100 80GB HBM3"
	Class   string   `json:"class"` // short and in lower case, for matching: "h100-80gb"
	Memory  job.Size `json:"memory"`
	Compute string   `json:"compute_capability,omitempty"` // "9.0"
	Driver  string   `json:"driver,omitempty"`
	PCI     string   `json:"pci,omitempty"`    // bus id
	Nodes   []Node   `json:"nodes,omitempty"`  // the device files that a program needs; nil: not known
	NUMA    int      `json:"numa"`             // node, or -1
	Socket  int      `json:"socket,omitempty"` // number of the processor socket, from 1; 0: not known
	Parent  string   `json:"parent,omitempty"` // for a MIG instance the UUID of its GPU
	// Instance is the number of a MIG instance on its GPU; empty: not known. Only its own host knows it.
	Instance  string `json:"instance,omitempty"`
	Simulated bool   `json:"simulated"`
	Links     []Link `json:"links,omitempty"` // to the other devices of the host
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
	// Served says that a service of the driver shares the device among programs. It may keep memory of the device when
	// no program is left.
	Served bool `json:"served,omitempty"`
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

// Fault is an error event of a device.
type Fault struct {
	UUID     string    `json:"uuid"`           // empty if the driver does not report it
	Code     uint64    `json:"code,omitempty"` // the vendor's number of the error
	Text     string    `json:"text,omitempty"` // for people: "xid 79 (fallen off the bus)"
	Severity Severity  `json:"severity,omitempty"`
	At       time.Time `json:"at"`
}

// Severity is what a fault says about its device. Only the driver knows.
type Severity string

// The severities of faults.
const (
	// SeverityUnknown means that nothing follows from the fault itself: the status of the device decides.
	SeverityUnknown Severity = ""
	// SeverityProgram means that a program caused the fault. It says nothing about the device.
	SeverityProgram Severity = "program"
	// SeverityDevice means that no further task may get the device until the driver finds it healthy.
	SeverityDevice Severity = "device"
)

// ErrClosed means that the driver was closed. Stop using it.
var ErrClosed = errors.New("driver is closed")

// ErrReleased means that the devices are released. See Releaser.
var ErrReleased = errors.New("the GPUs are released while the host is drained")

// Releaser is a Driver that keeps devices open between calls. An open device cannot be reset or split, and its kernel
// driver cannot be replaced.
type Releaser interface {
	// Release closes all devices. Until Resume, List and Status return ErrReleased. After an error some may be open
	// still; call it again.
	Release(ctx context.Context) error
	// Resume lets List and Status open devices again. Without a Release before it does nothing.
	Resume(ctx context.Context) error
}

// Renewer is a Driver that leaves devices and libraries alone for a while after they failed.
type Renewer interface {
	// Anew ends all such pauses: the next List looks at everything.
	Anew(ctx context.Context) error
}

// Driver reports the GPUs of this host. On a host without GPUs it lists none; an error means that a driver does not
// work.
type Driver interface {
	// List returns all devices in the driver's order.
	List(ctx context.Context) ([]Device, error)
	// Status returns the status of each device, in the order of List.
	Status(ctx context.Context) ([]Status, error)
	// Faults returns a channel of faults as they happen. It is closed when ctx ends.
	Faults(ctx context.Context) (<-chan Fault, error)
	// Grant returns what a task with these devices and this need gets on this host. It does not wait for the devices. A
	// task without devices gets something too: what keeps it from the devices of others.
	Grant(devices []Device, need job.Resources) Grant
	// Close ends everything that the driver runs. Later calls fail.
	Close() error
}
