package leaseclock

// The clocks of this process: the lease clock for decisions, and the wall clock for people.

import (
	"time"
)

// BootTime is a reading of the lease clock. It is the time since this host booted, including the time for which the
// host was suspended, or was paused by a hypervisor. A reading is valid only in this process.
// OnHost converts it to CLOCK_BOOTTIME, which all processes of the host share.
type BootTime time.Duration

// Add returns the reading after d.
func (t BootTime) Add(d time.Duration) BootTime { return t + BootTime(d) }

// Sub returns the time from u to t.
func (t BootTime) Sub(u BootTime) time.Duration { return time.Duration(t - u) }

// OnHost converts t to a reading of CLOCK_BOOTTIME. It also returns the skew, the wall clock minus CLOCK_BOOTTIME, for
// which the result is right. A process that has seen a later pause of this host has to subtract that pause.
func (t BootTime) OnHost() (boot, skew time.Duration) { return thisHost.OnHost(time.Duration(t)) }

// thisHost is the lease clock of this process.
var thisHost = New(Reader())

// Now reads the lease clock. It panics if the system has no CLOCK_BOOTTIME, because no lease can be kept then.
func Now() BootTime { return BootTime(thisHost.Now()) }

// Missed returns the sum of all pauses of this host that Now has seen.
func Missed() time.Duration { return thisHost.Missed() }

// Moment is the time at which an event is handled. Decisions use Boot; Wall is for people.
type Moment struct {
	Boot BootTime
	Wall time.Time
}

// ReadClocks reads the lease clock and the wall clock of this host.
func ReadClocks() Moment { return Moment{Boot: Now(), Wall: time.Now()} }

// SetSince returns by how much the wall clock was set forward between two moments of the same boot.
func (m Moment) SetSince(before Moment) time.Duration {
	return m.Wall.Sub(before.Wall) - m.Boot.Sub(before.Boot)
}
