// Package nvml reports NVIDIA GPUs through NVIDIA's management library.
//
// The library is called in a child process only (Serve), because a sick GPU
// can hang the process that calls it, and a symbol that the installed library
// lacks ends it. The daemon has the other half: Driver starts the child, puts
// a deadline on each answer, kills a child that does not answer and starts
// another one after a pause.
//
// The two speak JSON, one object a line. The child says hello first, and
// with it why there is no driver if there is none. Then each request {id, op} gets
// one reply {id, …}, and faults are told between replies as they happen. The
// child ends when its input does.
//
// The package builds without cgo, or with the tag nonvml; then Serve says that
// it was built without NVML, and hosts have no GPU.
package nvml

import (
	"github.com/musterhq/muster/gpu"
)

const (
	// maxRequest bounds a line to the child.
	maxRequest = 4 << 10
	// maxMessage bounds a line from the child: 64 devices with their links and
	// thousands of processes are a tenth of it.
	maxMessage = 4 << 20
	// maxDevices bounds what a child may list.
	maxDevices = 1024
)

// op is what a request asks for.
type op string

const (
	opList   op = "list"
	opStatus op = "status"
)

// request is a line to the child.
type request struct {
	ID uint64 `json:"id"`
	Op op     `json:"op"`
}

// message is a line from the child; one of the fields is set.
type message struct {
	Hello *hello     `json:"hello,omitempty"`
	Reply *reply     `json:"reply,omitempty"`
	Fault *gpu.Fault `json:"fault,omitempty"`
}

// hello is the child's first line.
type hello struct {
	None  string `json:"none,omitempty"`  // why this host has no NVIDIA GPU; the child ends
	Error string `json:"error,omitempty"` // why the library does not work; the child ends
}

// reply answers the request with the same ID.
type reply struct {
	ID       uint64       `json:"id"`
	Error    string       `json:"error,omitempty"`
	Devices  []gpu.Device `json:"devices,omitempty"`
	Statuses []gpu.Status `json:"statuses,omitempty"` // in the order of the last list
	Notes    []string     `json:"notes,omitempty"`    // devices that could not be listed, and why
}
