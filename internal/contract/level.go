package contract

// Levels: of tasks with one priority, which go first if the cluster goes by their GPU-time and not by their age.
// See docs/adr, ADR 110.

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// OrderBy says by what tasks of one priority are ordered.
type OrderBy int

const (
	// ByAge orders by use and age alone. All tasks have level 0.
	ByAge OrderBy = iota
	// ByAttained puts those first that have had the least GPU-time.
	ByAttained
	// ByRemaining puts those first that have the least GPU-time left, by their time limits.
	ByRemaining
)

// MaxLevel is the last level. Level 0 goes first.
const MaxLevel = 31

// MaxWork bounds Work.Time.
const MaxWork = 1 << 62 * time.Nanosecond

// MinRun is how long a task runs at least before a task of its own priority may end it.
const MinRun = 10 * time.Minute

// Precedence is a number by which tasks are ordered before anything else, the highest first: by priority, then by level.
func Precedence(priority, level int) int { return priority*(MaxLevel+1) + MaxLevel - level }

// MaxPrecedence is the precedence of the first tasks.
const MaxPrecedence = job.MaxPriority*(MaxLevel+1) + MaxLevel

// orders lists the names of the orders.
var orders = []string{ByAge: "age", ByAttained: "attained", ByRemaining: "remaining"}

// Orders returns the names of the orders, the default first.
func Orders() []string { return slices.Clone(orders) }

// ParseOrder returns the order of a name; false if there is none.
func ParseOrder(name string) (OrderBy, bool) {
	i := slices.Index(orders, name)
	return OrderBy(max(i, 0)), i >= 0
}

// String returns the name.
func (o OrderBy) String() string { return orders[o] }

// Work is the GPU-time by which an attempt is ordered, as its owner knows it when it offers the attempt.
type Work struct {
	By   OrderBy
	Time time.Duration // that its task has had, or has left; of one GPU, and of all members of a gang together
}

// mostKept bounds for how long a level is kept before it is looked at again.
const mostKept = 365 * 24 * time.Hour

// The first level ends after this GPU-time, and each further one is twice as wide as the one before.
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

// Level is the level by the work alone.
func (w Work) Level() int {
	if w.By == ByAge || w.Time <= 0 {
		return 0
	}
	return min(bits.Len64(uint64(w.Time/w.unit())+1)-1, MaxLevel)
}

// Width is by how much the GPU-time of a task grows with time, in thousandths: that of one GPU, or of a share of it, of all
// members of its gang together. A task without GPUs counts as if it had one.
func Width(need job.Resources, gang int) int {
	return cmp.Or(gpu.Count(need)*gpu.Milli(need), gpu.Whole) * max(1, gang)
}

// Times returns the GPU-time of so much time with a width.
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

// Present returns the level of an attempt that has run for a while since it was offered with a level and this work, and
// for how long it keeps that level if it goes on; 0: for good. No clock of another host counts.
//
// It is 0 for MinRun. An attempt that had a better level than its work gives it, because its task had waited long, keeps
// that until it has had as much again as before; by the work that is left, for good.
func (w Work) Present(level, width int, ran time.Duration) (now int, keeps time.Duration) {
	early := level < w.Level()
	switch {
	case w.By == ByAge || w.By == ByRemaining && early:
		return level, 0
	case ran < MinRun:
		return 0, MinRun - ran
	}
	had := Times(ran, width)
	step := func(work time.Duration) time.Duration { // until so much more work
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

// ends returns the work with which a level ends.
func (w Work) ends(level int) time.Duration {
	if level >= MaxLevel {
		return MaxWork
	}
	return w.unit() * time.Duration(1<<(level+1)-1)
}

// Ordered is the place of a task among those of its priority.
type Ordered struct {
	Level int  // the lowest goes first, up to MaxLevel; 0 if the owner orders by age
	Work  Work // by which the level of the attempt changes while it runs
}

// Precedence is that of an offer.
func (o *Offer) Precedence() int { return Precedence(o.Priority, o.Level) }

// Precedence is that of the tasks.
func (y *Preemptible) Precedence() int { return Precedence(y.Priority, y.Level) }
