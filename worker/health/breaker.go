package health

// Breaker: if different jobs fail in a row on a host or a GPU, or the host cannot start tasks, it gets no tasks for a while.
// Otherwise a broken host would make every queued task fail.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

const (
	// FastFailure is the longest run time with which a failed task counts. It is enough to import a large framework and to
	// open the GPU. A task that fails later did not fail because of a broken host.
	FastFailure = 30 * time.Second
	// breakerJobs is how many different jobs have to fail in a row, without a success between them. breakerPerUser is how
	// many jobs of one user count, so that one user's bad commands do not pause a host for others.
	breakerJobs    = 5
	breakerPerUser = 3
	// breakerOurs is how many different jobs in a row must have a task that the host could not start. A job counts once,
	// so that no job alone pauses a host for others. After a pause, the first task that the host cannot start pauses it
	// again.
	breakerOurs = 3
	// breakerFirst is the first pause. Each further pause is twice as long, up to breakerMost, until a task succeeds, or
	// runs for longer than FastFailure.
	breakerFirst = 30 * time.Second
	breakerMost  = 30 * time.Minute
	// exitOurs is the exit code of a task that the host could not start.
	exitOurs = job.ExitMuster
)

// failure is a job that failed within FastFailure, or a task that could not be started.
type failure struct {
	job  job.ID
	user string
	ours bool     // the host could not start the task
	on   []string // UUIDs of its devices
}

// breaker counts the failures on a host or a GPU since the last success there.
type breaker struct {
	failures  []failure
	unstarted []job.ID // jobs in a row that had a task which the host could not start
	trips     int
	from      leaseclock.BootTime // the end of the last pause. What began before that says nothing about the host since.
	trial     bool                // it was paused, and since then no task has started or failed to start
}

// counts reports whether an attempt that began then counts. Attempts from before the end of the last pause do not: they
// failed for the reason that has already led to that pause.
func (b *breaker) counts(began leaseclock.BootTime) bool { return began != 0 && began >= b.from }

// note counts a failure. It returns why the breaker trips, or "" if it does not.
func (b *breaker) note(f failure) (why string) {
	if f.ours {
		if b.trial {
			return "it could not start the first task after a pause; its log says why"
		}
		if !slices.Contains(b.unstarted, f.job) {
			b.unstarted = append(b.unstarted, f.job)
		}
		if n := len(b.unstarted); n >= breakerOurs {
			return fmt.Sprintf("it could not start tasks of %d jobs in a row; its log says why", n)
		}
		return ""
	}
	ofUser := 0
	for _, other := range b.failures {
		if other.job == f.job {
			return ""
		}
		if other.user == f.user {
			ofUser++
		}
	}
	if ofUser >= breakerPerUser {
		return ""
	}
	b.failures = append(b.failures, f)
	if len(b.failures) >= breakerJobs {
		return fmt.Sprintf("%d different jobs failed in a row, each within %s", len(b.failures), FastFailure)
	}
	return ""
}

// started notes that the host has started a task, however that ended.
func (b *breaker) started() { b.unstarted, b.trial = nil, false }

// held notes that a task has run for longer than FastFailure. It returns whether that changes what is saved on disk.
func (b *breaker) held() (kept bool) {
	kept = b.trips > 0
	b.trips = 0
	return kept
}

// forget resets the breaker, except that attempts from before the last pause still do not count. It returns whether that
// changes what is saved on disk.
func (b *breaker) forget() (kept bool) {
	kept = b.trips > 0
	*b = breaker{from: b.from}
	return kept
}

// trip counts a pause and returns its length.
func (b *breaker) trip() time.Duration {
	b.failures, b.unstarted = nil, nil
	b.trips++
	return pauseAfter(b.trips - 1)
}

// pauseAfter returns the length of the pause that follows this many others.
func pauseAfter(trips int) time.Duration {
	return min(breakerFirst<<min(max(trips, 0), 16), breakerMost)
}

// pausedUntil describes the end of a pause, for people. It uses UTC, because people on other hosts read it too.
func pausedUntil(now leaseclock.Moment, pause time.Duration) string {
	return "paused until " + now.Wall.Add(pause).UTC().Format(time.RFC3339)
}
