package health

// The state of the GPUs: which are in quarantine, which are used by programs that muster did not start, and whether the
// memory of an ended task is free again.

import (
	"cmp"
	"fmt"
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

// device is what a worker knows about one GPU beyond who holds it.
type device struct {
	gpu.Device
	quarantine  map[cause]string // why no task gets it; empty: it is not in quarantine
	foreign     map[int]bool     // PIDs on it of programs that muster did not start
	most        int              // the PID in foreign that uses most memory; 0: there is none
	idle        job.Size         // memory in use when neither a task nor a process used it; -1: unknown
	rest        job.Size         // memory in use that no listed process had, when no task held it
	breaker     breaker
	brokenUntil leaseclock.BootTime // the end of the quarantine for causeBreaker
	faults      faults
}

// devices are the GPUs of this host.
type devices struct {
	turn    *step.Turn
	account *resources.Account
	by      map[string]*device // by UUID
	unsaved bool               // the quarantine has changed and must be saved
	tasks   map[int]bool       // whether a process belongs to a task, by PID; a missing PID is not known
}

// update replaces the list of devices by that of a profile, and returns the new ones. A device that is gone is dropped
// unless a task holds it.
func (ds *devices) update(list []gpu.Device) (added []*device) {
	listed := map[string]bool{}
	for _, g := range list {
		listed[g.UUID] = true
		if d := ds.by[g.UUID]; d != nil {
			d.Device = g
			continue
		}
		d := &device{Device: g, quarantine: map[cause]string{}, idle: -1, faults: faults{ecc: -1}}
		ds.by[g.UUID] = d
		added = append(added, d)
	}
	maps.DeleteFunc(ds.by, func(uuid string, _ *device) bool { return !listed[uuid] && ds.account.HoldersOf(uuid) == 0 })
	return added
}

// put puts a device into quarantine for a cause.
func (ds *devices) put(d *device, c cause, why string) {
	if d.quarantine[c] == why {
		return
	}
	d.quarantine[c] = why
	level := slog.LevelError
	if c == causeUnknown {
		level = slog.LevelWarn
	} else {
		ds.unsaved = true
	}
	ds.account.Capacity.Pool().Quarantine(d.UUID, ds.reason(d))
	ds.turn.Log(level, "device put into quarantine", slog.String("device", d.UUID), slog.String("reason", why))
	ds.account.FreeChanged()
}

// clear removes one cause of a device's quarantine. The quarantine ends when no cause is left.
func (ds *devices) clear(d *device, c cause) {
	if _, ok := d.quarantine[c]; !ok {
		return
	}
	delete(d.quarantine, c)
	ds.unsaved = ds.unsaved || c != causeUnknown
	if why := ds.reason(d); why != "" {
		ds.account.Capacity.Pool().Quarantine(d.UUID, why)
		return
	}
	ds.account.Capacity.Pool().EndQuarantine(d.UUID)
	ds.turn.Log(slog.LevelInfo, "quarantine of device has ended", slog.String("device", d.UUID))
	ds.account.FreeChanged()
	ds.turn.Arbitrate()
}

// reason returns the most informative reason of a device's quarantine; empty: it is not in quarantine.
func (ds *devices) reason(d *device) string {
	for _, c := range causes {
		if why, ok := d.quarantine[c]; ok {
			return why
		}
	}
	return ""
}

// reset ends the quarantine of a device and resets its counters, because a person has checked the device. A device of
// unknown health stays unknown: only its driver can tell.
func (ds *devices) reset(uuid string) {
	d := ds.by[uuid]
	if d == nil {
		return
	}
	d.breaker, d.faults = breaker{}, faults{ecc: d.faults.ecc, probes: d.faults.probes}
	ds.unsaved = true
	for _, c := range causes {
		if c != causeUnknown {
			ds.clear(d, c)
		}
	}
}

// status handles the present status of the devices. It returns, by UUID, whether ended tasks have left nothing on a
// device.
func (ds *devices) status(now leaseclock.Moment, list []gpu.Status) map[string]bool {
	back := map[string]bool{}
	for _, s := range list {
		d := ds.by[s.UUID]
		if d == nil {
			continue
		}
		switch s.Health {
		case gpu.Unhealthy:
			ds.put(d, causeHealth, contract.Clip("unhealthy: "+s.Detail))
			ds.clear(d, causeUnknown)
		case gpu.Healthy:
			ds.clear(d, causeHealth)
			ds.clear(d, causeUnknown)
		case gpu.Unknown:
			ds.put(d, causeUnknown, contract.Clip("unknown: "+s.Detail))
		}
		if s.Known() { // else its numbers mean nothing
			ds.probe(now, d, s)
			back[s.UUID] = ds.use(d, s)
		}
	}
	return back
}

// use records how much of a device is used by programs that muster did not start. It returns whether ended tasks have left
// nothing on the device.
func (ds *devices) use(d *device, s gpu.Status) (back bool) {
	_, stuck := d.quarantine[causeMemory]
	held := ds.account.HoldersOf(d.UUID) > 0
	u := memoryUseOf(s, ds.tasks, d.foreign, !held && !stuck)
	back = !u.tasks
	switch {
	case s.Served: // a service keeps its memory
	case len(s.Processes) > 0:
		back = back && u.rest <= d.rest+reserve
	case d.idle >= 0:
		back = s.MemoryUsed <= d.idle+gpu.ForeignLimit
	}
	if stuck && back {
		ds.clear(d, causeMemory)
	}
	d.foreign, d.most = u.pids, u.most.PID
	if !held && (back || !stuck) {
		d.rest = u.rest
		if len(s.Processes) == 0 {
			d.idle = s.MemoryUsed
		}
	}
	if ds.account.Capacity.Pool().Foreign(d.UUID, u.taken(ds.account.Capacity.Pool().Held(d.UUID), d.rest)) {
		ds.account.FreeChanged()
		ds.turn.Arbitrate()
	}
	return back
}

// foreign returns the devices on which programs that muster did not start use so much that it counts as taken.
func (ds *devices) foreign() (all []contract.ForeignUse) {
	for _, g := range ds.account.Capacity.Pool().Devices() {
		if taken := gpu.TakenByForeign(ds.account.Capacity.Pool(), g.UUID); taken > 0 && len(all) < contract.MaxForeign {
			d := ds.by[g.UUID]
			all = append(all, contract.ForeignUse{UUID: g.UUID, Memory: taken, PID: d.most, Others: max(0, len(d.foreign)-1)})
		}
	}
	return all
}

// toWaitFor returns the devices whose memory must be free again before a task that held them has ended. It leaves out
// simulated devices, and devices that other tasks share, because nobody could tell whose memory is in use there.
func (ds *devices) toWaitFor(uuids []string) map[string]bool {
	waits := map[string]bool{}
	for _, uuid := range uuids {
		if d := ds.by[uuid]; d != nil && !d.Simulated && ds.account.HoldersOf(uuid) == 1 {
			waits[uuid] = true
		}
	}
	return waits
}

// notBack puts a device into quarantine because the memory of an ended attempt is not free.
func (ds *devices) notBack(uuid string, a job.Attempt) {
	d := ds.by[uuid]
	if d == nil {
		return
	}
	why := "memory of " + a.String() + " is not free after its end"
	if d.quarantine[causeUnknown] != "" {
		why = "nobody knows whether the memory of " + a.String() + " is free after its end"
	}
	ds.put(d, causeMemory, why)
}

// reported handles an error that a device reported. It always requests a status from the driver, because that says more
// than the number of the error.
func (ds *devices) reported(now leaseclock.Moment, f gpu.Fault) {
	ds.turn.Poll()
	switch {
	case f.Severity == gpu.SeverityProgram:
		return
	case f.Severity != gpu.SeverityDevice:
		ds.turn.Log(slog.LevelWarn, "a device reported an error", slog.String("device", f.UUID), slog.String("error", contract.Clip(f.Text)))
		return
	case f.UUID == "":
		ds.turn.Log(slog.LevelError, "fault of a device that the driver does not name", slog.String("error", contract.Clip(f.Text)))
		return
	}
	for _, uuid := range slices.Sorted(maps.Keys(ds.by)) {
		if d := ds.by[uuid]; uuid == f.UUID || d.Parent == f.UUID {
			ds.fault(now, d, cmp.Or(contract.Clip(f.Text), "the driver reported a fault"))
		}
	}
}

// fault puts a device into quarantine until a probe finds it healthy. One fault may cause many reports, which count as
// one.
func (ds *devices) fault(now leaseclock.Moment, d *device, why string) {
	_, already := d.quarantine[causeFault]
	d.faults.add(now, already)
	if !already {
		ds.put(d, causeFault, why)
	}
	if now.Boot.Sub(d.faults.kept) >= noRecoveryPause { // most reports cause no write
		d.faults.kept, ds.unsaved = now.Boot, true
	}
	ds.armProbe(d)
}

// armProbe sets timers that request a status when the quarantine may end.
func (ds *devices) armProbe(d *device) {
	ask := func(leaseclock.Moment) {
		if d.quarantine[causeFault] != "" {
			ds.turn.Poll()
		}
	}
	for i, at := range []leaseclock.BootTime{d.faults.last.Add(noRecoveryPause), d.faults.probe} {
		ds.turn.Timers.Stop(d.faults.probes[i])
		d.faults.probes[i] = ds.turn.Timers.Set(at, ask)
	}
}

// probe checks the newest status of a device. New memory errors are a fault even if nothing else reported them. The
// quarantine for a fault ends if no task holds the device, the driver reports it as healthy, and the pause is over.
func (ds *devices) probe(now leaseclock.Moment, d *device, s gpu.Status) {
	if errors := d.faults.newErrors(s); errors > 0 {
		ds.fault(now, d, fmt.Sprintf("%d uncorrectable memory errors", errors))
	}
	_, faulty := d.quarantine[causeFault]
	if faulty && ds.account.HoldersOf(d.UUID) == 0 && s.Health == gpu.Healthy && d.faults.pauseOver(now, s) {
		ds.clear(d, causeFault)
	}
}

// fail counts the failure of a job on a device, and reports whether it pauses the device.
func (ds *devices) fail(now leaseclock.Moment, d *device, f failure) (tripped bool) {
	why := d.breaker.note(f)
	if why == "" {
		return false
	}
	pause := d.breaker.trip()
	ds.pause(now, d, contract.Clip(why+"; "+pausedUntil(now, pause)), pause)
	return true
}

func (ds *devices) pause(now leaseclock.Moment, d *device, why string, pause time.Duration) {
	d.brokenUntil = now.Boot.Add(pause)
	d.breaker.from = d.brokenUntil
	ds.put(d, causeBreaker, why)
	ds.turn.Timers.Set(d.brokenUntil, func(leaseclock.Moment) {
		if ds.by[d.UUID] == d {
			ds.clear(d, causeBreaker)
		}
	})
}
