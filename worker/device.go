package worker

// GPUs as they are: whether they are sound, who else uses them, and whether a
// task's memory is back after its end.

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// device is what a worker knows about one GPU beyond who holds it.
type device struct {
	gpu.Device
	aside       map[trouble]string
	foreign     map[int]bool // processes that were there without any task
	idle        job.Size     // memory used without any task or process; -1 unknown
	breaker     breaker
	brokenUntil BootTime // of troubleBreaker
	faults      faults
}

// trouble is why a device is given to nobody. On disk it has the same name.
type trouble string

const (
	troubleHealth  trouble = "health"  // until its driver calls it healthy
	troubleMemory  trouble = "memory"  // until a task's memory is back
	troubleFault   trouble = "fault"   // until a probe finds it sound
	troubleBreaker trouble = "breaker" // for a while after failures of different jobs
)

// troubles are all of them, those that tell most first.
var troubles = []trouble{troubleFault, troubleHealth, troubleMemory, troubleBreaker}

// unlisted is what a device may use for itself before memory that belongs to no
// listed process counts as taken.
const unlisted = job.Size(1 << 30)

// learnDevices takes up the devices of the profile; those that are gone are
// forgotten once nobody holds them.
func (c *Core) learnDevices() {
	listed := map[string]bool{}
	for _, g := range c.cfg.Profile.GPUs {
		listed[g.UUID] = true
		if d := c.devices[g.UUID]; d != nil {
			d.Device = g
			continue
		}
		c.devices[g.UUID] = &device{Device: g, aside: map[trouble]string{}, idle: -1, faults: faults{ecc: -1}}
	}
	maps.DeleteFunc(c.devices, func(uuid string, _ *device) bool { return !listed[uuid] && c.holders[uuid] == 0 })
}

func (c *Core) setAside(d *device, t trouble, why string) {
	if d.aside[t] == why {
		return
	}
	d.aside[t] = why
	c.asideNew = true
	c.room.gpus.Quarantine(d.UUID, why)
	c.say(slog.LevelError, "device set aside", slog.String("device", d.UUID), slog.String("reason", why))
	c.touch()
}

// clear ends one trouble of a device; it is given away again when none is left.
func (c *Core) clear(d *device, t trouble) {
	if _, ok := d.aside[t]; !ok {
		return
	}
	delete(d.aside, t)
	c.asideNew = true
	for _, left := range troubles {
		if why, ok := d.aside[left]; ok {
			c.room.gpus.Quarantine(d.UUID, why)
			return
		}
	}
	c.room.gpus.EndQuarantine(d.UUID)
	c.say(slog.LevelInfo, "device is given away again", slog.String("device", d.UUID))
	c.touch()
	c.look = true
}

func (c *Core) deviceRestored(uuid string) {
	if d := c.devices[uuid]; d != nil {
		d.breaker, d.faults, c.asideNew = breaker{}, faults{ecc: d.faults.ecc, asks: d.faults.asks}, true
		for _, t := range troubles {
			c.clear(d, t)
		}
	}
}

func (c *Core) deviceStatus(now Moment, list []gpu.Status) {
	ours := map[string]bool{} // whether a task's memory is not back
	for _, s := range list {
		d := c.devices[s.UUID]
		if d == nil {
			continue
		}
		switch s.Health {
		case gpu.Unhealthy:
			c.setAside(d, troubleHealth, lease.Clip("unhealthy: "+s.Detail))
		case gpu.Healthy:
			c.clear(d, troubleHealth)
		case gpu.Unknown:
		}
		c.probe(now, d, s)
		ours[s.UUID] = !c.account(d, s)
	}
	for _, a := range c.waitingAttempts() {
		for uuid := range a.waits {
			if dirty, seen := ours[uuid]; seen && !dirty {
				delete(a.waits, uuid)
			}
		}
		if len(a.waits) == 0 {
			c.finish(now, a, *a.rec.Exit)
		}
	}
}

func (c *Core) waitingAttempts() []*attempt {
	out := make([]*attempt, 0, len(c.awaiting))
	for _, a := range c.awaiting {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
	return out
}

// account notes what programs of others use of a device, and says whether
// nothing is left on it of a task that ended. While no task holds it, whatever
// is on it is of others.
func (c *Core) account(d *device, s gpu.Status) (back bool) {
	back = true
	for _, p := range s.Processes {
		back = back && d.foreign[p.PID]
	}
	if len(s.Processes) == 0 && d.idle >= 0 && c.mps == "" { // a server of MPS keeps what it has
		back = s.MemoryUsed <= d.idle+gpu.ForeignLimit
	}
	_, stuck := d.aside[troubleMemory]
	switch {
	case stuck && back:
		c.clear(d, troubleMemory)
	case c.holders[d.UUID] > 0 || stuck:
		return back
	}
	d.foreign = nil
	var used job.Size
	for _, p := range s.Processes {
		if d.foreign == nil {
			d.foreign = map[int]bool{}
		}
		d.foreign[p.PID] = true
		used += p.Memory
	}
	if len(s.Processes) == 0 {
		d.idle = s.MemoryUsed
		if s.MemoryUsed > unlisted {
			used = s.MemoryUsed
		}
	}
	c.room.gpus.Foreign(d.UUID, used)
	c.touch()
	c.look = true
	return back
}

// await ends an attempt whose processes are gone as soon as the memory of its
// devices is back. Only real devices are waited for that no other task shares:
// its memory could not be told from theirs.
func (c *Core) await(now Moment, a *attempt) {
	waits := map[string]bool{}
	for _, uuid := range a.rec.Devices {
		if d := c.devices[uuid]; d != nil && !d.Simulated && c.holders[uuid] == 1 {
			waits[uuid] = true
		}
	}
	if len(waits) == 0 || !a.rec.Exit.Started {
		c.finish(now, a, *a.rec.Exit)
		return
	}
	a.waits = waits
	c.awaiting[a.rec.Attempt] = a
	c.poll(now)
	c.timers.set(now.Boot.Add(backWithin), func(now Moment) {
		if c.awaiting[a.rec.Attempt] == a {
			c.giveUp(now, a)
		}
	})
}

// giveUp sets aside the devices whose memory did not come back; the host goes on.
func (c *Core) giveUp(now Moment, a *attempt) {
	for uuid := range a.waits {
		if d := c.devices[uuid]; d != nil {
			c.setAside(d, troubleMemory, "memory was not given back by "+a.rec.Attempt.String())
		}
	}
	c.finish(now, a, *a.rec.Exit)
}

// poll asks for a status now, and again as long as an attempt waits for one.
func (c *Core) poll(now Moment) {
	c.out.Poll = true
	if c.polling {
		return
	}
	c.polling = true
	c.timers.set(now.Boot.Add(pollAgain), func(now Moment) {
		c.polling = false
		if len(c.awaiting) > 0 {
			c.poll(now)
		}
	})
}
