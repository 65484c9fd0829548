package runner

// The watch of a task: when it has to end, and by which signal. Pure: it works on readings of one clock.

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// cause is why a task is being ended. The first cause counts.
type cause int

const (
	causeNone cause = iota
	causeStop
	causeLimit
	causeLease
	causeShutdown
	causeScratch
	causeAway
	causeGuard
)

const (
	// retryFirst and retryMost bound the pause before KILL is sent again, to processes that appeared since or that
	// the kernel has not ended yet.
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	// warnAfter is how long after KILL a remaining process is logged as a warning: it hangs in the kernel, and a
	// person has to look.
	warnAfter = 10 * time.Second
)

// watch decides when a task's processes get TERM and KILL. All times are readings of CLOCK_BOOTTIME; zero means
// never.
type watch struct {
	deadline time.Duration // of the lease
	paused   time.Duration // how much earlier the deadline is because the host was paused
	lead     time.Duration // how long before the deadline TERM is sent
	limit    time.Duration // time limit, from the start of the process
	grace    time.Duration // between TERM and KILL when the time limit is reached

	warn   unix.Signal   // sent before the time limit; 0: none
	before time.Duration // how long before it

	away   time.Duration // how long its client may be gone; 0: it needs none
	awayAt time.Duration // when it ends unless its client comes back; 0: the client is there

	warnAt  time.Duration
	limitAt time.Duration
	killAt  time.Duration
	retryAt time.Duration
	pause   time.Duration // before the next retry

	cause  cause
	detail string
	slept  bool // the lease ran out while the host was paused

	stage    stage
	killedAt time.Duration
}

// stage is how far the end of a task has come. A stage only rises, except that off comes last.
type stage int

const (
	off      stage = iota // there is nothing to signal
	watching              // no signal of the end was sent
	termed                // TERM was sent
	killed                // KILL was sent, and is sent again
	overdue               // KILL was sent warnAfter ago, and that was logged
)

// newWatch returns the watch of a task that is about to be started.
func newWatch(s *protocol.Start, now time.Duration) watch {
	w := watch{limit: s.Limit, grace: s.Grace, warn: unix.Signal(s.Warn), before: s.WarnBefore}
	if s.Input != nil {
		w.away = s.Input.Away
	}
	if !s.Hold {
		w.deadline = s.Deadline
		w.lead = min(s.Lead, (s.Deadline-now)/2) // a short lease does not begin with TERM
	}
	return w
}

// lapsed says that the lease has run out.
func (w *watch) lapsed(now time.Duration) bool { return w.deadline != 0 && now >= w.deadline }

// started records that the process exists. Its time limit begins.
func (w *watch) started(now time.Duration) {
	w.begin()
	if w.limit > 0 {
		w.limitAt = now + w.limit
		if w.warn != 0 {
			w.warnAt = max(now, w.limitAt-w.before)
		}
	}
	w.left(now)
}

// left records that the task has no client from now on.
func (w *watch) left(now time.Duration) {
	if w.away > 0 {
		w.awayAt = now + w.away
	}
}

// attended records that the task has a client.
func (w *watch) attended() { w.awayAt = 0 }

// fed records that the task has got its whole input, and needs its client no more.
func (w *watch) fed() { w.away, w.awayAt = 0, 0 }

// begin activates the watch: there is something to signal.
func (w *watch) begin() {
	if w.stage == off {
		w.stage = watching
	}
}

// signalled reports whether TERM or KILL was sent.
func (w *watch) signalled() bool { return w.stage >= termed }

// isOverdue returns true once, when processes have outlived their KILL by warnAfter.
func (w *watch) isOverdue(now time.Duration) bool {
	if w.stage != killed || now-w.killedAt <= warnAfter {
		return false
	}
	w.stage = overdue
	return true
}

// extend moves the deadline later. It does nothing if the new deadline has passed too or the lease is ending already. A
// deadline that has passed unseen, because this process stood still, moves as any other: the daemon sends only what the
// owner has granted, and the owner grants nothing to an attempt that it has given up (R7).
func (w *watch) extend(now, deadline time.Duration) {
	if deadline > w.deadline && deadline > now && w.deadline != 0 && w.cause != causeLease && w.stage < killed {
		w.deadline, w.paused, w.slept = deadline, 0, false
	}
}

// missed moves the deadline earlier by d, for which the host was paused while the lease ran on. Time limits and
// graces do not count that time.
func (w *watch) missed(now, d time.Duration) {
	if d <= 0 || w.deadline == 0 || w.lapsed(now) {
		return
	}
	w.deadline = max(1, w.deadline-d)
	w.paused = min(w.paused+min(d, protocol.MaxDuration), protocol.MaxDuration)
	w.slept = now >= w.deadline-w.lead
}

// over adds to a message about the end of the lease that a pause of the host caused it, if so.
func (w *watch) over(what string) string {
	if !w.slept {
		return what
	}
	return fmt.Sprintf("%s: this host was paused for %s, or its wall clock was set forward", what, job.Duration(w.paused.Round(time.Second)))
}

// end asks for the task's end. The first cause stays, and the shorter grace counts.
func (w *watch) end(now, grace time.Duration, why cause, detail string) {
	if w.cause == causeNone {
		w.cause, w.detail = why, detail
	}
	if at := now + grace; w.killAt == 0 || at < w.killAt {
		w.killAt = at
	}
}

// ended records how the main process has ended. If it was killed after the deadline and not by this process, the guard or
// the daemon has done it. If they have noted that they did (guarded), but the lease is not over for this process, it is the
// fault of the node, and not of the task.
func (w *watch) ended(now time.Duration, signal int, guarded bool) {
	if w.cause != causeNone || unix.Signal(signal) != unix.SIGKILL {
		return
	}
	switch {
	case w.lapsed(now):
		w.end(now, 0, causeLease, w.over("lease ran out while the runner stood still"))
	case guarded:
		w.end(now, 0, causeGuard, "the guard of this node's runner ended it, and the runner does not know why")
	default:
		return
	}
	w.stage, w.killedAt = killed, now
}

// leftovers records that the main process has ended and others have not. They are killed until none is left.
func (w *watch) leftovers(now time.Duration) {
	if w.stage < killed {
		w.stage, w.killedAt, w.pause = killed, now, retryFirst
		w.retryAt = now
	}
}

// inGrace reports whether TERM was sent and KILL was not.
func (w *watch) inGrace() bool { return w.stage == termed }

// next returns when step has to be called again; zero means never.
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
		sooner(w.awayAt)
		if w.deadline != 0 {
			sooner(w.deadline - w.lead)
		}
	case w.stage < termed:
		sooner(1) // now
	}
	return at
}

// step returns the signal that is due, or zero. The caller must send it.
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
		case w.awayAt != 0 && now >= w.awayAt:
			w.end(now, w.grace, causeAway, fmt.Sprintf("its client was gone for %s", job.Duration(w.away)))
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
		if w.cause == causeAway {
			return unix.SIGHUP
		}
		return unix.SIGTERM
	}
	return 0
}

// state returns the state in which a task ends by this cause.
func (c cause) state() job.State {
	switch c {
	case causeStop, causeAway:
		return job.Cancelled
	case causeLimit:
		return job.Timeout
	case causeLease, causeShutdown, causeGuard:
		return job.NodeFail
	case causeNone, causeScratch:
	}
	return job.Failed
}
