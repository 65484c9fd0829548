package worker

// How an attempt ended, as its user sees it.

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// exitOf completes the exit of an attempt. An attempt that was stopped on request is CANCELLED or PREEMPTED, and has not
// failed.
func exitOf(now leaseclock.Moment, a *attempt, exit job.Exit) job.Exit {
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	requested := stoppedOnRequest(&a.rec, exit)
	if exit.Ended.IsZero() {
		exit.Ended = now.Wall
	}
	if exit.Began.IsZero() && exit.Started {
		exit.Began = a.rec.Started
	}
	if requested {
		exit.State = stoppedState(&a.rec)
		exit.Reason = a.rec.Reason
	}
	return exit
}

// stoppedOnRequest reports whether an attempt ended because it was told to. A driver that knows this reports Cancelled.
// Otherwise the request counts if TERM or KILL ended the task, or if the driver reports no time of the end. Times are not
// compared, because the wall clock may have been set meanwhile.
func stoppedOnRequest(rec *contract.Record, exit job.Exit) bool {
	if rec.Reason == "" || exit.State == job.Cancelled {
		return rec.Reason != ""
	}
	unsaid := exit.Ended.IsZero() || exit.Signal == int(unix.SIGTERM) || exit.Signal == int(unix.SIGKILL)
	return unsaid && (exit.State == job.Failed || exit.State == job.Succeeded)
}

// stoppedState returns the final state of an attempt that was stopped on request.
func stoppedState(rec *contract.Record) job.State {
	if rec.Preempted {
		return job.Preempted
	}
	return job.Cancelled
}

// neverStarted returns the exit of an attempt whose daemon ended before it could ask the driver for the start.
func neverStarted() job.Exit {
	return job.Exit{State: job.NodeFail, Code: job.ExitMuster, Reason: "never started: the daemon of its node ended just before"}
}

// lost returns the exit of an attempt whose real exit is not known.
func lost(reason string) job.Exit {
	if reason == "" {
		reason = "runner died"
	}
	return job.Exit{State: job.NodeFail, Started: true, Reason: reason}
}
