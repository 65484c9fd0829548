package admission

// The bounds and times of the queue and of what is kept, with their reasons.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
)

const (
	// turnsAlone is how long one offer alone has turns, in multiples of its first turn: 1+1+2+2+4+4, three turns in which
	// others may have what is free, and three in which it is kept. By default that is 2 hours and 20 minutes.
	turnsAlone = 14
	// lapsedFor is how long a lapsed reservation is remembered. A Start that comes within that time may still succeed.
	lapsedFor = time.Minute
	// MaxAge bounds the age of a job in an offer, because a wrong age could overflow the clock. No job waits for longer.
	MaxAge = 365 * 24 * time.Hour
	// maxHold bounds how long a member of a gang holds a reservation without another message of its scheduler.
	maxHold = 2 * time.Minute
	// MaxGather bounds how long such a member holds a reservation in all, because a scheduler might renew it for ever. It
	// is longer than schedulers take to gather a gang.
	MaxGather = 30 * time.Minute
	// maxKeeps bounds the offers for which something is kept at a time, and maxNeeds the different needs that are looked at
	// for that. Each costs a simulation of the time to come.
	maxKeeps = 16
	maxNeeds = 64
	// maxPromised bounds the further offers for which something is kept because tasks end for them, or are promised to
	// them. Each keep of a pass is one bit of a word of 64 bits.
	maxPromised = 40
	// maxSwitches bounds how often one pass tries an offer on devices which are kept for others. After that, offers are
	// tried only on devices that are not kept for any offer.
	maxSwitches = 512
	// maxTimes bounds the times at which such a simulation looks whether an offer fits. If tasks here end at more times,
	// the offer may be booked a little later than it could be.
	maxTimes = 32
	// sayKeptAfter is the delay after which schedulers learn of a change in what is kept for waiting tasks, if no other
	// news is sent before.
	sayKeptAfter = time.Second
	// StartWithin is how long after its Commit the process of a task should have begun: the Start comes within
	// contract.ReserveFor. Predictions of releases assume it. A task that waits longer, for files or an image, releases
	// its resources later than predicted.
	StartWithin = contract.ReserveFor
)
