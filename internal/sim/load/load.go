// Package load has the input of a simulation: the machines of a cluster, and the jobs that arrive there.
//
// The package counts CPUs in thousandths everywhere, also in the specs of jobs, because public traces ask for parts of
// a CPU.
package load

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Load is a cluster and the work for it. Jobs are in the order of their submission.
type Load struct {
	Machines []Machine
	Jobs     []Job
}

// Machine is a host.
type Machine struct {
	Name         string
	CPUs         int // thousandths
	Memory       job.Size
	GPUs         int
	Model        string            // of its GPUs; empty if it has none
	DeviceMemory job.Size          // of each GPU
	Labels       map[string]string // as "rack"; nil if it has none
}

// Job is one job: when it arrives, what it asks for, and how long it runs.
type Job struct {
	Name   string // as its source names it
	User   string
	Class  string        // by which results are grouped; may be empty
	Submit time.Duration // from the beginning of the simulation
	Runs   time.Duration // of each of its tasks, on the GPUs that it asks for
	Bytes  int64         // of its files, which travel to each of its hosts
	Spec   job.Spec      // CPUs in thousandths; the command is not run
}
