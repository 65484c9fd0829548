package gpu

// Grant: what a task gets so that it sees exactly its own devices.

import "github.com/musterhq/muster/job"

// Node is a device file. The file may not exist yet, because some drivers make it when a program first needs it.
type Node struct {
	Path  string `json:"path"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// Grant is what a task gets so that it sees its own devices and none of another task.
type Grant struct {
	// Env are environment variables. They override those of the user.
	Env map[string]string
	// Closed are the device files that the task may not open, whether they exist yet or not.
	Closed []Closed
	// Memory is the most that the task may take of the memory of devices of which it has a share. A kernel that
	// accounts this memory enforces the limit on every program.
	Memory []MemoryLimit
	// Shared are paths of this host that the task must see even if it has a /tmp and a /dev/shm of its own, because its programs
	// meet a service of the driver there.
	Shared []string
	// Engine says how a container engine is asked for the devices.
	Engine Engine
}

// Closed are the device files of one major number, except those that a task may open.
type Closed struct {
	Major  uint32
	Minors uint32   // how many minor numbers the major number has
	Open   []uint32 // minor numbers that the task may open, sorted
}

// MemoryLimit is the most that a task may take of the memory of one device.
type MemoryLimit struct {
	PCI   string // bus id of the device
	Bytes job.Size
}

// Engine says how a container engine is asked for the devices of a task. It is zero for a task that gets none.
type Engine struct {
	IDs          []string // of the devices, for Driver
	CDI          []string // names of the devices, for an engine that knows them
	Driver       string   // of the engine, if it does not know the names
	Capabilities []string // that Driver is asked for
	Mounts       []string // directories of this host that the container gets at the same paths
}

// ShareOf returns the part of a device that a need asks for: thousandths, and bytes of its memory. It returns false if the
// need is not for a share of one device.
func ShareOf(need job.Resources, d Device) (milli int, memory job.Size, ok bool) {
	milli = Milli(need)
	return milli, Memory(need, d.Memory), milli > 0 && milli < Whole
}
