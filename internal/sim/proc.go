package sim

// What runs on a host: processes, as the runner sees them. The runner keeps their leases by itself, and tells the
// daemon how they end.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// cause is why a process ended before its work was done.
type cause int

const (
	byItself cause = iota
	byStop         // the daemon asked for it
	byLease        // its lease ran out
	byLimit        // its time limit
	byHost         // the host died
	byDevice       // its GPU fell out
)

type proc struct {
	h       *host
	j       *submission
	stint   *stint
	attempt job.Attempt
	task    driver.Task
	pid     int
	progress
	hold bool

	deadline leaseclock.BootTime
	endsAt   time.Duration // when its work is done, as far as is known
	began    time.Time     // by the host's wall clock
	why      cause
	reason   string
	exit     job.Exit
	kind     driver.Kind
	memory   time.Duration // when the memory of its devices is free again
	overAt   time.Duration
	files    struct {
		bytes  int64 // of files that were copied for it
		waited time.Duration
	}
}

// progress is how far a process has come.
type progress struct {
	begun   bool // the process exists
	over    bool
	killing bool // it has been told to end
	orphan  bool // its runner is dead: nobody keeps its lease
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}

// startProc is the driver's Start: it brings the files of the job to the host, and then begins the process.
func (h *host) startProc(t driver.Task) {
	w := h.w
	j := w.byID[t.Attempt.Job]
	p := &proc{h: h, j: j, attempt: t.Attempt, task: t, hold: t.Hold, deadline: t.Deadline}
	if w.watch != nil {
		w.watch.launched(p)
	}
	if j == nil || h.procs[t.Attempt] != nil {
		return
	}
	h.procs[t.Attempt] = p
	p.stint = j.stintOf(p)
	asked := w.now
	p.files.bytes = h.bring(j, func() {
		p.files.waited = w.now - asked
		w.after(w.draw(w.cfg.Costs.Start), p.begin)
	})
}

// begin is called when the process exists.
func (p *proc) begin() {
	if p.over || p.killing {
		if p.killing && !p.over {
			p.end(driver.Exited, job.Cancelled, 143)
		}
		return
	}
	h, w := p.h, p.h.w
	w.pids++
	p.pid, p.begun, p.began = w.pids, true, h.now().Wall.Round(0)
	h.tell(driver.Event{Attempt: p.attempt, Kind: driver.Started, PID: p.pid, Began: p.began})
	p.stint.joined(p)
	if !p.hold {
		p.guard()
	}
	if limit := p.task.TimeLimit; limit > 0 {
		w.after(limit, func() { p.kill(byLimit, 0, "time limit") })
	}
}

// guard ends the process when its lease expires, whether or not the daemon lives.
func (p *proc) guard() {
	at := p.h.clock.when(p.deadline.Add(-driver.FenceLead))
	p.h.w.at(at, func() {
		switch {
		case p.over || p.killing || p.orphan:
		case p.h.clock.read(p.h.w.now) < p.deadline.Add(-driver.FenceLead):
			p.guard()
		default:
			p.h.w.counts.Fenced++
			if p.h.w.watch != nil {
				p.h.w.watch.fenced(p)
			}
			p.kill(byLease, driver.FenceLead-time.Second, "lease ran out")
		}
	})
}

// finish is called when the work is done.
func (p *proc) finish() {
	if p.over || !p.begun {
		return
	}
	if p.orphan {
		p.lose()
		return
	}
	state, code := job.Succeeded, 0
	if p.h.w.watch != nil {
		var ends bool
		if state, code, ends = p.h.w.watch.finishes(p); !ends {
			return
		}
	}
	p.end(driver.Exited, state, code)
}

// kill asks the process to end within the grace.
func (p *proc) kill(why cause, grace time.Duration, reason string) {
	if p.over || p.orphan {
		return
	}
	if !p.killing {
		p.killing, p.why, p.reason = true, why, reason
	}
	w := p.h.w
	after := w.draw(w.cfg.Costs.End)
	if w.watch != nil { // a test: a program that takes its time
		after = between(w.chance, 0, max(grace, 50*time.Millisecond))
	}
	w.after(after, func() {
		if p.over || !p.begun || p.orphan {
			return
		}
		state, code := job.Cancelled, 143
		switch p.why {
		case byLease:
			state = job.NodeFail
		case byLimit:
			state = job.Timeout
		case byDevice:
			state, code = job.Failed, 1
		case byItself, byStop, byHost:
		}
		p.end(driver.Exited, state, code)
	})
}

// end is called when no process is left.
func (p *proc) end(kind driver.Kind, state job.State, code int) {
	h, w := p.h, p.h.w
	p.over, p.overAt = true, w.now
	p.kind = kind
	p.exit = job.Exit{State: state, Code: code, Started: true, Began: p.began, Ended: h.now().Wall.Round(0)}
	if p.why == byLease || p.why == byLimit || p.why == byDevice {
		p.exit.Reason = p.reason
	}
	if h.real && len(p.task.Devices) > 0 {
		p.memory = w.now + between(w.chance, 0, 1500*time.Millisecond)
		h.ending = append(h.ending, p)
	}
	p.stint.left(p)
	h.tell(p.event())
}

// preempted reports whether the process was told to end for another task.
func (p *proc) preempted() bool {
	return p.why == byStop && strings.HasPrefix(p.reason, "preempted by")
}

// vanish ends a process by a power cut.
func (p *proc) vanish() {
	p.over, p.why, p.overAt = true, byHost, p.h.w.now
	p.stint.left(p)
}

// runnerDies ends the daemon and the runner of a host that does not fence its tasks. The tasks go on, whatever their
// leases.
func runnerDies(h *host) {
	if !h.up {
		return
	}
	h.w.logf("the runner of %s dies", h.peer)
	h.kill()
	for _, p := range h.running() {
		if p.orphan = true; !p.begun || p.killing {
			p.lose()
		}
	}
}

// endOrphans ends what a dead runner has left, as the next daemon does.
func endOrphans(h *host) {
	for _, p := range h.running() {
		if p.orphan {
			p.lose()
		}
	}
}

// lose ends a process without anybody seeing how.
func (p *proc) lose() {
	p.vanish()
	p.kind, p.exit = driver.Lost, job.Exit{State: job.NodeFail, Reason: "the runner of its node died, and the task with it"}
}

func (p *proc) event() driver.Event {
	switch {
	case p.over:
		return driver.Event{Attempt: p.attempt, Kind: p.kind, Exit: p.exit}
	case p.begun:
		return driver.Event{Attempt: p.attempt, Kind: driver.Started, PID: p.pid, Began: p.began}
	}
	return driver.Event{Attempt: p.attempt, Kind: driver.Starting}
}

// stopProc is the driver's Stop.
func (h *host) stopProc(a job.Attempt, grace time.Duration, reason string) {
	if p := h.procs[a]; p != nil {
		if h.w.watch != nil {
			h.w.watch.stopped(p, reason)
		}
		p.kill(byStop, grace, reason)
	}
}

// adopted returns what the runner tells a new daemon.
func adopted(h *host) []driver.Event {
	out := make([]driver.Event, 0, len(h.procs))
	for _, p := range h.procs {
		out = append(out, p.event())
	}
	slices.SortFunc(out, func(a, b driver.Event) int { return compareAttempts(a.Attempt, b.Attempt) })
	return out
}

// running returns the processes that have not ended, in order.
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

// poll makes the status of all devices be read soon.
func (h *host) poll() {
	if h.polling {
		return
	}
	h.polling = true
	life := h.life
	h.w.after(between(h.w.chance, 5*time.Millisecond, 50*time.Millisecond), func() {
		if h.life == life && h.up {
			h.polling = false
			h.tell(worker.DeviceStatus{Devices: statusOf(h)})
		}
	})
}

func statusOf(h *host) []gpu.Status {
	out := make([]gpu.Status, 0, len(h.cfg.Profile.GPUs))
	for _, d := range h.cfg.Profile.GPUs {
		s := gpu.Status{UUID: d.UUID, Health: gpu.Healthy, Recovery: gpu.RecoveryNone}
		if why := h.sick[d.UUID]; why != "" {
			s.Health, s.Detail, s.Recovery = gpu.Unhealthy, why, gpu.RecoveryReset
		}
		out = append(out, s)
	}
	if !h.real {
		return out
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
