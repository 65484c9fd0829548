package worker

// Health: which failures are blamed on the host and which on its GPUs, and what of that outlives the daemon.

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// health is what speaks against the host and its devices.
type health struct {
	turn    *turn
	boot    string // this incarnation of the host
	host    hostBreaker
	devices devices
	before  Quarantine // what an earlier life of the daemon has left
	began   Moment     // when before was read
}

func newHealth(cfg *Config, t *turn, a *account) *health {
	h := &health{
		turn: t, boot: cfg.Boot, host: hostBreaker{turn: t}, before: cfg.Quarantine,
		devices: devices{turn: t, account: a, by: map[string]*device{}},
	}
	h.devices.learn(cfg.Profile.GPUs)
	return h
}

// judge takes how an attempt ended; fast says that it began a moment ago. What is blamed on a GPU is not blamed on the
// host.
func (h *health) judge(now Moment, rec *lease.Record, fast bool, exit job.Exit) {
	if exit.State == job.Succeeded {
		h.forgive(rec.Devices)
		return
	}
	if exit.State != job.Failed || exit.Started && !fast {
		return
	}
	f := failure{job: rec.Attempt.Job, user: rec.User, ours: !exit.Started && exit.Code == exitOurs, on: rec.Devices}
	blamed := false
	for _, uuid := range rec.Devices {
		d := h.devices.by[uuid]
		if d == nil || f.ours {
			continue
		}
		if h.devices.fail(now, d, f) {
			h.host.failures = slices.DeleteFunc(h.host.failures, func(f failure) bool { return slices.Contains(f.on, uuid) })
			blamed = true
		}
	}
	if !blamed {
		h.host.fail(now, f)
	}
}

// forgive forgets the failures of the host and of these devices: a task has succeeded.
func (h *health) forgive(devices []string) {
	kept := h.host.forget()
	for _, uuid := range devices {
		if d := h.devices.by[uuid]; d != nil {
			kept = d.breaker.forget() || kept
		}
	}
	h.turn.keep = h.turn.keep || kept
}

// restore gives the host and all its devices another chance: a person has looked at them.
func (h *health) restore() {
	h.forgive(nil)
	h.host.resume()
	for _, uuid := range slices.Sorted(maps.Keys(h.devices.by)) {
		h.devices.restore(uuid)
	}
}

// record is what the next life of the daemon has to know.
func (h *health) record(now Moment) Quarantine {
	out := Quarantine{Boot: h.boot, At: now.Boot, Wall: now.Wall, Host: Pause{Trips: h.host.trips}, Devices: map[string]QuarantinedDevice{}}
	if h.host.why != "" {
		out.Host.Why, out.Host.Until = h.host.why, wall(now, h.host.until)
	}
	for uuid, was := range h.before.Devices { // a GPU that its driver does not list may come back
		was = was.set(now.setSince(h.began))
		if h.devices.by[uuid] == nil && now.Wall.Sub(was.Last) < faultForgotten {
			out.Devices[uuid] = was
		}
	}
	for uuid, d := range h.devices.by {
		if len(d.quarantine) == 0 && d.faults.count == 0 && d.breaker.trips == 0 {
			continue
		}
		k := QuarantinedDevice{Why: maps.Clone(d.quarantine), Faults: d.faults.count, Breaker: Pause{Trips: d.breaker.trips}}
		if k.Faults > 0 {
			k.Last, k.Probe = wall(now, d.faults.last), wall(now, d.faults.probe)
		}
		if d.quarantine[troubleBreaker] != "" {
			k.Breaker.Until = wall(now, d.brokenUntil)
		}
		if d.quarantine[troubleMemory] != "" {
			k.Foreign, k.Idle = slices.Sorted(maps.Keys(d.foreign)), int64(d.idle)
		}
		out.Devices[uuid] = k
	}
	return out
}

// takeUp goes on with what an earlier life of the daemon has left.
func (h *health) takeUp(now Moment) {
	h.before.read(now, h.boot)
	h.began = now
	was := h.before
	h.host.trips = was.Host.Trips
	if left := was.Host.left(now); left > 0 {
		h.host.pause(now, was.Host.Why, left)
	}
	for _, uuid := range slices.Sorted(maps.Keys(was.Devices)) {
		if d := h.devices.by[uuid]; d != nil {
			h.takeUpDevice(now, d, was.Devices[uuid], was.Boot == h.boot)
		}
	}
}

func (h *health) takeUpDevice(now Moment, d *device, was QuarantinedDevice, sameBoot bool) {
	d.breaker.trips = was.Breaker.Trips
	d.faults.restore(now, was)
	for _, t := range slices.Backward(troubles) {
		why, there := was.Why[t]
		if !there {
			continue
		}
		switch t {
		case troubleFault:
			h.devices.put(d, t, why)
			h.devices.armProbe(d)
		case troubleMemory:
			if !sameBoot { // no process outlives a reboot
				continue
			}
			d.foreign, d.idle = map[int]bool{}, job.Size(was.Idle)
			for _, pid := range was.Foreign {
				d.foreign[pid] = true
			}
			h.devices.put(d, t, why)
		case troubleBreaker:
			if left := was.Breaker.left(now); left > 0 {
				h.devices.pause(now, d, why, left)
			}
		case troubleHealth:
			h.devices.put(d, t, why)
		}
	}
}

// quarantined is why devices are given to nobody, by UUID.
func (h *health) quarantined() map[string]string {
	out := map[string]string{}
	for uuid := range h.devices.by {
		if why := h.devices.account.capacity.gpus.Quarantined(uuid); why != "" {
			out[uuid] = why
		}
	}
	return out
}
