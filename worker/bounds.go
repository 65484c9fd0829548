package worker

// The bounds and times of a worker, with their reasons.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
)

const (
	// SessionLease is how long a session lives, counted from the newest Renew that was answered. A Start is accepted only
	// within that time.
	SessionLease = job.DefaultLease

	// MaxRecords bounds the attempts that run or whose end is not acknowledged. Above it the worker declines all offers.
	MaxRecords = contract.MaxLive
	// maxEnded bounds the attempts of one owner that have ended or were refused and that it has not acknowledged. Above it
	// its offers are declined, and its oldest refusals are forgotten. An owner acknowledges within a second.
	maxEnded = 4096
	// refusalKept is how long a refusal is kept if its owner does not acknowledge it. After that, a Start of the attempt
	// does not count: nothing is reserved for the attempt, and the lease under which the Start was sent is over.
	refusalKept = time.Hour
	// maxLapses is how many reservations of one scheduler may lapse in a row before nothing is reserved for it for a
	// while: firstPause, then twice as long each time, up to longestPause. A scheduler that lives starts what it has asked
	// for, or takes it back.
	maxLapses    = 16
	firstPause   = 10 * time.Second
	longestPause = 10 * time.Minute
	// lapsesKept is how long a scheduler must be without a further lapse for its lapses to be forgotten.
	lapsesKept = time.Hour
	// maxQueued bounds the queued offers of all schedulers, because each arbitration goes through all of them. If the
	// queue is full, an offer of the scheduler with most offers may be dropped; see offers.makeRoom.
	maxQueued = 4096
	// maxGroups bounds the known journal groups. Each costs a few hundred bytes and a renewal every 30 s.
	maxGroups = 16384
	// maxGroupsOf bounds the groups of one owner, so that no member can use up the groups of others. A daemon has one
	// group for each data directory that it ever had.
	maxGroupsOf = 16
	// groupRests is how long a group without attempts must be unused before another group of its owner may replace it. It
	// is longer than any offer waits.
	groupRests = time.Hour
	// groupExpires is how long a group must be unused to be forgotten, if it has no attempts and its owner has no
	// session. sweepGroups is how often such groups are looked for.
	groupExpires = 24 * time.Hour
	sweepGroups  = time.Hour
	// maxOutstanding bounds the unanswered renewals of one group. It is more than are usually requested while a session
	// lives.
	maxOutstanding = 16
	// maxSignals bounds the signals that wait until an epoch is on disk.
	maxSignals = 1024

	// maxVictims bounds the tasks, and the reservations, that are considered for one offer that needs room.
	maxVictims = 256
	// maxTries bounds the ports that are tried for one gang.
	maxTries = 32

	// retryRenew is the interval between renewals while no lease is live.
	retryRenew = 5 * time.Second
	// freshEnough is the age of a renewal above which a Commit requests another. So a task with a short lease starts with
	// most of its lease left.
	freshEnough = 10 * time.Second
	// minStart is how much of its lease a task must have left to start. With less it would soon get TERM.
	minStart = driver.FenceLead + 5*time.Second
	// lateRenewal is how long resources are held back for an offer whose wait has ended, because its scheduler may be
	// about to renew it. It is more than a round trip.
	lateRenewal = 500 * time.Millisecond
	// maxDrain bounds the time to the deadline of a drain, because a longer one could overflow the clock.
	maxDrain = 100 * 365 * 24 * time.Hour
	// leaseWait is how long a Start waits for the answer to a renewal. An answer that takes longer means that the session
	// is about to break.
	leaseWait = 5 * time.Second
	// overdue is the predicted time to the end of an attempt that should have ended already.
	overdue = time.Second
	// announceEvery is the minimum interval between two Availability messages, so that thousands of short tasks do not
	// cause thousands of messages to each scheduler.
	announceEvery = 100 * time.Millisecond
	// retrySave is the pause before the ledger is written again after an error.
	retrySave = time.Second
	// retryStop is the pause before a Stop that the driver could not take is repeated.
	retryStop = time.Second
	// backWithin bounds the wait until a device's memory is free after its task has ended. The kernel usually needs well
	// under a second, and a few seconds for large contexts.
	backWithin = 30 * time.Second
	// pollAgain is the interval between polls of the device status during that wait.
	pollAgain = 500 * time.Millisecond
)
