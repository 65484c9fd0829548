package worker

// What is set aside outlives the daemon: a GPU that has failed is not given
// away again because the daemon was started anew.

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Aside is what a worker gives to nobody, and what it holds against the host
// and its GPUs, for the next life of the daemon. Moments are of the host's wall
// clock, which goes on while it reboots. Within one boot they are read by how the
// clock stood when they were written.
type Aside struct {
	Boot    string                 `json:"boot"`          // incarnation of the host
	At      BootTime               `json:"at,omitempty"`  // when it was written
	Wall    time.Time              `json:"wall,omitzero"` // likewise
	Host    Pause                  `json:"host,omitzero"`
	Devices map[string]AsideDevice `json:"devices,omitempty"` // by UUID
}

// AsideDevice is that of one GPU.
type AsideDevice struct {
	Why     map[trouble]string `json:"why,omitempty"`
	Faults  int                `json:"faults,omitempty"`
	Last    time.Time          `json:"last,omitzero"`  // of its faults
	Probe   time.Time          `json:"probe,omitzero"` // when it may be found sound again
	Breaker Pause              `json:"breaker,omitzero"`
	// Foreign are the processes that were on it without any task, Idle the bytes
	// that it used without any process (-1: unknown): memory that is not back is
	// told from theirs.
	Foreign []int `json:"foreign,omitempty"`
	Idle    int64 `json:"idle,omitempty"`
}

// Pause is a breaker that has tripped.
type Pause struct {
	Trips int       `json:"trips"`          // since a task last succeeded
	Until time.Time `json:"until,omitzero"` // when it is tried again; zero: it is
	Why   string    `json:"why,omitempty"`  // of Until
}

// aside is what has to be kept.
func (c *Core) aside(now Moment) Aside {
	out := Aside{Boot: c.cfg.Boot, At: now.Boot, Wall: now.Wall, Host: Pause{Trips: c.breaker.trips}, Devices: map[string]AsideDevice{}}
	if c.broken != "" {
		out.Host.Why, out.Host.Until = c.broken, wall(now, c.brokenUntil)
	}
	for uuid, was := range c.cfg.Aside.Devices { // a GPU that its driver does not list may come back
		was = was.set(now.setSince(c.restored))
		if c.devices[uuid] == nil && now.Wall.Sub(was.Last) < faultForgotten {
			out.Devices[uuid] = was
		}
	}
	for uuid, d := range c.devices {
		if len(d.aside) == 0 && d.faults.count == 0 && d.breaker.trips == 0 {
			continue
		}
		k := AsideDevice{Why: maps.Clone(d.aside), Faults: d.faults.count, Breaker: Pause{Trips: d.breaker.trips}}
		if k.Faults > 0 {
			k.Last, k.Probe = wall(now, d.faults.last), wall(now, d.faults.probe)
		}
		if d.aside[troubleBreaker] != "" {
			k.Breaker.Until = wall(now, d.brokenUntil)
		}
		if d.aside[troubleMemory] != "" {
			k.Foreign, k.Idle = slices.Sorted(maps.Keys(d.foreign)), int64(d.idle)
		}
		out.Devices[uuid] = k
	}
	return out
}

// restoreAside takes up what the life of the daemon before this one had set
// aside.
func (c *Core) restoreAside(now Moment) {
	c.cfg.Aside.read(now, c.cfg.Boot)
	c.restored = now
	was := c.cfg.Aside
	c.breaker.trips = was.Host.Trips
	if left := was.Host.left(now); left > 0 {
		c.pauseHost(now, was.Host.Why, left)
	}
	for _, uuid := range slices.Sorted(maps.Keys(was.Devices)) {
		if d := c.devices[uuid]; d != nil {
			c.restoreDevice(now, d, was.Devices[uuid], was.Boot == c.cfg.Boot)
		}
	}
}

func (c *Core) restoreDevice(now Moment, d *device, was AsideDevice, sameBoot bool) {
	d.breaker.trips = was.Breaker.Trips
	if was.Faults > 0 {
		f := &d.faults
		f.count = was.Faults
		f.last = now.Boot.Add(max(min(0, was.Last.Sub(now.Wall)), -faultForgotten))
		f.probe = now.Boot.Add(min(max(0, was.Probe.Sub(now.Wall)), f.pause()))
	}
	for _, t := range slices.Backward(troubles) {
		why, aside := was.Why[t]
		if !aside {
			continue
		}
		switch t {
		case troubleFault:
			c.setAside(d, t, why)
			c.armProbe(d)
		case troubleMemory:
			if !sameBoot { // no process outlives a reboot
				continue
			}
			d.foreign, d.idle = map[int]bool{}, job.Size(was.Idle)
			for _, pid := range was.Foreign {
				d.foreign[pid] = true
			}
			c.setAside(d, t, why)
		case troubleBreaker:
			if left := was.Breaker.left(now); left > 0 {
				c.pauseDevice(now, d, why, left)
			}
		case troubleHealth:
			c.setAside(d, t, why)
		}
	}
}

// read has the moments say what they say by the wall clock as it stands now, if
// that was set since they were written.
func (a *Aside) read(now Moment, boot string) {
	if a.Boot != boot || a.Wall.IsZero() {
		return // written in another boot, or by an older daemon: only the wall clock is left
	}
	d := now.setSince(Moment{Boot: a.At, Wall: a.Wall})
	a.Host, a.Devices = a.Host.set(d), maps.Clone(a.Devices)
	for uuid, was := range a.Devices {
		a.Devices[uuid] = was.set(d)
	}
}

// set is the same after the wall clock was set forward by d.
func (a AsideDevice) set(d time.Duration) AsideDevice {
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

// left is how much of the pause is to come: never more than it had from its
// beginning, wherever the clock was set meanwhile.
func (p Pause) left(now Moment) time.Duration {
	if p.Until.IsZero() {
		return 0
	}
	return min(p.Until.Sub(now.Wall), pauseAfter(p.Trips-1))
}

// wall is a moment of this boot by the wall clock.
func wall(now Moment, at BootTime) time.Time { return now.Wall.Add(at.Sub(now.Boot)).UTC() }
