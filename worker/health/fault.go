package health

// Faults: the errors of a GPU, and how long they keep it in quarantine. Its driver says which errors are of the GPU itself.

import (
	"math"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// faults are the errors that a GPU has reported.
type faults struct {
	count  int                 // how often it was put into quarantine for a fault
	last   leaseclock.BootTime // when it last reported a fault
	probe  leaseclock.BootTime // when the quarantine may end
	kept   leaseclock.BootTime // when last and probe were last written
	probes [2]*step.Timer      // request a status from the driver
	ecc    int64               // uncorrectable memory errors when they were last read; -1: never read
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

// pause returns the minimum length of the quarantine after the newest fault.
func (f *faults) pause() time.Duration {
	return min(faultPause<<min(max(f.count-1, 0), 16), faultMost)
}

// add records a fault. It counts the fault unless the device is already in quarantine for one.
func (f *faults) add(now leaseclock.Moment, already bool) {
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
func (f *faults) pauseOver(now leaseclock.Moment, s gpu.Status) bool {
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
func (f *faults) restore(now leaseclock.Moment, was QuarantinedDevice) {
	if was.Faults == 0 {
		return
	}
	f.count = was.Faults
	f.last = now.Boot.Add(max(min(0, was.Last.Sub(now.Wall)), -faultForgotten))
	f.probe = now.Boot.Add(min(max(0, was.Probe.Sub(now.Wall)), f.pause()))
}
