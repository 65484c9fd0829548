package state

// How much memory a job holds. Each part counts its own memory, in the file of its type.

import "unsafe"

const jobBytes = int(unsafe.Sizeof(Job{}))

// Memory returns about how many bytes of memory the job holds now, without its job file. It takes the same time for a job
// of any size.
func Memory(j *Job) int {
	ts := &j.tasks
	return jobBytes + len(j.Cancelled) + j.acts.bytes() + j.Waits.bytes() + ts.chunked.bytes() + ts.common.bytes() + ts.history.held
}
