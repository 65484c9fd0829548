package worker

// Quarantine: what is given to nobody until it is found sound. It is kept on disk, so that a GPU that has failed is not
// given away again because the daemon was restarted.

import (
	"maps"
	"time"
)

// trouble is why a device is in quarantine. On disk it has the same name.
type trouble string

const (
	troubleHealth  trouble = "health"  // until its driver calls it healthy
	troubleMemory  trouble = "memory"  // until a task's memory is back
	troubleFault   trouble = "fault"   // until a probe finds it sound
	troubleBreaker trouble = "breaker" // for a while after failures of different jobs
)

// troubles are all of them, those that tell most first.
var troubles = []trouble{troubleFault, troubleHealth, troubleMemory, troubleBreaker}

// Quarantine is which GPUs a worker gives to nobody, and the failures that it counts against the host and its GPUs, for
// the next life of the daemon. Moments are of the host's wall clock, which goes on during a reboot. At and Wall are both
// clocks at the moment of writing: within one boot they show by how much the wall clock was set since.
type Quarantine struct {
	Boot    string                       `json:"boot"`          // incarnation of the host
	At      BootTime                     `json:"at,omitempty"`  // when it was written
	Wall    time.Time                    `json:"wall,omitzero"` // likewise
	Host    Pause                        `json:"host,omitzero"`
	Devices map[string]QuarantinedDevice `json:"devices,omitempty"` // by UUID
}

// QuarantinedDevice is the state of one GPU.
type QuarantinedDevice struct {
	Why     map[trouble]string `json:"why,omitempty"`
	Faults  int                `json:"faults,omitempty"`
	Last    time.Time          `json:"last,omitzero"`  // of its faults
	Probe   time.Time          `json:"probe,omitzero"` // when it may be found sound again
	Breaker Pause              `json:"breaker,omitzero"`
	// Foreign are the processes that were on it without any task, Idle the bytes that it used without any process (-1:
	// unknown). What is on it beyond that was left by a task.
	Foreign []int `json:"foreign,omitempty"`
	Idle    int64 `json:"idle,omitempty"`
}

// Pause is a breaker that has tripped.
type Pause struct {
	Trips int       `json:"trips"`          // since a task last succeeded
	Until time.Time `json:"until,omitzero"` // when it is tried again; zero: it is
	Why   string    `json:"why,omitempty"`  // of Until
}

// read corrects the moments by how much the wall clock was set since they were written.
func (q *Quarantine) read(now Moment, boot string) {
	if q.Boot != boot || q.Wall.IsZero() {
		return // written in another boot, or by an older daemon: only the wall clock is left
	}
	d := now.setSince(Moment{Boot: q.At, Wall: q.Wall})
	q.Host, q.Devices = q.Host.set(d), maps.Clone(q.Devices)
	for uuid, was := range q.Devices {
		q.Devices[uuid] = was.set(d)
	}
}

// set returns the same after the wall clock was set forward by d.
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

// left is how much of the pause is to come: never more than its whole length, even if the clock was set back.
func (p Pause) left(now Moment) time.Duration {
	if p.Until.IsZero() {
		return 0
	}
	return min(p.Until.Sub(now.Wall), pauseAfter(p.Trips-1))
}

// wall is a moment of this boot by the wall clock.
func wall(now Moment, at BootTime) time.Time { return now.Wall.Add(at.Sub(now.Boot)).UTC() }
