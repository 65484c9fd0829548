package runner

// When a task has to end and how hard: pure, on the readings of one clock.

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// cause is why a task is being ended; the first one tells.
type cause int

const (
	causeNone cause = iota
	causeStop
	causeLimit
	causeLease
	causeShutdown
	causeScratch
)

const (
	// retryFirst and retryMost bound the pause before a KILL is sent again to
	// processes that appeared, or that the kernel will not end yet.
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	// warnAfter is how long after KILL a process that still exists is a person's
	// business: it hangs in the kernel.
	warnAfter = 10 * time.Second
)

// watch decides when a task's processes get TERM and KILL. All times are of
// CLOCK_BOOTTIME; zero is never.
type watch struct {
	deadline time.Duration // of the lease
	paused   time.Duration // deadline is earlier by that: the host stood still
	lead     time.Duration
	limit    time.Duration // from the start of the process
	grace    time.Duration

	warn   unix.Signal   // before the limit; 0 for none
	before time.Duration // so long

	warnAt  time.Duration
	limitAt time.Duration
	killAt  time.Duration
	retryAt time.Duration
	pause   time.Duration

	cause  cause
	detail string
	slept  bool // the lease ran out while the host stood still

	stage    stage
	killedAt time.Duration
}

// stage is how far a task's end has come. Stages only rise, but off comes last.
type stage int

const (
	off      stage = iota // there is nothing to signal
	watching              // no signal of the end was sent
	termed                // TERM was sent
	killed                // KILL was sent, and is sent again
	overdue               // KILL was sent warnAfter ago, and that was said
)

// newWatch is the watch of a task that is about to be started.
func newWatch(s *protocol.Start, now time.Duration) watch {
	w := watch{limit: s.Limit, grace: s.Grace, warn: unix.Signal(s.Warn), before: s.WarnBefore}
	if !s.Hold {
		w.deadline = s.Deadline
		w.lead = min(s.Lead, (s.Deadline-now)/2) // a short lease is not all warning
	}
	return w
}

// lapsed says that the lease has run out.
func (w *watch) lapsed(now time.Duration) bool { return w.deadline != 0 && now >= w.deadline }

// started tells that the process exists.
func (w *watch) started(now time.Duration) {
	w.begin()
	if w.limit > 0 {
		w.limitAt = now + w.limit
		if w.warn != 0 {
			w.warnAt = max(now, w.limitAt-w.before)
		}
	}
}

// begin tells that there is something to signal.
func (w *watch) begin() {
	if w.stage == off {
		w.stage = watching
	}
}

// signalled says that a signal of the end was sent.
func (w *watch) signalled() bool { return w.stage >= termed }

// isOverdue says once that processes outlive their KILL by warnAfter.
func (w *watch) isOverdue(now time.Duration) bool {
	if w.stage != killed || now-w.killedAt <= warnAfter {
		return false
	}
	w.stage = overdue
	return true
}

// extend moves the deadline, never back, and not one that has passed.
func (w *watch) extend(now, deadline time.Duration) {
	if deadline > w.deadline && w.deadline != 0 && !w.lapsed(now) && w.cause != causeLease {
		w.deadline, w.paused, w.slept = deadline, 0, false
	}
}

// missed tells that the host stood still for so long while the lease ran on.
// Time limits and graces do not count that time.
func (w *watch) missed(now, d time.Duration) {
	if d <= 0 || w.deadline == 0 || w.lapsed(now) {
		return
	}
	w.deadline = max(1, w.deadline-d)
	w.paused = min(w.paused+min(d, protocol.MaxDuration), protocol.MaxDuration)
	w.slept = now >= w.deadline-w.lead
}

// over adds to a sentence about the end of the lease what is to blame for it.
func (w *watch) over(what string) string {
	if !w.slept {
		return what
	}
	return fmt.Sprintf("%s: this host was paused for %s, or its wall clock was set forward", what, job.Duration(w.paused.Round(time.Second)))
}

// end asks for the end; the first cause stays, and the shorter grace counts.
func (w *watch) end(now, grace time.Duration, why cause, detail string) {
	if w.cause == causeNone {
		w.cause, w.detail = why, detail
	}
	if at := now + grace; w.killAt == 0 || at < w.killAt {
		w.killAt = at
	}
}

// leftovers tells that the main process is gone and others are not: they are
// killed, and again until none is left.
func (w *watch) leftovers(now time.Duration) {
	if w.stage < killed {
		w.stage, w.killedAt, w.pause = killed, now, retryFirst
		w.retryAt = now
	}
}

// next is when step has to be called again; zero for never.
func (w *watch) next() time.Duration {
	if w.stage == off {
		return 0
	}
	if w.stage >= killed {
		return w.retryAt
	}
	at := time.Duration(0)
	sooner := func(t time.Duration) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	sooner(w.deadline)
	sooner(w.killAt)
	switch {
	case w.cause == causeNone:
		sooner(w.limitAt)
		sooner(w.warnAt)
		if w.deadline != 0 {
			sooner(w.deadline - w.lead)
		}
	case w.stage < termed:
		sooner(1) // at once
	}
	return at
}

// step gives the signal that is due, or zero. It must be sent.
func (w *watch) step(now time.Duration) unix.Signal {
	if w.stage == off {
		return 0
	}
	if w.stage >= killed {
		if now < w.retryAt {
			return 0
		}
		w.retryAt, w.pause = now+w.pause, min(2*w.pause, retryMost)
		return unix.SIGKILL
	}
	if w.cause == causeNone {
		switch {
		case w.deadline != 0 && now >= w.deadline-w.lead:
			w.end(now, max(0, w.deadline-now), causeLease, w.over("lease ran out"))
		case w.limitAt != 0 && now >= w.limitAt:
			w.end(now, w.grace, causeLimit, fmt.Sprintf("time limit of %s reached", job.Duration(w.limit)))
		case w.warnAt != 0 && now >= w.warnAt:
			w.warnAt = 0
			return w.warn
		default:
			return 0
		}
	}
	if now >= w.killAt || w.lapsed(now) {
		w.stage, w.killedAt, w.pause = killed, now, retryFirst
		w.retryAt = now + w.pause
		return unix.SIGKILL
	}
	if w.stage < termed {
		w.stage = termed
		return unix.SIGTERM
	}
	return 0
}

// state is the end that a cause means.
func (c cause) state() job.State {
	switch c {
	case causeStop:
		return job.Cancelled
	case causeLimit:
		return job.Timeout
	case causeLease, causeShutdown:
		return job.NodeFail
	case causeNone, causeScratch:
	}
	return job.Failed
}
