package nvidia

// Xid errors, after NVIDIA's catalogue.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
)

// deviceXids are the errors of a GPU itself: those whose remedy is a reset of the GPU or more, and those of NVLink, whose
// remedy depends on details that only the driver knows.
var deviceXids = map[uint64]string{
	46: "stopped processing", 48: "double-bit memory error", 62: "micro-controller halted", 63: "memory row or page retired",
	64: "memory row or page could not be retired", 74: "NVLink error", 79: "fallen off the bus", 94: "contained memory error",
	95: "uncontained memory error", 109: "context switch timed out", 110: "security fault", 119: "firmware does not answer",
	120: "firmware error", 136: "NVLink training failed", 140: "unrecovered memory error", 143: "initialization failed",
	144: "NVLink error", 145: "NVLink error", 146: "NVLink error", 147: "NVLink error", 148: "NVLink error", 149: "NVLink error",
	150: "NVLink error", 155: "NVLink error", 156: "resource retired", 158: "fatal timeout",
}

// programXids are the errors that a program causes.
var programXids = []uint64{13, 31, 43, 45, 68}

// Xid returns the fault for an Xid error.
func Xid(uuid string, number uint64, at time.Time) gpu.Fault {
	f := gpu.Fault{UUID: uuid, Code: number, Text: fmt.Sprintf("xid %d", number), At: at}
	if what, bad := deviceXids[number]; bad {
		f.Severity, f.Text = gpu.SeverityDevice, fmt.Sprintf("xid %d (%s)", number, what)
	} else if slices.Contains(programXids, number) {
		f.Severity = gpu.SeverityProgram
	}
	return f
}
