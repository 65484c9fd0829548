package protocol

// Reasons of ends that users read.

import "github.com/musterhq/muster/job"

// OutOfMemory is the reason of a task that the kernel ended for lack of memory. limit is what it had asked for, or 0.
// reached says that it had reached that limit: the memory of the node may have run out too, which is not known.
func OutOfMemory(limit job.Size, reached bool) string {
	const text = "the kernel ended it for lack of memory"
	switch {
	case limit > 0 && reached:
		return text + ": it reached its limit of " + limit.String() + "; give it more with --mem"
	case limit > 0:
		return text + ": it had asked for " + limit.String() + "; give it more with --mem"
	}
	return text + ": it had asked for none; set some aside for it with --mem"
}
