package worker

// Faults: errors that a GPU reports, which of them take it out, and the probe
// that brings it back.

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
)

// faults is what a GPU has suffered.
type faults struct {
	count int // times it was set aside for a fault, the last of them
	last  BootTime
	probe BootTime // when it may be found sound again
	kept  BootTime // when last and probe were last asked to be written
	asks  [2]*timer
	ecc   int64 // uncorrectable memory errors, as last read; -1: never
}

const (
	// faultPause is how long a GPU rests after a fault before it may be found
	// sound; it doubles with each further fault, up to faultMost.
	faultPause = time.Minute
	faultMost  = time.Hour
	// vouchedPause is the pause after a first fault of which the driver says that
	// nothing has to be done about it.
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

// programFaults are those that programs cause by themselves.
var programFaults = []uint64{13, 31, 43, 45, 68, 109}

// deviceFault hears of an error. Whatever it is, the driver is asked at once
// what it wants done: its own word goes before any list of numbers.
func (c *Core) deviceFault(now Moment, f gpu.Fault) {
	c.out.Poll = true
	text, bad := deviceFaults[f.Xid]
	switch {
	case slices.Contains(programFaults, f.Xid):
		return
	case !bad:
		c.say(slog.LevelWarn, "a device reported an error", slog.String("device", f.UUID), slog.Uint64("xid", f.Xid))
		return
	case f.UUID == "":
		c.say(slog.LevelError, "a device reported a fault, the driver does not say which", slog.Uint64("xid", f.Xid))
		return
	}
	for _, g := range c.cfg.Profile.GPUs {
		if d := c.devices[g.UUID]; d != nil && (g.UUID == f.UUID || g.Parent == f.UUID) {
			c.fault(now, d, fmt.Sprintf("xid %d (%s)", f.Xid, text))
		}
	}
}

// fault sets a device aside until a probe finds it sound. A fault often comes
// as a swarm of reports: they count as one.
func (c *Core) fault(now Moment, d *device, why string) {
	f := &d.faults
	if _, already := d.aside[troubleFault]; !already {
		if f.count > 0 && now.Boot.Sub(f.last) >= faultForgotten {
			f.count = 0
		}
		f.count++
		c.setAside(d, troubleFault, why)
	}
	if now.Boot.Sub(f.kept) >= vouchedPause { // a swarm is not written one by one
		f.kept, c.asideNew = now.Boot, true
	}
	f.last = now.Boot
	f.probe = now.Boot.Add(f.pause())
	c.armProbe(d)
}

// armProbe has the driver asked when the device may be found sound.
func (c *Core) armProbe(d *device) {
	ask := func(Moment) { c.out.Poll = c.out.Poll || d.aside[troubleFault] != "" }
	for i, at := range []BootTime{d.faults.last.Add(vouchedPause), d.faults.probe} {
		c.timers.stop(d.faults.asks[i])
		d.faults.asks[i] = c.timers.set(at, ask)
	}
}

func (f *faults) pause() time.Duration {
	return min(faultPause<<min(max(f.count-1, 0), 16), faultMost)
}

// probe looks at the newest status of a device: for memory errors that no Xid
// told of, and, if it is set aside for a fault, whether it is sound again: its
// driver answers, finds it healthy and asks for nothing to be done, no task
// is on it, and it has rested.
func (c *Core) probe(now Moment, d *device, s gpu.Status) {
	errors := int64(min(s.ECC, math.MaxInt64))
	if before := d.faults.ecc; before >= 0 && errors > before {
		c.fault(now, d, fmt.Sprintf("%d uncorrectable memory errors", errors-before))
	}
	d.faults.ecc = errors
	if _, aside := d.aside[troubleFault]; !aside || c.holders[d.UUID] > 0 || s.Health != gpu.Healthy {
		return
	}
	vouched := s.Recovery == gpu.RecoveryNone && d.faults.count == 1 && now.Boot.Sub(d.faults.last) >= vouchedPause
	if vouched || now.Boot >= d.faults.probe {
		c.clear(d, troubleFault)
	}
}
