// Package nvml reports NVIDIA GPUs through NVIDIA's management library.
//
// The library is called only in a child process (Serve). A faulty GPU can hang a process that calls the library, and a
// symbol that the installed library lacks ends the process. In the daemon, Driver starts the child, sets a deadline for
// each answer, kills a child that does not answer, and starts another one after a pause.
//
// The two exchange JSON objects, one per line. The child first sends hello, which says why there is no driver if
// there is none. Then each request {id, op, skip} gets one reply {id, …}. Before the child turns to a card, it says so
// (at), because each card has a deadline of its own: one that sleeps takes seconds to wake, and one that hangs must not
// take the others with it. The next child is told to skip that one. Faults are sent between replies as they happen. The
// child ends when its input ends.
//
// The package builds without cgo, or with the tag nonvml. Then Serve reports that it was built without NVML, and
// hosts have no GPU.
package nvml

import (
	"github.com/musterhq/muster/gpu"
)

// What a person can do about a driver that does not work, or that is not there.
const (
	AdviceBroken  = "compare with nvidia-smi; after an upgrade of the driver load its kernel module again, or reboot"
	AdviceMissing = "on a host with NVIDIA GPUs install the driver, so that nvidia-smi lists them"
)

const (
	// maxRequest bounds a line to the child.
	maxRequest = 4 << 10
	// maxMessage bounds a line from the child. 64 devices with their links and thousands of processes need a tenth of
	// it.
	maxMessage = 4 << 20
	// maxDevices bounds the devices that a child may list.
	maxDevices = 1024
)

// op is the kind of a request.
type op string

const (
	opList   op = "list"
	opStatus op = "status"
)

// request is a line to the child.
type request struct {
	ID   uint64 `json:"id"`
	Op   op     `json:"op"`
	Skip []int  `json:"skip,omitempty"` // cards that are not to be touched, by index
}

// message is a line from the child; exactly one field is set.
type message struct {
	Hello *hello     `json:"hello,omitempty"`
	At    *at        `json:"at,omitempty"`
	Reply *reply     `json:"reply,omitempty"`
	Fault *gpu.Fault `json:"fault,omitempty"`
}

// hello is the child's first line.
type hello struct {
	None  string `json:"none,omitempty"`  // why this host has no NVIDIA GPU; the child then ends
	Error string `json:"error,omitempty"` // why the library does not work; the child then ends
}

// at says to which card the child turns.
type at struct {
	Card int  `json:"card"`           // index
	Wake bool `json:"wake,omitempty"` // the card may sleep
}

// reply answers the request with the same ID.
type reply struct {
	ID       uint64       `json:"id"`
	Error    string       `json:"error,omitempty"`
	Devices  []gpu.Device `json:"devices,omitempty"`
	Statuses []gpu.Status `json:"statuses,omitempty"` // in the order of the last list
	Notes    []string     `json:"notes,omitempty"`    // devices that could not be listed, and why
	// Library is the file of the library that the child has loaded. When it is replaced, another child is started.
	Library string `json:"library,omitempty"`
}
