package worker

// Breaker: a host or a GPU on which different jobs fail one after the other is given no task for a while, so that it does
// not consume the whole queue.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// fastFailure bounds how long a task ran whose failure counts. It is time enough to import a large framework and to
	// open the GPU; a task that fails later did not meet a broken host.
	fastFailure = 30 * time.Second
	// breakerJobs is how many different jobs have to fail one after the other, with none that succeeds between.
	// breakerPerUser is how many of one user's jobs count, so that one user's bad commands do not close a host to others.
	breakerJobs    = 5
	breakerPerUser = 3
	// breakerOurs is how many jobs the host may fail to start by its own fault, whoever owns them.
	breakerOurs = 3
	// breakerFirst is the first pause; each further pause is twice as long, up to breakerMost, until a task succeeds.
	breakerFirst = 30 * time.Second
	breakerMost  = 30 * time.Minute
	// exitOurs is the exit code of a task that the host failed to start.
	exitOurs = job.ExitMuster
)

// failure is one job that failed within fastFailure, or could not be started.
type failure struct {
	job  job.ID
	user string
	ours bool     // the host could not start it
	on   []string // UUIDs of its devices
}

// breaker counts the failures on a host or a GPU since a task last succeeded there.
type breaker struct {
	failures []failure
	trips    int
}

// note counts a failure, and returns why the breaker trips; empty if it does not.
func (b *breaker) note(f failure) (why string) {
	ours, ofUser := 0, 0
	for _, other := range b.failures {
		if other.job == f.job {
			return ""
		}
		if other.ours {
			ours++
		}
		if !other.ours && other.user == f.user {
			ofUser++
		}
	}
	if !f.ours && ofUser >= breakerPerUser {
		return ""
	}
	b.failures = append(b.failures, f)
	if f.ours {
		ours++
	}
	switch {
	case ours >= breakerOurs:
		return fmt.Sprintf("it could not start %d different jobs in a row", ours)
	case len(b.failures) >= breakerJobs:
		return fmt.Sprintf("%d different jobs failed in a row, each within %s", len(b.failures), fastFailure)
	}
	return ""
}

// forget forgets the failures and pauses; it says whether the disk knows of some.
func (b *breaker) forget() (kept bool) {
	kept = b.trips > 0
	*b = breaker{}
	return kept
}

// trip begins a pause.
func (b *breaker) trip() time.Duration {
	b.failures = nil
	b.trips++
	return pauseAfter(b.trips - 1)
}

// pauseAfter is the pause that comes after so many others.
func pauseAfter(trips int) time.Duration {
	return min(breakerFirst<<min(max(trips, 0), 16), breakerMost)
}

// when is a moment in UTC, as people on other hosts read it, too.
func when(now Moment, after time.Duration) string {
	return "at " + now.Wall.Add(after).UTC().Format(time.RFC3339)
}
