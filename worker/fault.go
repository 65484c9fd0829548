package worker

// Faults: the errors that a GPU reports, which of them put it into quarantine, and how long it then has to rest.

import (
	"math"
	"time"

	"github.com/musterhq/muster/gpu"
)

// faults are the errors that a GPU has reported.
type faults struct {
	count  int       // times it was put into quarantine for a fault
	last   BootTime  // when it last reported one
	probe  BootTime  // when it may be found sound again
	kept   BootTime  // when last and probe were last written
	probes [2]*timer // that ask the driver for a status
	ecc    int64     // uncorrectable memory errors, as last read; -1: never
}

const (
	// faultPause is how long a GPU rests after a fault before it may be found sound; it doubles with each further fault,
	// up to faultMost.
	faultPause = time.Minute
	faultMost  = time.Hour
	// vouchedPause is the pause after a first fault if the driver says that no recovery is needed.
	vouchedPause = 10 * time.Second
	// faultForgotten is how long a GPU must be well for its faults to be forgotten.
	faultForgotten = 24 * time.Hour
)

// deviceFaults are the Xid errors after which a GPU is not to be trusted.
var deviceFaults = map[uint64]string{
	48: "double-bit memory error", 63: "memory row or page retired", 64: "memory row or page could not be retired",
	74: "NVLink error", 79: "fallen off the bus", 94: "contained memory error", 95: "uncontained memory error",
	119: "firmware does not answer", 120: "firmware error",
}

// programFaults are the Xid errors that a program causes: they say nothing about the GPU.
var programFaults = []uint64{13, 31, 43, 45, 68, 109}

// pause is how long the device has to rest after its newest fault.
func (f *faults) pause() time.Duration {
	return min(faultPause<<min(max(f.count-1, 0), 16), faultMost)
}

// add counts a fault, unless the device is in quarantine for one already.
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

// rested says whether the device may be found sound. A first fault needs little rest if the driver vouches for the device.
func (f *faults) rested(now Moment, s gpu.Status) bool {
	vouched := s.Recovery == gpu.RecoveryNone && f.count == 1 && now.Boot.Sub(f.last) >= vouchedPause
	return vouched || now.Boot >= f.probe
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

// restore takes up what an earlier life of the daemon knew.
func (f *faults) restore(now Moment, was QuarantinedDevice) {
	if was.Faults == 0 {
		return
	}
	f.count = was.Faults
	f.last = now.Boot.Add(max(min(0, was.Last.Sub(now.Wall)), -faultForgotten))
	f.probe = now.Boot.Add(min(max(0, was.Probe.Sub(now.Wall)), f.pause()))
}
