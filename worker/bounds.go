package worker

// The bounds and times of a worker, and why they are what they are.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

const (
	// SessionLease is how long a session lives after the request whose renewal
	// was answered: for that long a Commit may be turned into a task.
	SessionLease = job.DefaultLease

	// MaxRecords bounds the attempts that a worker remembers: those that run,
	// and those whose end nobody has acknowledged. Above it no new work is taken.
	MaxRecords = lease.MaxLive
	// maxQueued bounds the offers of all schedulers that wait here, as each
	// change of what is free looks at all of them. Beyond it those who have fewest
	// get in, see makeRoom.
	maxQueued = 4096
	// maxAge bounds what is believed of the age of a job: none waits for longer, and
	// without a bound a wrong age would overflow the clock.
	maxAge = 365 * 24 * time.Hour
	// maxGroups bounds the journal groups that are remembered; each costs a few
	// hundred bytes and one renewal every 30 s.
	maxGroups = 16384
	// maxOutstanding bounds the unanswered renewals of one group: more than are
	// asked within a session's life at the usual pace.
	maxOutstanding = 16
	// maxLines bounds the log lines of one round: an event makes one at most, but
	// a restart reads a whole ledger. The last line says how many were left out.
	maxLines = 4096
	// maxRefusals bounds the pairs of a user and a scheduler that was refused for
	// his quota: some 200 bytes each. A scheduler asks again by itself in time.
	maxRefusals = 8192
	// maxSignals bounds the signals that wait for an epoch to be on disk.
	maxSignals = 1024

	// retryRenew is how soon a renewal is asked again while no lease is live.
	retryRenew = 5 * time.Second
	// freshEnough is the age of a renewal above which a Commit asks for another,
	// so that a task with a short lease starts with most of it left.
	freshEnough = 10 * time.Second
	// minStart is the least that a lease must have left for a task to start: less
	// and it would get its TERM at once.
	minStart = FenceLead + 5*time.Second
	// lateRenewal is how long, at most, the next in line waits for what was kept
	// for an offer whose wait ended: more than a round trip.
	lateRenewal = 500 * time.Millisecond
	// maxDrain bounds how far off the deadline of a drain is taken: without a bound
	// a far one would overflow the clock.
	maxDrain = 100 * 365 * 24 * time.Hour
	// leaseWait is how long a Start waits for the answer to a renewal: one that takes
	// longer belongs to a session that breaks.
	leaseWait = 5 * time.Second
	// lapsedFor is how long a lapsed reservation is remembered: a Start that
	// comes that late may take its place again.
	lapsedFor = time.Minute
	// announceEvery is the least time between two words on what is free, so that
	// thousands of short tasks are not thousands of messages to each scheduler.
	announceEvery = 100 * time.Millisecond
	// retrySave is how soon a failing disk is tried again.
	retrySave = time.Second
	// retryStop is how soon a Stop that the driver did not take is tried again.
	retryStop = time.Second
	// backWithin bounds the wait for a device's memory after its task ended; the
	// kernel gives it back in well under a second, large contexts in a few.
	backWithin = 30 * time.Second
	// pollAgain is the pace at which device status is asked for meanwhile.
	pollAgain = 500 * time.Millisecond
)

// clip bounds a sentence for people.
func clip(s string) string {
	if len(s) <= lease.MaxDetail {
		return s
	}
	return s[:lease.MaxDetail]
}
