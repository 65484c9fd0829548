package worker

// The bounds and times of a worker, and why they are what they are.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

const (
	// SessionLease is how long a session lives, counted from the newest Renew that was answered. For that long a Commit
	// may be turned into a task.
	SessionLease = job.DefaultLease

	// MaxRecords bounds the attempts that a worker remembers: those that run, and those whose end is not acknowledged.
	// Above it no new work is taken.
	MaxRecords = lease.MaxLive
	// maxQueued bounds the offers of all schedulers that wait here: each change of what is free looks at all of them.
	// Above it schedulers with few offers displace those with most, see makeRoom.
	maxQueued = 4096
	// maxAge bounds the age of a job in an offer: no job waits for longer, and a wrong age could overflow the clock.
	maxAge = 365 * 24 * time.Hour
	// maxGroups bounds the journal groups that are remembered; each costs a few hundred bytes and a renewal every 30 s.
	maxGroups = 16384
	// maxOutstanding bounds the unanswered renewals of one group: more than are requested within a session's life at the
	// usual pace.
	maxOutstanding = 16
	// maxLines bounds the log lines of one turn: an event makes one at most, but a restart reads a whole ledger. The last
	// line says how many were left out.
	maxLines = 4096
	// maxRefusals bounds the pairs of a user and a scheduler that was refused for the user's quota: some 200 bytes each. A
	// scheduler that is forgotten makes its offer again after a while by itself.
	maxRefusals = 8192
	// maxSignals bounds the signals that wait for an epoch to be on disk.
	maxSignals = 1024

	// retryRenew is how soon a renewal is requested again while no lease is live.
	retryRenew = 5 * time.Second
	// freshEnough is the age of a renewal above which a Commit requests another, so that a task with a short lease starts
	// with most of it left.
	freshEnough = 10 * time.Second
	// minStart is the least that a lease must have left for a task to start: with less it would get its TERM at once.
	minStart = FenceLead + 5*time.Second
	// lateRenewal is how long resources are held back for an offer whose wait has ended, as its scheduler may be about to
	// renew it: more than a round trip.
	lateRenewal = 500 * time.Millisecond
	// maxDrain bounds how far off the deadline of a drain may be: a farther one could overflow the clock.
	maxDrain = 100 * 365 * 24 * time.Hour
	// leaseWait is how long a Start waits for the answer to a renewal. If it takes longer, the session is about to break.
	leaseWait = 5 * time.Second
	// lapsedFor is how long a lapsed reservation is remembered: a Start that is late by less may find its place again.
	lapsedFor = time.Minute
	// announceEvery is the least time between two Availability messages, so that thousands of short tasks are not
	// thousands of messages to each scheduler.
	announceEvery = 100 * time.Millisecond
	// retrySave is how soon a failing disk is tried again.
	retrySave = time.Second
	// retryStop is how soon a Stop that the driver did not take is tried again.
	retryStop = time.Second
	// backWithin bounds the wait for a device's memory after its task ended. The kernel frees it in well under a second,
	// that of large contexts in a few seconds.
	backWithin = 30 * time.Second
	// pollAgain is how often the device status is requested meanwhile.
	pollAgain = 500 * time.Millisecond
)
