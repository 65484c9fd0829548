package scheduler

// Back-off: for how long a task avoids a host, and when it is placed again.

import "time"

const (
	avoidFor = 30 * time.Second // after a task has lost the host
	// failedFor is for how long a task goes to another host if it fits there, after it has failed on one. For waitFor it also
	// waits for room at another.
	failedFor = 24 * time.Hour
	waitFor   = 5 * time.Minute
	keptFor   = 30 * time.Second // after the host has kept what is free for others
	// askAgainFor is for how long a host is not asked again to end tasks for one that it has refused that.
	askAgainFor = 30 * time.Second

	retryFirst = time.Second
	retryMost  = time.Minute

	// lossFirst and lossMost bound the pause of a task that has lost its host.
	lossFirst = 5 * time.Second
	lossMost  = 90 * time.Second
)

// backoff is retryFirst at first and doubles each time, up to retryMost.
func backoff(times int) time.Duration { return doubled(retryFirst, times, retryMost) }

// doubled is first at first and doubles each time, up to most.
func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	return min(first<<min(max(times-1, 0), 10), most)
}
