package place

// Decisions: what becomes of a task that is to be placed.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
)

// Verdict is what a decision comes to.
type Verdict int

// The verdicts.
const (
	Blocked Verdict = iota // no host has room for the task, nor for any other with the same request
	Fits                   // it fits at a host now
	Queues                 // it fits nowhere now, and may queue at full hosts
	Pauses                 // it avoids hosts that could run it: it is placed again after a pause
)

func (v Verdict) String() string { return [...]string{"blocked", "fits", "queues", "pauses"}[v] }

// Decision is where a task goes. Its slices are valid until the next call of the Placer.
type Decision struct {
	Verdict Verdict
	Host    *fleet.Host   // Fits: where
	Devices []string      // Fits: UUIDs of those that the task gets there
	Queue   []*fleet.Host // Queues: at which hosts
	Passed  []*fleet.Host // Queues: others where it is to queue so that no tasks of a lower priority pass it
	Preempt *fleet.Host   // Queues: the one of these hosts where preemptible tasks are to make room; nil: none
	Why     string        // Fits, Queues: why the task goes there, for people
	Until   time.Time     // Pauses: when the task is placed again
	// Again are the hosts with room that the task avoids. The task is to be compared with each of them again, whatever
	// the verdict.
	Again []Again
}

// retryWait is after how long a task that avoids some hosts for longer is placed again: another host may have room by
// then.
const retryWait = time.Second

// whyQueued is why a task runs at a host where it has queued.
const whyQueued = "no host had room: of those where it queued this one was the first to commit"

// Decide decides where the task goes at this time. The searches of the table begin at the slot from. They go by what
// Table.Count counted last.
func (p *Placer) Decide(t *Task, from int, now time.Time) Decision {
	if until, full := t.Avoid.full(now); full {
		return Decision{Verdict: Pauses, Until: until}
	}
	var d Decision
	host, chosen := p.choose(t, p.feasible(t, from, now))
	d.Again = p.again
	if host != nil {
		d.Verdict, d.Host, d.Devices, d.Why = Fits, host, chosen.Devices, chosen.Why
		return d
	}
	d.Queue = p.Queue(t, from, now)
	d.Passed = p.Passed(t, queueHosts)
	if d.Preempt = p.Preempt(t, from, now); d.Preempt != nil && !slices.Contains(d.Queue, d.Preempt) {
		d.Queue = append(d.Queue, d.Preempt)
		d.Passed = slices.DeleteFunc(d.Passed, func(h *fleet.Host) bool { return h == d.Preempt })
	}
	if len(d.Queue) > 0 {
		d.Verdict, d.Why = Queues, whyQueued
		return d
	}
	if d.Until = p.until(t, now); !d.Until.IsZero() {
		d.Verdict = Pauses
	}
	return d
}

// until returns when a task that has found no room is placed again: when the first Hard avoidance ends of a host that
// could run it, or sooner if another host may get room before that. It is zero if the task avoids no host that could run
// it.
func (p *Placer) until(t *Task, now time.Time) time.Time {
	var until time.Time
	for _, each := range t.Avoid {
		h := p.fleet.Host(each.Peer)
		if h == nil {
			continue
		}
		if a, avoided := t.avoids(now, h); avoided && a.Hard && h.Open() && p.fleet.Could(t.Shape, h) {
			until = earlier(until, a.Until)
		}
	}
	if soon := now.Add(retryWait); until.After(soon) && p.anyOpen(t, now) {
		return soon
	}
	return until
}

// anyOpen reports whether an open host could run the task and the task has no Hard avoidance of it.
func (p *Placer) anyOpen(t *Task, now time.Time) bool {
	for h := range p.fleet.Candidates(t.Shape) {
		if a, avoided := t.avoids(now, h); h.Open() && (!avoided || !a.Hard) {
			return true
		}
	}
	return false
}
