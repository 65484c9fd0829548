package sim

// Faults: what fails, when, and for how long.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
)

// FaultKind says what fails.
type FaultKind string

// The kinds of faults.
const (
	// Crash is a power cut of the machine: its tasks end. It boots after Fault.For; 0: never.
	Crash FaultKind = "crash"
	// Kill ends the daemon of the machine: its tasks go on. It is started again after Fault.For, at once if that is 0.
	Kill FaultKind = "kill"
	// Leave drains the machine: what runs goes on, and nothing else starts. It comes back after Fault.For; 0: never.
	Leave FaultKind = "leave"
	// Join brings a machine into the cluster. If Join is the first fault of the machine, the machine is absent before
	// it.
	Join FaultKind = "join"
	// DeviceOut is a GPU that has fallen off the bus: programs on it fail. It works again after Fault.For; 0: never.
	DeviceOut FaultKind = "gpu"
	// Slow makes the tasks of the machine run at Fault.Speed, for Fault.For; 0: for good.
	Slow FaultKind = "slow"
	// Break breaks the part of the network that Fault.Part names. It is repaired after Fault.For; 0: never.
	Break FaultKind = "network"
)

// Fault is something that fails.
type Fault struct {
	At      time.Duration // from the beginning of the simulation
	Kind    FaultKind
	Machine int           // index in load.Load.Machines; of no meaning for Break
	Device  int           // of DeviceOut: index of the GPU
	For     time.Duration // how long it lasts; see the kinds for 0
	Speed   float64       // of Slow: above 0; 1 is the usual speed
	Part    string        // of Break: see Breakable
}

func (f *Fault) check(w *World) error {
	where := fmt.Sprintf("sim: fault %s at %s", f.Kind, f.At)
	if f.At < 0 || f.For < 0 {
		return fmt.Errorf("%s for %s: no time may be negative", where, f.For)
	}
	if f.Kind == Break {
		if _, ok := w.net.(Breakable); !ok {
			return fmt.Errorf("%s: this network has no parts that can fail", where)
		}
		return nil
	}
	if f.Machine < 0 || f.Machine >= len(w.hosts) {
		return fmt.Errorf("%s: machine %d: want 0 to %d", where, f.Machine, len(w.hosts)-1)
	}
	switch f.Kind {
	case Crash, Kill, Leave, Join:
	case DeviceOut:
		if n := len(w.hosts[f.Machine].cfg.Profile.GPUs); f.Device < 0 || f.Device >= n {
			return fmt.Errorf("%s: device %d: the machine has %d", where, f.Device, n)
		}
	case Slow:
		if !(f.Speed > 0 && f.Speed <= maxSpeed) {
			return fmt.Errorf("%s: speed %v: want above 0, up to %d", where, f.Speed, maxSpeed)
		}
	case Break:
	default:
		return fmt.Errorf("%s: there is no such kind of fault", where)
	}
	return nil
}

// maxSpeed bounds how fast a machine may be.
const maxSpeed = 1000

// addFaults schedules the faults.
func (w *World) addFaults() error {
	for i := range w.cfg.Faults {
		f := &w.cfg.Faults[i]
		if err := f.check(w); err != nil {
			return err
		}
		if f.Kind == DeviceOut {
			w.retries = usualRetries
		}
		w.appoint(warmUp+f.At, func() { happens(w, f) })
	}
	return nil
}

// usualRetries is how many retries users ask for, in a cluster whose GPUs fall out.
const usualRetries = 3

// joinLater switches off the machines that are not there from the beginning.
func joinLater(w *World) {
	order := make([]int, len(w.cfg.Faults))
	for i := range order {
		order[i] = i
	}
	at := func(i int) *Fault { return &w.cfg.Faults[i] }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at(a).At, at(b).At) })
	seen := map[int]bool{}
	for _, i := range order {
		f := at(i)
		if f.Kind == Break || seen[f.Machine] || f.Machine < 0 || f.Machine >= len(w.hosts) {
			continue
		}
		seen[f.Machine] = true
		if h := w.hosts[f.Machine]; f.Kind == Join {
			h.power, h.downAt = false, -staleFor
		}
	}
}

func happens(w *World, f *Fault) {
	w.counts.Faults++
	if f.Kind == Break {
		w.breaks(f)
		return
	}
	h := w.hosts[f.Machine]
	w.logf("fault %s of %s", f.Kind, h.peer)
	switch f.Kind {
	case Crash:
		h.powerOff()
		if f.For == 0 {
			h.gone = true
			if h.local != nil {
				ownerLost(h.local)
			}
			return
		}
		w.appoint(w.now+f.For, func() { h.powerOn(false) })
	case Kill:
		if h.up {
			h.restart(max(f.For, RestartLeast))
		}
	case Leave:
		h.drain(worker.Drain{On: true, Reason: "it leaves"})
		if f.For > 0 {
			w.appoint(w.now+f.For, func() { h.drain(worker.Drain{}) })
		}
	case Join:
		h.draining = worker.Drain{}
		if h.power {
			h.drain(worker.Drain{})
		}
		h.powerOn(false)
	case DeviceOut:
		deviceOut(h, f)
	case Slow:
		h.pace(f.Speed)
		if f.For > 0 {
			w.appoint(w.now+f.For, func() { h.pace(1) })
		}
	case Break:
	}
}

// ownerLost ends an owner whose machine never comes back. Nobody answers for its jobs any more.
func ownerLost(o *owner) {
	o.asks = map[step.Token]request{}
	for _, s := range o.w.works {
		if s.owner == o && (s.accepted || s.missing > 0) {
			for k := range s.count() {
				o.w.reject(s, k)
			}
		}
	}
}

// RestartLeast is the shortest time from the kill of a daemon to its next start.
const RestartLeast = 300 * time.Millisecond

// pace sets the speed of the host.
func (h *host) pace(speed float64) {
	running := h.running()
	for _, p := range running {
		p.stint.count()
	}
	h.speed = speed
	for _, p := range running {
		p.stint.pace()
	}
}

// deviceOut makes a GPU fall out. The programs on it fail.
func deviceOut(h *host, f *Fault) {
	uuid := h.cfg.Profile.GPUs[f.Device].UUID
	if h.sick == nil {
		h.sick = map[string]string{}
	}
	h.sick[uuid] = "fallen off the bus"
	h.tell(worker.DeviceFault{Fault: gpu.Fault{UUID: uuid, Severity: gpu.SeverityDevice, Text: h.sick[uuid], At: h.now().Wall}})
	for _, p := range h.running() {
		if p.begun && slices.Contains(p.task.Devices, uuid) {
			p.kill(byDevice, 0, "its GPU has fallen off the bus")
		}
	}
	if f.For > 0 {
		h.w.appoint(h.w.now+f.For, func() { delete(h.sick, uuid) })
	}
}

// breaks breaks a part of the network, and repairs it later. Sessions without a path break.
func (w *World) breaks(f *Fault) {
	net, ok := w.net.(Breakable)
	if !ok {
		return
	}
	if err := net.Break(f.Part); err != nil {
		w.err = fmt.Errorf("sim: fault %s at %s: part %q of the network: %w", f.Kind, f.At, f.Part, err)
		return
	}
	w.logf("fault of the network: %s", f.Part)
	review(w)
	if f.For > 0 {
		w.appoint(w.now+f.For, func() {
			if err := net.Mend(f.Part); err != nil {
				w.err = fmt.Errorf("sim: repair of part %q of the network: %w", f.Part, err)
			}
			review(w)
		})
	}
}

// review breaks the sessions that have no path any more, and opens those that have a path again. The other sessions
// learn later that their path has become longer or shorter.
func review(w *World) {
	w.after(pingAgain, func() {
		for _, o := range w.owners {
			for _, l := range o.order {
				l.measure()
			}
		}
	})
	for _, o := range w.owners {
		for _, l := range slices.Clone(o.order) {
			switch reachable := l.reachable(); {
			case l.open && !reachable:
				l.sever(w.cfg.Costs.Notice, 0)
			case !l.open && reachable:
				l.tend()
			}
		}
	}
}
