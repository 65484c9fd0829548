package scheduler

// Back-off: for how long a task avoids a host, and when it is placed again.

import "time"

const (
	avoidFor = 30 * time.Second // after a task has lost the host
	// failedFor is how long a task that has failed on a host prefers other hosts where it fits. For the first waitFor of
	// that time it even waits for room on another host.
	failedFor = 24 * time.Hour
	waitFor   = 5 * time.Minute
	keptFor   = 30 * time.Second // after the host has kept what is free for others
	// askAgainFor is the pause after a host has refused to end other tasks for a task, before the task asks it for that
	// again.
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
