// Package health says which GPUs of this host may be used, and whether the host itself may: it counts failures and faults, and
// pauses what fails.
package health

// Health: which failures count against the host and which against its GPUs, and what of that is saved on disk. A host on
// which several jobs have failed in a row is paused: it accepts no tasks for a while.

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// Health records the failures of the host and its devices.
type Health struct {
	turn     *step.Turn
	boot     string // this boot of the host
	host     hostBreaker
	devices  devices
	saved    Quarantine        // what an earlier run of the daemon has saved
	loadedAt leaseclock.Moment // when saved was loaded
	unsaved  bool              // the state of a breaker has changed and must be saved
}

// New returns the health of a host with these GPUs. saved is what an earlier run of the daemon has saved.
func New(boot string, gpus []gpu.Device, saved Quarantine, t *step.Turn, a *resources.Account) *Health {
	h := &Health{
		turn: t, boot: boot, host: hostBreaker{turn: t}, saved: saved,
		devices: devices{turn: t, account: a, by: map[string]*device{}},
	}
	h.devices.update(gpus)
	a.CountForeign(h.devices.foreign)
	return h
}

// List replaces the list of devices. What is known of a device that is gone is kept until it is listed again.
func (h *Health) List(now leaseclock.Moment, all []gpu.Device) {
	h.saved, h.loadedAt = h.record(now), now
	for _, d := range h.devices.update(all) {
		if was, known := h.saved.Devices[d.UUID]; known {
			h.loadDevice(now, d, was)
		}
	}
}

// Started notes that the process of an attempt has begun. It returns whether held is to be called if the attempt runs for
// FastFailure, because the host or a device was paused before.
func (h *Health) Started(now leaseclock.Moment, devices []string) (paused bool) {
	if h.host.counts(now.Boot) {
		h.host.started()
	}
	return h.host.trips > 0 || slices.ContainsFunc(devices, func(uuid string) bool {
		d := h.devices.by[uuid]
		return d != nil && d.breaker.trips > 0
	})
}

// Held notes that an attempt that began then has run for FastFailure: the next pause of the host and of its devices is a
// short one again. That does not wait for a success, because a task may run for days.
func (h *Health) Held(began leaseclock.BootTime, devices []string) {
	kept := h.host.counts(began) && h.host.held()
	for _, uuid := range devices {
		if d := h.devices.by[uuid]; d != nil && d.breaker.counts(began) {
			kept = d.breaker.held() || kept
		}
	}
	h.unsaved = h.unsaved || kept
}

// Attribute records the exit of an attempt that began then; 0: that is not known. A failure counts against the devices of
// the attempt and against the host; a start that failed because of the host counts against the host alone. Failures that
// pause a device do not count against the host.
func (h *Health) Attribute(now leaseclock.Moment, rec *contract.Record, began leaseclock.BootTime, exit job.Exit) {
	spec := rec.File.Spec()
	if exit.State == job.Succeeded || spec.Saved(exit) {
		h.clearFailures(rec.Devices)
		return
	}
	fast := began != 0 && now.Boot.Sub(began) < FastFailure
	ours := exit.FailedStart() && exit.Code == exitOurs
	if !ours && (exit.State != job.Failed || exit.Started && !fast) {
		return
	}
	if ours {
		h.turn.Log(slog.LevelWarn, "task not started, because of this host", slog.String("attempt", rec.Attempt.String()), slog.String("reason", exit.Reason))
	}
	f := failure{job: rec.Attempt.Job, user: rec.User, ours: ours, on: rec.Devices}
	paused := false
	for _, uuid := range rec.Devices {
		d := h.devices.by[uuid]
		if d == nil || f.ours || !d.breaker.counts(began) {
			continue
		}
		if h.devices.fail(now, d, f) {
			h.host.failures = slices.DeleteFunc(h.host.failures, func(f failure) bool { return slices.Contains(f.on, uuid) })
			paused = true
		}
	}
	if !paused && h.host.counts(began) {
		h.host.fail(now, f)
	}
}

// clearFailures forgets the failures of the host and of some devices.
func (h *Health) clearFailures(devices []string) {
	kept := h.host.forget()
	for _, uuid := range devices {
		if d := h.devices.by[uuid]; d != nil {
			kept = d.breaker.forget() || kept
		}
	}
	h.unsaved = h.unsaved || kept
}

// Reset ends the pause of the host and the quarantine of all devices, because a person has checked them.
func (h *Health) Reset() {
	h.clearFailures(nil)
	h.host.resume()
	h.host.from = 0
	for _, uuid := range slices.Sorted(maps.Keys(h.devices.by)) {
		h.devices.reset(uuid)
	}
}

// record returns what is saved for the next run of the daemon.
func (h *Health) record(now leaseclock.Moment) Quarantine {
	out := Quarantine{Boot: h.boot, At: now.Boot, Wall: now.Wall, Host: Pause{Trips: h.host.trips}, Devices: map[string]QuarantinedDevice{}}
	if h.host.why != "" {
		out.Host.Why, out.Host.Until = h.host.why, wall(now, h.host.until)
	}
	for uuid, was := range h.saved.Devices { // the driver may list a missing GPU again later
		was = was.set(now.SetSince(h.loadedAt))
		if h.devices.by[uuid] == nil && now.Wall.Sub(was.Last) < faultForgotten {
			out.Devices[uuid] = was
		}
	}
	for uuid, d := range h.devices.by {
		why := maps.Clone(d.quarantine)
		delete(why, causeUnknown)
		if len(why) == 0 && d.faults.count == 0 && d.breaker.trips == 0 {
			continue
		}
		k := QuarantinedDevice{Why: why, Faults: d.faults.count, Breaker: Pause{Trips: d.breaker.trips}}
		if k.Faults > 0 {
			k.Last, k.Probe = wall(now, d.faults.last), wall(now, d.faults.probe)
		}
		if d.quarantine[causeBreaker] != "" {
			k.Breaker.Until = wall(now, d.brokenUntil)
		}
		if d.quarantine[causeMemory] != "" {
			k.Foreign, k.Idle = slices.Sorted(maps.Keys(d.foreign)), int64(d.idle)
		}
		out.Devices[uuid] = k
	}
	return out
}

// TakeUnsaved returns what is to be saved for the next run of the daemon; nil: nothing has changed since the last call.
func (h *Health) TakeUnsaved(now leaseclock.Moment) *Quarantine {
	if !h.unsaved && !h.devices.unsaved && !h.host.unsaved {
		return nil
	}
	h.unsaved, h.devices.unsaved, h.host.unsaved = false, false, false
	q := h.record(now)
	return &q
}

// Load restores what an earlier run of the daemon has saved.
func (h *Health) Load(now leaseclock.Moment) {
	h.saved.read(now, h.boot)
	h.loadedAt = now
	if h.saved.Boot != h.boot {
		h.saved.endProcesses()
	}
	was := h.saved
	h.host.trips = was.Host.Trips
	h.host.trial = h.host.trips > 0
	if left := was.Host.left(now); left > 0 {
		h.host.pause(now, was.Host.Why, left)
	}
	for _, uuid := range slices.Sorted(maps.Keys(was.Devices)) {
		if d := h.devices.by[uuid]; d != nil {
			h.loadDevice(now, d, was.Devices[uuid])
		}
	}
}

func (h *Health) loadDevice(now leaseclock.Moment, d *device, was QuarantinedDevice) {
	d.breaker.trips = was.Breaker.Trips
	d.faults.restore(now, was)
	for _, t := range slices.Backward(causes) {
		why, there := was.Why[t]
		if !there {
			continue
		}
		switch t {
		case causeFault:
			h.devices.put(d, t, why)
			h.devices.armProbe(d)
		case causeMemory:
			d.foreign, d.idle = map[int]bool{}, job.Size(was.Idle)
			for _, pid := range was.Foreign {
				d.foreign[pid] = true
			}
			h.devices.put(d, t, why)
		case causeBreaker:
			if left := was.Breaker.left(now); left > 0 {
				h.devices.pause(now, d, why, left)
			}
		case causeHealth:
			h.devices.put(d, t, why)
		case causeUnknown: // not saved
		}
	}
}

// Status handles the present status of the devices. tasks says by PID whether a process on them belongs to a task; a missing PID
// is not known. It returns, by UUID, whether ended tasks have left nothing on a device.
func (h *Health) Status(now leaseclock.Moment, list []gpu.Status, tasks map[int]bool) map[string]bool {
	h.devices.tasks = tasks
	return h.devices.status(now, list)
}

// Reported handles an error that a device reported.
func (h *Health) Reported(now leaseclock.Moment, f gpu.Fault) { h.devices.reported(now, f) }

// ResetDevice ends the quarantine of a device, because a person has checked it.
func (h *Health) ResetDevice(uuid string) { h.devices.reset(uuid) }

// ToWaitFor returns the devices whose memory must be free again before a task that held them has ended.
func (h *Health) ToWaitFor(uuids []string) map[string]bool { return h.devices.toWaitFor(uuids) }

// NotBack puts a device into quarantine because the memory of an ended attempt is not free.
func (h *Health) NotBack(uuid string, a job.Attempt) { h.devices.notBack(uuid, a) }

// Paused returns why the host is paused, or "" if it is not.
func (h *Health) Paused() string { return h.host.why }

// Quarantined returns why devices are in quarantine, by UUID.
func (h *Health) Quarantined() map[string]string {
	out := map[string]string{}
	for uuid := range h.devices.by {
		if why := h.devices.account.Capacity.Pool().Quarantined(uuid); why != "" {
			out[uuid] = why
		}
	}
	return out
}

// hostBreaker is the breaker of the host.
type hostBreaker struct {
	breaker
	turn    *step.Turn
	unsaved bool                // the pause has changed and must be saved
	why     string              // why the host is paused; empty: it is not
	until   leaseclock.BootTime // when the pause ends
}

// fail counts a failure, and pauses the host if the breaker trips.
func (h *hostBreaker) fail(now leaseclock.Moment, f failure) {
	if why := h.note(f); why != "" {
		pause := h.trip()
		h.pause(now, contract.Clip(why+"; "+pausedUntil(now, pause)), pause)
	}
}

// pause begins a pause of the host.
func (h *hostBreaker) pause(now leaseclock.Moment, why string, pause time.Duration) {
	until := now.Boot.Add(pause)
	h.why, h.until, h.from = why, until, until
	h.turn.Log(slog.LevelError, "host paused: it accepts no tasks", slog.String("reason", why), slog.Duration("pause", pause))
	h.unsaved = true
	h.turn.Reopen()
	h.turn.Timers.Set(until, func(leaseclock.Moment) {
		if h.until == until {
			h.resume()
			h.trial = h.trips > 0
		}
	})
}

// resume ends the host's pause.
func (h *hostBreaker) resume() {
	if h.why == "" {
		return
	}
	h.why, h.until = "", 0
	h.turn.Log(slog.LevelInfo, "host accepts tasks again")
	h.unsaved = true
	h.turn.Reopen()
}
