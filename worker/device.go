package worker

// GPUs as they are: which of them are in quarantine, which programs besides ours use them, and whether a task's memory
// is back after its end.

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// device is what a worker knows about one GPU beyond who holds it.
type device struct {
	gpu.Device
	quarantine  map[trouble]string // why nobody gets it; empty: it is sound
	foreign     map[int]bool       // processes that were there without any task
	idle        job.Size           // memory used without any task or process; -1 unknown
	breaker     breaker
	brokenUntil BootTime // of troubleBreaker
	faults      faults
}

// unlisted is what a device may use for itself before memory that belongs to no listed process counts as taken.
const unlisted = job.Size(1 << 30)

// devices are the GPUs of this host.
type devices struct {
	turn    *turn
	account *account
	by      map[string]*device // by UUID
	mps     string             // where NVIDIA's multi-process service listens; empty: it does not run
}

// learn takes up the devices of a profile; those that are gone are forgotten once nobody holds them.
func (ds *devices) learn(list []gpu.Device) {
	listed := map[string]bool{}
	for _, g := range list {
		listed[g.UUID] = true
		if d := ds.by[g.UUID]; d != nil {
			d.Device = g
			continue
		}
		ds.by[g.UUID] = &device{Device: g, quarantine: map[trouble]string{}, idle: -1, faults: faults{ecc: -1}}
	}
	maps.DeleteFunc(ds.by, func(uuid string, _ *device) bool { return !listed[uuid] && ds.account.holders[uuid] == 0 })
}

// put puts a device into quarantine.
func (ds *devices) put(d *device, t trouble, why string) {
	if d.quarantine[t] == why {
		return
	}
	d.quarantine[t] = why
	ds.turn.keep = true
	ds.account.capacity.gpus.Quarantine(d.UUID, why)
	ds.turn.log(slog.LevelError, "device set aside", slog.String("device", d.UUID), slog.String("reason", why))
	ds.account.touch()
}

// clear ends one trouble of a device; it is given away again when none is left.
func (ds *devices) clear(d *device, t trouble) {
	if _, ok := d.quarantine[t]; !ok {
		return
	}
	delete(d.quarantine, t)
	ds.turn.keep = true
	for _, left := range troubles {
		if why, ok := d.quarantine[left]; ok {
			ds.account.capacity.gpus.Quarantine(d.UUID, why)
			return
		}
	}
	ds.account.capacity.gpus.EndQuarantine(d.UUID)
	ds.turn.log(slog.LevelInfo, "device is given away again", slog.String("device", d.UUID))
	ds.account.touch()
	ds.turn.arbitrate = true
}

// restore ends all troubles of a device, and forgets what was counted against it: a person has looked at it.
func (ds *devices) restore(uuid string) {
	d := ds.by[uuid]
	if d == nil {
		return
	}
	d.breaker, d.faults = breaker{}, faults{ecc: d.faults.ecc, probes: d.faults.probes}
	ds.turn.keep = true
	for _, t := range troubles {
		ds.clear(d, t)
	}
}

// status takes what the drivers say of the devices now. It returns whether nothing is left of tasks that ended, by UUID.
func (ds *devices) status(now Moment, list []gpu.Status) map[string]bool {
	back := map[string]bool{}
	for _, s := range list {
		d := ds.by[s.UUID]
		if d == nil {
			continue
		}
		switch s.Health {
		case gpu.Unhealthy:
			ds.put(d, troubleHealth, lease.Clip("unhealthy: "+s.Detail))
		case gpu.Healthy:
			ds.clear(d, troubleHealth)
		case gpu.Unknown:
		}
		ds.probe(now, d, s)
		back[s.UUID] = ds.use(d, s)
	}
	return back
}

// use notes what programs of others use of a device, and says whether nothing is left on it of a task that ended. While
// no task holds it, whatever is on it is of others.
func (ds *devices) use(d *device, s gpu.Status) (back bool) {
	back = true
	for _, p := range s.Processes {
		back = back && d.foreign[p.PID]
	}
	if len(s.Processes) == 0 && d.idle >= 0 && ds.mps == "" { // a server of MPS keeps what it has
		back = s.MemoryUsed <= d.idle+gpu.ForeignLimit
	}
	_, stuck := d.quarantine[troubleMemory]
	switch {
	case stuck && back:
		ds.clear(d, troubleMemory)
	case ds.account.holders[d.UUID] > 0 || stuck:
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
	ds.account.capacity.gpus.Foreign(d.UUID, used)
	ds.account.touch()
	ds.turn.arbitrate = true
	return back
}

// toWaitFor returns which of the devices have to give back the memory of a task that ends. Only real devices count that
// no other task shares: its memory could not be told from theirs.
func (ds *devices) toWaitFor(uuids []string) map[string]bool {
	waits := map[string]bool{}
	for _, uuid := range uuids {
		if d := ds.by[uuid]; d != nil && !d.Simulated && ds.account.holders[uuid] == 1 {
			waits[uuid] = true
		}
	}
	return waits
}

// notBack puts a device into quarantine whose memory an attempt did not give back.
func (ds *devices) notBack(uuid string, a job.Attempt) {
	if d := ds.by[uuid]; d != nil {
		ds.put(d, troubleMemory, "memory was not given back by "+a.String())
	}
}

// reported takes an error that a device reported. Whatever the error is, the driver is asked at once for a status: its
// own word counts more than any list of numbers.
func (ds *devices) reported(now Moment, f gpu.Fault, listed []gpu.Device) {
	ds.turn.out.Poll = true
	text, bad := deviceFaults[f.Xid]
	switch {
	case slices.Contains(programFaults, f.Xid):
		return
	case !bad:
		ds.turn.log(slog.LevelWarn, "a device reported an error", slog.String("device", f.UUID), slog.Uint64("xid", f.Xid))
		return
	case f.UUID == "":
		ds.turn.log(slog.LevelError, "a device reported a fault, the driver does not say which", slog.Uint64("xid", f.Xid))
		return
	}
	for _, g := range listed {
		if d := ds.by[g.UUID]; d != nil && (g.UUID == f.UUID || g.Parent == f.UUID) {
			ds.fault(now, d, fmt.Sprintf("xid %d (%s)", f.Xid, text))
		}
	}
}

// fault puts a device into quarantine until a probe finds it sound. A fault often comes with many reports: they count as
// one.
func (ds *devices) fault(now Moment, d *device, why string) {
	_, already := d.quarantine[troubleFault]
	d.faults.add(now, already)
	if !already {
		ds.put(d, troubleFault, why)
	}
	if now.Boot.Sub(d.faults.kept) >= vouchedPause { // not every report is a write
		d.faults.kept, ds.turn.keep = now.Boot, true
	}
	ds.armProbe(d)
}

// armProbe has the driver asked for a status when the device may be found sound.
func (ds *devices) armProbe(d *device) {
	ask := func(Moment) { ds.turn.out.Poll = ds.turn.out.Poll || d.quarantine[troubleFault] != "" }
	for i, at := range []BootTime{d.faults.last.Add(vouchedPause), d.faults.probe} {
		ds.turn.timers.stop(d.faults.probes[i])
		d.faults.probes[i] = ds.turn.timers.set(at, ask)
	}
}

// probe looks at the newest status of a device for memory errors that no Xid told of. If it is in quarantine for a fault,
// probe looks whether it is sound again: its driver answers, finds it healthy and asks for nothing to be done, no task is
// on it, and it has rested.
func (ds *devices) probe(now Moment, d *device, s gpu.Status) {
	if errors := d.faults.newErrors(s); errors > 0 {
		ds.fault(now, d, fmt.Sprintf("%d uncorrectable memory errors", errors))
	}
	_, faulty := d.quarantine[troubleFault]
	if faulty && ds.account.holders[d.UUID] == 0 && s.Health == gpu.Healthy && d.faults.rested(now, s) {
		ds.clear(d, troubleFault)
	}
}

// fail notes the failure of a job on a device, and says whether the device is paused for it.
func (ds *devices) fail(now Moment, d *device, f failure) (tripped bool) {
	why := d.breaker.note(f)
	if why == "" {
		return false
	}
	pause := d.breaker.trip()
	ds.pause(now, d, lease.Clip(why+"; tried again "+when(now, pause)), pause)
	return true
}

func (ds *devices) pause(now Moment, d *device, why string, pause time.Duration) {
	d.brokenUntil = now.Boot.Add(pause)
	ds.put(d, troubleBreaker, why)
	ds.turn.timers.set(d.brokenUntil, func(Moment) {
		if ds.by[d.UUID] == d {
			ds.clear(d, troubleBreaker)
		}
	})
}
