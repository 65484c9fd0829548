package joint

// What runs on a host: processes as the runner sees them. It keeps their leases
// by itself, and tells the daemon how they end.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

// cause is why a process ended before its work was done.
type cause int

const (
	byItself cause = iota
	byStop         // the daemon asked for it
	byLease        // its lease ran out
	byLimit        // its time limit
	byHost         // the host died
)

type proc struct {
	h       *host
	j       *work
	attempt job.Attempt
	task    worker.Task
	store   string
	nth     int // start of its job
	pid     int
	begun   bool // its process exists
	over    bool
	killing bool // it has been told to end
	hold    bool

	deadline worker.BootTime
	endsAt   time.Duration // when its work is done
	began    time.Time     // by the host's wall clock
	why      cause
	reason   string
	exit     job.Exit
	kind     worker.DriverKind
	memory   time.Duration // until when the memory of its devices is not back
	overAt   time.Duration
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}

// startProc is the driver's Start.
func (h *host) startProc(t worker.Task) {
	w := h.w
	j := w.byID[t.Attempt.Job]
	p := &proc{h: h, j: j, attempt: t.Attempt, task: t, store: h.store, hold: t.Hold, deadline: t.Deadline}
	w.checkProc(p)
	w.checkGang(p)
	if j == nil || h.procs[t.Attempt] != nil {
		return
	}
	h.procs[t.Attempt] = p
	j.tries = append(j.tries, p)
	w.better(p)
	j.starts++
	w.stats.starts++
	p.nth = j.starts
	if j.starts == 1 {
		j.startAt = w.now
		w.stats.started(j)
	}
	w.after(between(w.chance, 2*time.Millisecond, 30*time.Millisecond)+w.late(w.opt.slow.start), p.begin)
}

// begin is when the process exists.
func (p *proc) begin() {
	if p.over || p.killing {
		if p.killing && !p.over {
			p.end(worker.DriverExited, job.Cancelled, 143)
		}
		return
	}
	h, w := p.h, p.h.w
	w.pids++
	p.pid, p.begun, p.began = w.pids, true, moment(w.now, h.wallOff).Round(0)
	run := p.j.runs
	if w.calm {
		run = min(run, calmRun)
	}
	p.endsAt = w.now + run
	h.tell(worker.DriverEvent{Attempt: p.attempt, Kind: worker.DriverStarted, PID: p.pid, Began: p.began})
	w.at(p.endsAt, p.finish)
	if !p.hold {
		p.watch()
	}
	if limit := p.task.TimeLimit; limit > 0 {
		w.after(limit, func() { p.kill(byLimit, 0, "time limit") })
	}
}

// calmRun is how long a task runs at most once the world is calm.
const calmRun = 20 * time.Second

// watch ends the process with its lease, whether or not the daemon lives.
func (p *proc) watch() {
	at := p.h.clock.when(p.deadline.Add(-worker.FenceLead))
	p.h.w.at(at, func() {
		switch {
		case p.over || p.killing:
		case p.h.clock.read(p.h.w.now) < p.deadline.Add(-worker.FenceLead):
			p.watch()
		default:
			p.j.w.checkFence(p)
			p.kill(byLease, worker.FenceLead-time.Second, "lease ran out")
		}
	})
}

// finish is when the work is done.
func (p *proc) finish() {
	if p.over || p.h.w.now < p.endsAt || !p.begun {
		return
	}
	state, code := job.Succeeded, 0
	switch {
	case p.nth <= p.j.fails:
		state, code = job.Failed, 1
	case p.nth <= p.j.fails+p.j.saves:
		state, code = job.Failed, p.j.spec.CheckpointExitCode
	}
	if p.j.poison && p.h.w.poison {
		h := p.h
		h.w.logf("%s takes %s down", p.attempt, h.peer)
		h.powerOff()
		h.w.after(p.j.poisonFor, func() { h.powerOn(false) })
		return
	}
	p.end(worker.DriverExited, state, code)
}

// kill asks the process to end within the grace.
func (p *proc) kill(why cause, grace time.Duration, reason string) {
	if p.over {
		return
	}
	if !p.killing {
		p.killing, p.why, p.reason = true, why, reason
	}
	p.h.w.after(between(p.h.w.chance, 0, max(grace, 50*time.Millisecond)), func() {
		if p.over || !p.begun {
			return
		}
		state, code := job.Cancelled, 143
		switch p.why {
		case byLease:
			state = job.NodeFail
		case byLimit:
			state = job.Timeout
		case byItself, byStop, byHost:
		}
		p.end(worker.DriverExited, state, code)
	})
}

// end is when no process is left.
func (p *proc) end(kind worker.DriverKind, state job.State, code int) {
	h, w := p.h, p.h.w
	p.over, p.overAt = true, w.now
	p.kind = kind
	p.exit = job.Exit{State: state, Code: code, Started: true, Began: p.began, Ended: moment(w.now, h.wallOff).Round(0)}
	if p.why == byLease || p.why == byLimit {
		p.exit.Reason = p.reason
	}
	if h.real && len(p.task.Devices) > 0 {
		p.memory = w.now + between(w.chance, 0, 1500*time.Millisecond)
		h.ending = append(h.ending, p)
	}
	h.tell(p.event())
}

// vanish is what a power cut makes of a process.
func (p *proc) vanish() {
	p.over, p.why, p.overAt = true, byHost, p.h.w.now
}

func (p *proc) event() worker.DriverEvent {
	switch {
	case p.over:
		return worker.DriverEvent{Attempt: p.attempt, Kind: p.kind, Exit: p.exit}
	case p.begun:
		return worker.DriverEvent{Attempt: p.attempt, Kind: worker.DriverStarted, PID: p.pid, Began: p.began}
	}
	return worker.DriverEvent{Attempt: p.attempt, Kind: worker.DriverStarting}
}

// stopProc is the driver's Stop.
func (h *host) stopProc(a job.Attempt, grace time.Duration, reason string) {
	if p := h.procs[a]; p != nil {
		h.w.checkStop(p, reason)
		p.kill(byStop, grace, reason)
	}
}

// adopt is what the runner tells a new daemon.
func (h *host) adopt() []worker.DriverEvent {
	out := make([]worker.DriverEvent, 0, len(h.procs))
	for _, p := range h.procs {
		out = append(out, p.event())
	}
	slices.SortFunc(out, func(a, b worker.DriverEvent) int { return compareAttempts(a.Attempt, b.Attempt) })
	return out
}

// shorten cuts what still runs to a calm world's length.
func (h *host) shorten() {
	for _, p := range h.running() {
		if at := h.w.now + between(h.w.chance, 0, calmRun); p.begun && at < p.endsAt {
			p.endsAt = at
			h.w.at(at, p.finish)
		}
	}
}

// running are the processes that have not ended, in order.
func (h *host) running() []*proc {
	var out []*proc
	for _, p := range h.procs {
		if !p.over {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *proc) int { return compareAttempts(a.attempt, b.attempt) })
	return out
}

// poll has the status of all devices read soon.
func (h *host) poll() {
	if h.polling {
		return
	}
	h.polling = true
	life := h.life
	h.w.after(between(h.w.chance, 5*time.Millisecond, 50*time.Millisecond), func() {
		if h.life == life && h.up {
			h.polling = false
			h.tell(worker.DeviceStatus{Devices: h.status()})
		}
	})
}

func (h *host) status() []gpu.Status {
	out := make([]gpu.Status, 0, len(h.cfg.Profile.GPUs))
	for _, d := range h.cfg.Profile.GPUs {
		out = append(out, gpu.Status{UUID: d.UUID, Health: gpu.Healthy, Recovery: gpu.RecoveryNone})
	}
	on := func(p *proc) {
		for i := range out {
			if slices.Contains(p.task.Devices, out[i].UUID) {
				out[i].Processes = append(out[i].Processes, gpu.Process{PID: p.pid, Memory: 1 << 30})
				out[i].MemoryUsed += 1 << 30
			}
		}
	}
	for _, p := range h.running() {
		if p.begun {
			on(p)
		}
	}
	h.ending = slices.DeleteFunc(h.ending, func(p *proc) bool { return p.memory <= h.w.now })
	for _, p := range h.ending {
		on(p)
	}
	return out
}

// free is what nobody holds by the ledger: CPUs, and whole devices.
func (h *host) free() lease.Free {
	f := lease.Free{CPUs: h.cfg.Profile.CPUs}
	held := map[string]bool{}
	for _, r := range h.disk.records {
		if r.Phase == lease.PhaseReserved || r.Phase == lease.PhaseStarted {
			f.CPUs -= r.Need.CPUs
			f.Tasks++
			f.Exclusive = f.Exclusive || r.Need.Exclusive
			for _, d := range r.Devices {
				held[d] = true
			}
		}
	}
	for _, d := range h.cfg.Profile.GPUs {
		if !held[d.UUID] {
			f.GPUs = append(f.GPUs, lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
		}
	}
	return f
}
