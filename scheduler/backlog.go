package scheduler

// The backlog: how much of each user waits at this daemon, pending or held, and how much may.
// See docs/adr, ADR 123.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/job"
)

// ErrBacklog refuses a job because too much of its user waits at this daemon. Cancel some of it, or wait until some has
// started. Operators are not refused before all that may wait does.
var ErrBacklog = errors.New("scheduler: too much waits here")

// ErrPriority refuses a job of a higher priority than its user may give. Ask for less.
var ErrPriority = errors.New("this priority is not allowed")

// Backlog bounds what waits at this daemon.
type Backlog struct {
	PerUser Amount
	Users   map[string]Amount // by user, instead of PerUser
	// All bounds what waits of all users. One user may have at most as much as is still free, so a user who begins finds
	// room however much the others submit.
	All Amount
}

// DefaultBacklog has the bounds of a daemon without settings.
func DefaultBacklog() Backlog {
	return Backlog{
		PerUser: Amount{Jobs: 100_000, Bytes: 2 << 30}, // about 300 MB of memory
		All:     Amount{Jobs: 400_000, Bytes: 8 << 30},
	}
}

// Amount is how much waits.
type Amount struct {
	// Jobs counts a job once, and once more for each tasksPerJob of its tasks and each leanPerJob of what placement needs
	// of its job file, because that is what it costs in memory.
	Jobs  int64
	Bytes int64 // of job files, most of them on disk
}

const (
	tasksPerJob = 10_000
	leanPerJob  = 2 << 10
)

func (a Amount) plus(b Amount) Amount { return Amount{a.Jobs + b.Jobs, a.Bytes + b.Bytes} }

func (a Amount) minus(b Amount) Amount { return Amount{a.Jobs - b.Jobs, a.Bytes - b.Bytes} }

// costOf returns what a job costs while it waits. fileBytes is the length of its job file if that lies on disk alone, else
// 0.
func costOf(s *job.Spec, tasks, fileBytes int) Amount {
	memory := s.LeanBytes()
	if fileBytes == 0 {
		memory += s.Bulk()
		fileBytes = memory
	}
	return Amount{Jobs: int64(1 + tasks/tasksPerJob + memory/leanPerJob), Bytes: int64(fileBytes)}
}

// backlog counts what waits.
type backlog struct {
	limits *Backlog // nil: none
	all    Amount
	of     map[string]Amount // by user
}

// shift adds what a user has waiting; negative amounts take it off.
func (b *backlog) shift(user string, x Amount) {
	b.all = b.all.plus(x)
	if b.of[user] = b.of[user].plus(x); b.of[user] == (Amount{}) {
		delete(b.of, user)
	}
}

// check returns ErrBacklog if a user may not have so much more waiting.
func (b *backlog) check(user string, operator bool, x Amount) error {
	if b.limits == nil {
		return nil
	}
	has, most, by := b.of[user], b.limits.PerUser, "limits.per_user"
	if own, named := b.limits.Users[user]; named {
		most, by = own, "limits.users."+user
	}
	free := b.limits.All.minus(b.all)
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
		return fmt.Errorf("%w: %s: %d jobs, and %d are the most (%s: pending_jobs); %s", ErrBacklog, who, has.Jobs, max(0, most.Jobs), by, advice)
	case next.Bytes > most.Bytes:
		return fmt.Errorf("%w: %s: job files of %s, this one has %s, and %s are the most (%s: pending_bytes); %s",
			ErrBacklog, who, job.Size(has.Bytes), job.Size(x.Bytes), job.Size(max(0, most.Bytes)), by, advice)
	}
	return nil
}
