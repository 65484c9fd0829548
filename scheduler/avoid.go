package scheduler

// Avoidance: hosts that a task is not offered to for a while, with a growing pause.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// avoidance is a host that a task avoids for a while: if hard, in any case, else only while there is another host.
type avoidance struct {
	peer  job.Peer
	until time.Time
	hard  bool
	// kept says that what is free there is kept for tasks of other schedulers. The task may queue behind them.
	kept bool
}

// avoidances are the hosts that a task avoids.
type avoidances []avoidance

const (
	avoidFor = 30 * time.Second // the host on which a task has just failed
	keptFor  = 30 * time.Second // a host that keeps what is free for others
	// maxAvoid bounds the hosts that one task avoids. A task that avoids so many is offered to none before the first
	// pause is over.
	maxAvoid   = 64
	retryFirst = time.Second
	retryMost  = time.Minute
	// lossFirst and lossMost bound the pause of a task that has lost its host.
	lossFirst = 5 * time.Second
	lossMost  = 90 * time.Second
)

// backoff doubles from retryFirst with each time, up to retryMost.
func backoff(times int) time.Duration { return doubled(retryFirst, times, retryMost) }

// doubled is first, then twice as much with each further time, up to most.
func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	return min(first<<min(max(times-1, 0), 10), most)
}

// add has the task avoid the host. It replaces what the task held against the host before.
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

// at is why the task avoids the host now, if it does.
func (as avoidances) at(now time.Time, p job.Peer) (avoidance, bool) {
	for _, a := range as {
		if a.peer == p && a.until.After(now) {
			return a, true
		}
	}
	return avoidance{}, false
}

// full says whether the task avoids as many hosts as it may, and until when.
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
