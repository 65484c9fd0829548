package scheduler

// Avoidance: hosts that a task is not offered to for a while, with growing back-off.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// avoidance is a host that a task avoids for a while. If it is not hard, the task avoids the host only while it can go
// to another one.
type avoidance struct {
	peer  job.Peer
	until time.Time
	hard  bool
	// kept says that the host keeps what is free for tasks of other schedulers. The task may queue behind them.
	kept bool
}

// avoidances are the hosts that a task avoids.
type avoidances []avoidance

const (
	avoidFor = 30 * time.Second // after a task has failed on the host
	keptFor  = 30 * time.Second // after the host has kept what is free for others
	// maxAvoid bounds the hosts that one task avoids. A task that avoids so many is not offered to any host until the
	// first of them is free again.
	maxAvoid   = 64
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

// add makes the task avoid a host. It replaces an earlier avoidance of the same host.
func (as *avoidances) add(now time.Time, a avoidance) {
	if a.peer == "" {
		return
	}
	*as = slices.DeleteFunc(*as, func(b avoidance) bool { return b.peer == a.peer || !b.until.After(now) })
	if len(*as) >= maxAvoid {
		*as = (*as)[1:]
	}
	*as = append(*as, a)
}

// at returns the avoidance of the host, if the task avoids it now.
func (as avoidances) at(now time.Time, p job.Peer) (avoidance, bool) {
	for _, a := range as {
		if a.peer == p && a.until.After(now) {
			return a, true
		}
	}
	return avoidance{}, false
}

// full reports whether the task avoids as many hosts as it may, and until when.
func (as avoidances) full(now time.Time) (until time.Time, all bool) {
	if len(as) < maxAvoid {
		return time.Time{}, false
	}
	for _, a := range as {
		if !a.until.After(now) {
			return time.Time{}, false
		}
		if until.IsZero() || a.until.Before(until) {
			until = a.until
		}
	}
	return until, true
}
