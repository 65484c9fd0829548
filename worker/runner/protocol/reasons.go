package protocol

// Reasons of ends that users read.

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// EndOutOfMemory changes an exit to OUT_OF_MEMORY, because the kernel ended a process of the task for lack of memory. On
// some hosts the kernel ends only that process, and the main process may still exit with 0. Then the code becomes that of
// KILL. limit is what the task had asked for, or 0. reached says that it had reached that limit: the memory of the node
// may have run out too, which is not known.
func EndOutOfMemory(exit *job.Exit, limit job.Size, reached bool) {
	const killed = job.ExitSignal + int(unix.SIGKILL)
	text := "the kernel ended it for lack of memory"
	if exit.Code != killed {
		text = fmt.Sprintf("the kernel ended a process of it for lack of memory (its main process exited with %d)", exit.Code)
	}
	if exit.Code == 0 {
		exit.Code = killed
	}
	exit.State = job.OutOfMemory
	switch {
	case limit > 0 && reached:
		exit.Reason = text + ": it reached its limit of " + limit.String() + "; give it more with --mem"
	case limit > 0:
		exit.Reason = text + ": it had asked for " + limit.String() + "; give it more with --mem"
	default:
		exit.Reason = text + ": it had asked for none; set some aside for it with --mem"
	}
}
