package worker

// How an attempt ended, as its user should read it.

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// exitOf attributes the exit to whoever ended the attempt: one that we were told to end did not fail.
func exitOf(now Moment, a *attempt, exit job.Exit) job.Exit {
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	wanted := wanted(&a.rec, exit)
	if exit.Ended.IsZero() {
		exit.Ended = now.Wall
	}
	if exit.Began.IsZero() && exit.Started {
		exit.Began = a.rec.Started
	}
	if wanted {
		exit.State = endMeant(&a.rec)
		exit.Reason = a.rec.Reason
	}
	return exit
}

// wanted says whether an attempt ended because it was told to. A driver that knows says Cancelled; no clock is asked, as
// it may have been set meanwhile. Of a driver that does not know, the signal tells, or that it has no time of the end.
func wanted(rec *lease.Record, exit job.Exit) bool {
	if rec.Reason == "" || exit.State == job.Cancelled {
		return rec.Reason != ""
	}
	unsaid := exit.Ended.IsZero() || exit.Signal == int(unix.SIGTERM) || exit.Signal == int(unix.SIGKILL)
	return unsaid && (exit.State == job.Failed || exit.State == job.Succeeded)
}

// endMeant is the state of an attempt that was told to end.
func endMeant(rec *lease.Record) job.State {
	if rec.Preempted {
		return job.Preempted
	}
	return job.Cancelled
}

// lost is the end of an attempt of which nobody knows how it ended.
func lost(reason string) job.Exit {
	if reason == "" {
		reason = "runner died"
	}
	return job.Exit{State: job.NodeFail, Started: true, Reason: reason}
}
