// Package backlog bounds how much work of each user waits at a daemon, pending or held. See docs/adr, ADR 123 and ADR 154.
package backlog

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// ErrFull refuses a job because too much work of its user waits at this daemon. Cancel some of it, or wait until
// some has started. Operators are refused only at the bound for all users.
var ErrFull = errors.New("scheduler: too much waits here")

// Limits bounds what waits at this daemon.
type Limits struct {
	PerUser Amount
	Users   map[string]Amount // by user, instead of PerUser
	// All bounds what waits of all users together. One user may have at most as much as is still free, so a new user finds
	// room however much the others submit.
	All Amount
}

// DefaultLimits has the bounds of a daemon without settings.
func DefaultLimits() Limits {
	return Limits{
		PerUser: Amount{Jobs: 100_000, Bytes: 2 << 30}, // 300 MB of memory
		All:     Amount{Jobs: 400_000, Bytes: 8 << 30},
	}
}

// Amount is how much waits.
type Amount struct {
	// Jobs measures memory. A job counts one for each MemoryPerJob that it holds, and at least one for each leanPerJob of
	// the part of its job file that placement needs. From its submission, an array counts as much as it could hold after
	// cancels of single tasks, so that there is always room for a cancel.
	Jobs  int64
	Bytes int64 // of job files, most of them on disk
}

const (
	// MemoryPerJob is the memory, in bytes, of a job of one task and of its soft state.
	MemoryPerJob = 3 << 10
	leanPerJob   = 2 << 10 // bytes
	// tasksPerJob tasks count as one job. That is more than they hold while they wait, which is one byte for each task and
	// a third of a byte for its chunk (see state.Memory). The rest is for the garbage that endless acts on single tasks
	// leave. Measured, the process grows by 150 MB at most.
	tasksPerJob = 250
	actsPerJob  = 3  // acts that count as one job: each keeps its reason, up to 256 bytes, and its tasks
	mostActs    = 64 // acts that a job keeps at most
)

func (a Amount) plus(b Amount) Amount { return Amount{a.Jobs + b.Jobs, a.Bytes + b.Bytes} }

// Minus returns a less b.
func (a Amount) Minus(b Amount) Amount { return Amount{a.Jobs - b.Jobs, a.Bytes - b.Bytes} }

// Cost returns the least that a job costs while it waits. fileBytes is the length of its job file if the file is only
// on disk, else 0.
func Cost(s *job.Spec, tasks, fileBytes int) Amount {
	memory := s.LeanBytes()
	if fileBytes == 0 {
		memory += s.Bulk()
		fileBytes = memory
	}
	acts := min(tasks-1, mostActs) / actsPerJob // a cancel of the only task ends the job
	return Amount{Jobs: int64(1 + tasks/tasksPerJob + acts + memory/leanPerJob), Bytes: int64(fileBytes)}
}

// SubmitCost returns what Cost returns, for a job that is not in the journal yet.
func SubmitCost(s *job.Spec, tasks int) Amount {
	if bulk := s.Bulk(); bulk > job.MaxBulk {
		return Cost(s, tasks, bulk+s.LeanBytes())
	}
	return Cost(s, tasks, 0)
}

// CostNow returns what a job costs now. least is what it costs at least while it waits. A job whose last task has started
// costs what it holds beyond a usual job, until it has ended.
func CostNow(j *state.Job, least Amount) Amount {
	held, counts := int64(state.Memory(j)/MemoryPerJob), j.Counts()
	switch {
	case counts.Of(job.Pending)+counts.Of(job.Held) > 0:
		return Amount{Jobs: max(least.Jobs, held), Bytes: least.Bytes}
	case j.Ended():
		return Amount{}
	}
	return Amount{Jobs: held}
}

// Backlog counts what waits.
type Backlog struct {
	limits *Limits // nil: none
	all    Amount
	of     map[string]Amount // by user
	// beyond is what users have beyond their own bounds, because their tasks have run: it takes no room from others.
	beyond Amount
}

// New returns a backlog in which nothing waits. Without limits anything may wait.
func New(limits *Limits) Backlog { return Backlog{limits: limits, of: map[string]Amount{}} }

// SetLimits replaces the bounds.
func (b *Backlog) SetLimits(limits *Limits) {
	b.limits, b.beyond = limits, Amount{}
	for user, has := range b.of {
		b.beyond = b.beyond.plus(b.excess(user, has))
	}
}

// Of returns what a user has waiting.
func (b *Backlog) Of(user string) Amount { return b.of[user] }

// Users returns how many users have something waiting.
func (b *Backlog) Users() int { return len(b.of) }

// All returns what waits of all users together.
func (b *Backlog) All() Amount { return b.all }

// share returns a user's own bound, and the name of the setting that sets it.
func (b *Backlog) share(user string) (most Amount, by string) {
	if own, named := b.limits.Users[user]; named {
		return own, "limits.users." + user
	}
	return b.limits.PerUser, "limits.per_user"
}

// excess returns by how much what a user has is beyond the user's own bound.
func (b *Backlog) excess(user string, has Amount) Amount {
	if b.limits == nil {
		return Amount{}
	}
	most, _ := b.share(user)
	return Amount{max(0, has.Jobs-most.Jobs), max(0, has.Bytes-most.Bytes)}
}

// Shift adds what a user has waiting; negative amounts take it off.
func (b *Backlog) Shift(user string, x Amount) {
	before, now := b.of[user], b.of[user].plus(x)
	b.all, b.beyond = b.all.plus(x), b.beyond.plus(b.excess(user, now)).Minus(b.excess(user, before))
	if b.of[user] = now; now == (Amount{}) {
		delete(b.of, user)
	}
}

// Check returns ErrFull if a user may not have x more waiting.
func (b *Backlog) Check(user string, operator bool, x Amount) error {
	if b.limits == nil {
		return nil
	}
	has := b.of[user]
	most, by := b.share(user)
	free := b.limits.All.Minus(b.all).plus(b.beyond)
	if operator {
		has, most, by = b.all, b.limits.All, "limits.all"
	} else if free.Jobs < most.Jobs || free.Bytes < most.Bytes {
		most, by = Amount{min(most.Jobs, free.Jobs), min(most.Bytes, free.Bytes)}, by+" and limits.all"
	}
	who := "user " + user
	if operator {
		who = "all users"
	}
	next := has.plus(x)
	const advice = "cancel some, wait until some have started, or submit many like tasks as one array"
	switch {
	case next.Jobs > most.Jobs:
		return fmt.Errorf("%w: %s: %d jobs, and %d are the most (%s: pending_jobs); %s", ErrFull, who, has.Jobs, max(0, most.Jobs), by, advice)
	case next.Bytes > most.Bytes:
		return fmt.Errorf("%w: %s: job files of %s, this one has %s, and %s are the most (%s: pending_bytes); %s",
			ErrFull, who, job.Size(has.Bytes), job.Size(x.Bytes), job.Size(max(0, most.Bytes)), by, advice)
	}
	return nil
}

// CheckEver says why a user may never have x waiting, even with nothing else.
func (b *Backlog) CheckEver(user string, operator bool, x Amount) error {
	if b.limits == nil {
		return nil
	}
	most, by := b.share(user)
	if all := b.limits.All; operator || all.Jobs < most.Jobs || all.Bytes < most.Bytes {
		most, by = all, "limits.all"
	}
	const advice = "split the job, or ask an operator to raise the limit"
	switch {
	case x.Jobs > most.Jobs:
		return fmt.Errorf("by the memory that it holds while it waits the job counts as %d jobs of user %s, and %d are the most that may wait (%s.pending_jobs); %s",
			x.Jobs, user, most.Jobs, by, advice)
	case x.Bytes > most.Bytes:
		return fmt.Errorf("the job file has %s, and %s are the most that may wait of user %s (%s.pending_bytes); %s",
			job.Size(x.Bytes), job.Size(most.Bytes), user, by, advice)
	}
	return nil
}

// CheckGrown returns ErrFull if a user has more waiting than the user's own bound. It is called before acts other
// than a cancel that make a job hold more.
func (b *Backlog) CheckGrown(user string) error {
	if b.limits == nil || b.excess(user, b.of[user]) == (Amount{}) {
		return nil
	}
	most, by := b.share(user)
	return fmt.Errorf("%w: user %s: what waits, some of which has run, holds the memory of %d jobs, and %d are the most (%s: pending_jobs); cancel some, or wait until some has ended",
		ErrFull, user, b.of[user].Jobs, most.Jobs, by)
}
