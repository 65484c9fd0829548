// Package record defines what happens to jobs in a run of a simulation, as one stream in the order of time. The real
// scheduler and each yardstick write the same records, and all figures are computed from them.
package record

import "time"

// Kind says what has happened.
type Kind string

// The kinds of records.
const (
	Start   Kind = "start"   // a task, or all tasks of a gang, have begun to run
	Preempt Kind = "preempt" // it was ended for another task and will run again; its work so far is kept
	Lost    Kind = "lost"    // a fault has ended it, and it will run again; its work since this start is lost
	Finish  Kind = "finish"  // it has done its work
	Reject  Kind = "reject"  // its job was refused, or has failed for good
)

// Record is one event. Alloc is set for a start.
type Record struct {
	At    time.Duration // virtual, from the beginning of the simulation
	Kind  Kind
	Job   int // index in load.Load.Jobs
	Task  int // of an array; 0 otherwise, and for a gang as a whole
	Alloc []Alloc
}

// Alloc is what a task, or one member of a gang, holds of a machine.
type Alloc struct {
	Machine int   // index in load.Load.Machines
	Devices []int // indices of the GPUs there, in ascending order
	Milli   int   // thousandths of each of these GPUs
	Hops    int   // links between the daemon that accepted the job and the machine; 0: the same host
	Way     Way
}

// Way is what it costs that a task, or a member of a gang, runs on a host other than that of the daemon that accepted
// its job.
type Way struct {
	Path    []int         // the nodes of the network that messages pass, both ends included; nil if that is not known
	Latency time.Duration // of this path, one way
	Bytes   int64         // of files that were brought to the machine for this start
	Waited  time.Duration // for files, whether they came for this start or for an earlier one of the same job
	// Next is the number of links from this member of a gang to the next one; after the last comes the first. It is 0
	// for other tasks, and if the network does not report paths.
	Next int
}

// Sink takes records in the order of time.
type Sink interface {
	Take(r Record)
}

// Log is a Sink that keeps all records.
type Log []Record

// Take keeps the record. Its Alloc must not change afterwards.
func (l *Log) Take(r Record) { *l = append(*l, r) }
