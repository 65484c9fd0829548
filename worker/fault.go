package worker

// Faults: the errors that a GPU reports, which of them put it into quarantine, and how long the quarantine lasts.

import (
	"math"
	"time"

	"github.com/musterhq/muster/gpu"
)

// faults are the errors that a GPU has reported.
type faults struct {
	count  int       // how often it was put into quarantine for a fault
	last   BootTime  // when it last reported a fault
	probe  BootTime  // when the quarantine may end
	kept   BootTime  // when last and probe were last written
	probes [2]*timer // request a status from the driver
	ecc    int64     // uncorrectable memory errors when they were last read; -1: never read
}

const (
	// faultPause is the minimum length of a quarantine for a fault. It doubles with each further fault, up to faultMost.
	faultPause = time.Minute
	faultMost  = time.Hour
	// noRecoveryPause replaces faultPause after a first fault if the driver says that no recovery is needed.
	noRecoveryPause = 10 * time.Second
	// faultForgotten is how long a GPU must be without faults for earlier ones to be forgotten.
	faultForgotten = 24 * time.Hour
)

// deviceFaults are the Xid errors that put a GPU into quarantine, after NVIDIA's catalogue: those whose remedy is a reset of
// the GPU or more, and those of NVLink, whose remedy depends on details that only the driver knows.
var deviceFaults = map[uint64]string{
	46: "stopped processing", 48: "double-bit memory error", 62: "micro-controller halted", 63: "memory row or page retired",
	64: "memory row or page could not be retired", 74: "NVLink error", 79: "fallen off the bus", 94: "contained memory error",
	95: "uncontained memory error", 109: "context switch timed out", 110: "security fault", 119: "firmware does not answer",
	120: "firmware error", 136: "NVLink training failed", 140: "unrecovered memory error", 143: "initialization failed",
	144: "NVLink error", 145: "NVLink error", 146: "NVLink error", 147: "NVLink error", 148: "NVLink error", 149: "NVLink error",
	150: "NVLink error", 155: "NVLink error", 156: "resource retired", 158: "fatal timeout",
}

// programFaults are the Xid errors that a program causes. They say nothing about the GPU.
var programFaults = []uint64{13, 31, 43, 45, 68}

// pause returns the minimum length of the quarantine after the newest fault.
func (f *faults) pause() time.Duration {
	return min(faultPause<<min(max(f.count-1, 0), 16), faultMost)
}

// add records a fault. It counts the fault unless the device is already in quarantine for one.
func (f *faults) add(now Moment, already bool) {
	if !already {
		if f.count > 0 && now.Boot.Sub(f.last) >= faultForgotten {
			f.count = 0
		}
		f.count++
	}
	f.last = now.Boot
	f.probe = now.Boot.Add(f.pause())
}

// pauseOver reports whether the quarantine may end. After a first fault the pause is shorter if the driver says that no
// recovery is needed.
func (f *faults) pauseOver(now Moment, s gpu.Status) bool {
	early := s.Recovery == gpu.RecoveryNone && f.count == 1 && now.Boot.Sub(f.last) >= noRecoveryPause
	return early || now.Boot >= f.probe
}

// newErrors returns the uncorrectable memory errors since the last status.
func (f *faults) newErrors(s gpu.Status) int64 {
	before := f.ecc
	f.ecc = int64(min(s.ECC, math.MaxInt64))
	if before < 0 {
		return 0
	}
	return max(0, f.ecc-before)
}

// restore loads what an earlier run of the daemon has saved.
func (f *faults) restore(now Moment, was QuarantinedDevice) {
	if was.Faults == 0 {
		return
	}
	f.count = was.Faults
	f.last = now.Boot.Add(max(min(0, was.Last.Sub(now.Wall)), -faultForgotten))
	f.probe = now.Boot.Add(min(max(0, was.Probe.Sub(now.Wall)), f.pause()))
}
