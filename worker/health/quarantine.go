package health

// Quarantine: GPUs that no task gets for now. The quarantine is saved on disk, so that a restart of the daemon does not
// end it.

import (
	"maps"
	"time"

	"github.com/musterhq/muster/worker/leaseclock"
)

// cause is why a device is in quarantine. The names are also those on disk.
type cause string

const (
	causeHealth  cause = "health"  // the driver reports it as unhealthy
	causeMemory  cause = "memory"  // the memory of an ended task is not free
	causeFault   cause = "fault"   // it reported a fault; a probe ends this
	causeBreaker cause = "breaker" // different jobs failed on it; this ends after a pause
	causeUnknown cause = "unknown" // the driver says nothing about it; this is not saved on disk
)

// causes lists all causes, the most informative first.
var causes = []cause{causeFault, causeHealth, causeMemory, causeBreaker, causeUnknown}

// Quarantine is what is saved for the next run of the daemon: the GPUs in quarantine, and the failures that count against
// the host and its GPUs. Times are on the host's wall clock, because that goes on during a reboot. At and Wall are both
// clocks at the time of writing. Within one boot they show by how much the wall clock was set since.
type Quarantine struct {
	Boot    string                       `json:"boot"`          // boot of the host
	At      leaseclock.BootTime          `json:"at,omitempty"`  // the lease clock when this was written
	Wall    time.Time                    `json:"wall,omitzero"` // the wall clock when this was written
	Host    Pause                        `json:"host,omitzero"`
	Devices map[string]QuarantinedDevice `json:"devices,omitempty"` // by UUID
}

// QuarantinedDevice is the state of one GPU.
type QuarantinedDevice struct {
	Why     map[cause]string `json:"why,omitempty"`
	Faults  int              `json:"faults,omitempty"`
	Last    time.Time        `json:"last,omitzero"`  // the newest fault
	Probe   time.Time        `json:"probe,omitzero"` // when the quarantine for a fault may end
	Breaker Pause            `json:"breaker,omitzero"`
	// Foreign are the processes that were on it while no task held it. Idle is how many bytes were in use without any
	// process (-1: unknown). What is in use beyond that was left by a task.
	Foreign []int `json:"foreign,omitempty"`
	Idle    int64 `json:"idle,omitempty"`
}

// Pause is the state of a breaker.
type Pause struct {
	Trips int       `json:"trips"`          // pauses since the last success
	Until time.Time `json:"until,omitzero"` // when the present pause ends; zero: there is none
	Why   string    `json:"why,omitempty"`  // reason of the present pause
}

// read corrects the times by how much the wall clock was set since they were written.
func (q *Quarantine) read(now leaseclock.Moment, boot string) {
	if q.Boot != boot || q.Wall.IsZero() {
		return // written in another boot, or by an older daemon: the change of the wall clock is not known
	}
	d := now.SetSince(leaseclock.Moment{Boot: q.At, Wall: q.Wall})
	q.Host, q.Devices = q.Host.set(d), maps.Clone(q.Devices)
	for uuid, was := range q.Devices {
		q.Devices[uuid] = was.set(d)
	}
}

// endProcesses drops what is over with the boot of the host that wrote it: no process outlives a reboot.
func (q *Quarantine) endProcesses() {
	q.Devices = maps.Clone(q.Devices)
	for uuid, was := range q.Devices {
		was.Why = maps.Clone(was.Why)
		delete(was.Why, causeMemory)
		was.Foreign, was.Idle = nil, 0
		q.Devices[uuid] = was
	}
}

// set returns the state with all times corrected for a wall clock that was set forward by d.
func (a QuarantinedDevice) set(d time.Duration) QuarantinedDevice {
	if !a.Last.IsZero() {
		a.Last = a.Last.Add(d)
	}
	if !a.Probe.IsZero() {
		a.Probe = a.Probe.Add(d)
	}
	a.Breaker = a.Breaker.set(d)
	return a
}

func (p Pause) set(d time.Duration) Pause {
	if !p.Until.IsZero() {
		p.Until = p.Until.Add(d)
	}
	return p
}

// left returns how much of the pause is left. It is never more than the length of the pause, even if the clock was set
// back.
func (p Pause) left(now leaseclock.Moment) time.Duration {
	if p.Until.IsZero() {
		return 0
	}
	return min(p.Until.Sub(now.Wall), pauseAfter(p.Trips-1))
}

// wall converts a time of this boot to the wall clock.
func wall(now leaseclock.Moment, at leaseclock.BootTime) time.Time {
	return now.Wall.Add(at.Sub(now.Boot)).UTC()
}
