package worker

// Breaker: a host or a GPU on which different jobs fail one after the other is given no task for a while, so that it does
// not consume the whole queue.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// fastFailure is how soon a task fails that may have met a broken host or
	// GPU: the import of a large framework and its first look at the GPU.
	fastFailure = 30 * time.Second
	// breakerJobs is how many different jobs have to fail one after the other,
	// none succeeding between, and breakerPerUser how many of one user's count:
	// so nobody's own bad commands take a host from the others.
	breakerJobs    = 5
	breakerPerUser = 3
	// breakerOurs is how many jobs the host may fail to start by its own fault:
	// whose jobs they are says nothing then.
	breakerOurs = 3
	// breakerFirst is the pause after the first time; it doubles with each time
	// until a task succeeds, up to breakerMost.
	breakerFirst = 30 * time.Second
	breakerMost  = 30 * time.Minute
	// exitOurs is the exit code of a task that the host failed to start.
	exitOurs = 125
)

// failure is one job that failed fast.
type failure struct {
	job  job.ID
	user string
	ours bool // the host could not start it
	on   []string
}

// breaker is what speaks against a host or a GPU since a task last succeeded.
type breaker struct {
	failures []failure
	trips    int
}

// note takes a failure, and says why the breaker trips, if it does.
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

// when is a moment for people on other hosts, too.
func when(now Moment, after time.Duration) string {
	return "at " + now.Wall.Add(after).UTC().Format(time.RFC3339)
}
