package contract

// Levels: the order of tasks with one priority if the cluster orders them by GPU-time and not by age.
// See docs/adr, ADR 110.

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// OrderBy says how tasks of one priority are ordered.
type OrderBy int

const (
	// ByAge orders by past use and age alone. All tasks have level 0.
	ByAge OrderBy = iota
	// ByAttained puts first the tasks that have had the least GPU-time.
	ByAttained
	// ByRemaining puts first the tasks that have the least GPU-time left, by their time limits.
	ByRemaining
)

// MaxLevel is the last level. Level 0 goes first.
const MaxLevel = 31

// MaxWork bounds Work.Time.
const MaxWork = 1 << 62 * time.Nanosecond

// MinRun is the shortest time that a task runs before a task of the same priority may preempt it.
const MinRun = 10 * time.Minute

// Precedence combines priority and level into one number. Tasks are ordered by it first, the highest number first.
func Precedence(priority, level int) int { return priority*(MaxLevel+1) + MaxLevel - level }

// MaxPrecedence is the highest precedence.
const MaxPrecedence = job.MaxPriority*(MaxLevel+1) + MaxLevel

// orders lists the names of the orders.
var orders = []string{ByAge: "age", ByAttained: "attained", ByRemaining: "remaining"}

// Orders returns the names of the orders, the default first.
func Orders() []string { return slices.Clone(orders) }

// ParseOrder returns the order with a name, or false if there is none.
func ParseOrder(name string) (OrderBy, bool) {
	i := slices.Index(orders, name)
	return OrderBy(max(i, 0)), i >= 0
}

// String returns the name.
func (o OrderBy) String() string { return orders[o] }

// Work is the GPU-time by which an attempt is ordered, as the owner knows it when it offers the attempt.
type Work struct {
	By   OrderBy
	Time time.Duration // GPU-time that the task has had, or has left; summed over GPUs and over the members of a gang
}

// mostKept bounds for how long a level is kept before it is computed again.
const mostKept = 365 * 24 * time.Hour

// The width of level 0 in GPU-time. Each further level is twice as wide as the one before.
const (
	attainedUnit  = time.Hour
	remainingUnit = time.Minute
)

// unit returns the width of level 0.
func (w Work) unit() time.Duration {
	if w.By == ByRemaining {
		return remainingUnit
	}
	return attainedUnit
}

// Level returns the level that the work alone gives.
func (w Work) Level() int {
	if w.By == ByAge || w.Time <= 0 {
		return 0
	}
	return min(bits.Len64(uint64(w.Time/w.unit())+1)-1, MaxLevel)
}

// Width returns the GPU-time that a task uses per unit of time, in thousandths: its GPUs, or its share of one, times the
// members of its gang. A task without GPUs counts as if it had one.
func Width(need job.Resources, gang int) int {
	return cmp.Or(gpu.Count(need)*gpu.Milli(need), gpu.Whole) * max(1, gang)
}

// Times returns the GPU-time that a task of this width uses in d.
func Times(d time.Duration, width int) time.Duration {
	const most = int64(MaxWork)
	if width < 1 || d <= 0 {
		return 0
	}
	if int64(d) > most/int64(width) {
		return min(d/gpu.Whole, time.Duration(most/int64(width))) * time.Duration(width)
	}
	return d * time.Duration(width) / gpu.Whole
}

// Present returns the present level of an attempt that was offered with a level and this work, and has run since. It also
// returns for how long the attempt keeps that level if it runs on; 0: for good. It needs no clock of another host.
//
// For its first MinRun, an attempt has level 0. An attempt whose task had waited long may have been offered with a better
// level than its work gives. Under ByAttained it keeps that level until its GPU-time has doubled; under ByRemaining, for
// good, from the start.
func (w Work) Present(level, width int, ran time.Duration) (now int, keeps time.Duration) {
	early := level < w.Level()
	switch {
	case w.By == ByAge || w.By == ByRemaining && early:
		return level, 0
	case ran < MinRun:
		return 0, MinRun - ran
	}
	had := Times(ran, width)
	step := func(work time.Duration) time.Duration { // how long it takes to use this much more GPU-time
		return max(time.Second, min(work/time.Duration(max(width, 1)), mostKept/gpu.Whole)*gpu.Whole)
	}
	if w.By == ByRemaining {
		left := Work{w.By, max(w.Time-had, 0)}
		if now = left.Level(); now == 0 {
			return 0, 0
		}
		return now, step(left.Time - left.ends(now-1))
	}
	if early && had < w.Time {
		return level, step(w.Time - had)
	}
	all := Work{w.By, min(w.Time, MaxWork-had) + had}
	if now = all.Level(); now == (Work{w.By, MaxWork}).Level() {
		return now, 0
	}
	return now, step(all.ends(now) - all.Time)
}

// ends returns the GPU-time at which a level ends.
func (w Work) ends(level int) time.Duration {
	if level >= MaxLevel {
		return MaxWork
	}
	return w.unit() * time.Duration(1<<(level+1)-1)
}

// Ordered is the place of a task among the tasks of its priority.
type Ordered struct {
	Level int  // the lowest goes first, up to MaxLevel; 0 if the owner orders by age
	Work  Work // changes the level of the attempt while it runs
}

// Precedence returns the precedence of the offer.
func (o *Offer) Precedence() int { return Precedence(o.Priority, o.Level) }

// Precedence returns the precedence of the tasks.
func (y *Preemptible) Precedence() int { return Precedence(y.Priority, y.Level) }
