package step

// The configuration of a scheduler, and the errors of its answers.

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/policy"
)

var (
	// ErrNotFound says that this daemon does not keep the job: ask the daemon that the id's group names, or give up if
	// that is this one.
	ErrNotFound = errors.New("scheduler: no such job")
	// ErrConflict says that the job's present state rules out the request. Do not repeat it.
	ErrConflict = errors.New("scheduler: conflict")
	// ErrBusy says that a bound was reached or that a commit took too long: try again after a pause, with the same
	// idempotency key.
	ErrBusy = errors.New("scheduler: busy")
	// ErrInvalid says that the request is wrong in itself.
	ErrInvalid = errors.New("scheduler: invalid request")
	// ErrLimit refuses a job that a limit of this daemon never allows, however little its user has here. Ask for less.
	ErrLimit = errors.New("a limit does not allow it")
	// ErrUnsendable says that no session to any host would carry the message: a defect of this daemon. Do not send it
	// again.
	ErrUnsendable = errors.New("scheduler: message out of its bounds")
)

// HeldBackError says that a session keeps back a message, because sessions with that host broke off when it was sent
// before. The message has not reached the host. Send it again after Wait.
type HeldBackError struct {
	Wait  time.Duration
	Times int // how often a session broke off; 0: the message waits for another such message
}

func (e *HeldBackError) Error() string {
	if e.Times == 0 {
		return "scheduler: its start waits for another one"
	}
	return fmt.Sprintf("scheduler: its start is kept back: the session broke off %d times when it was sent", e.Times)
}

// NoMatchError refuses a job that no known host could ever run.
type NoMatchError struct {
	Explanation contract.Explanation
}

// Error says which clauses rule out the hosts.
func (e *NoMatchError) Error() string {
	return "scheduler: no node could ever run it: " + e.Explanation.Reason.Detail
}

// Config is what a scheduler must know of its daemon, and its bounds.
type Config struct {
	Self  job.Peer  // the worker of the same daemon is local
	Group job.Group // the journal group whose jobs these are
	// Founding proves to hosts that this daemon has founded the group.
	Founding job.Founding
	// Seed feeds every draw: job ids, offer ids, jitter. Drawn afresh at each
	// start of a daemon, fixed in a replay.
	Seed      uint64
	MaxJobs   int           // jobs kept, ended ones included
	KeepEnded int           // ended jobs kept, the newest
	KeepFor   time.Duration // an ended job is kept no longer
	LossLimit int           // a task that has lost this many hosts is held; at most job.MaxLost
	KeepWhole int           // ended jobs kept whole in memory, the newest; the others are read from disk
	// Policy is the name of the placement policy of jobs that name none, unless they are gangs.
	Policy string
	// Candidates is how many hosts with room a placement compares; 0: place.SampleSize.
	Candidates int
	// Shares are the weights of users and projects. The zero value counts no usage.
	Shares fairshare.Weights
	// SaveEvery is how long changed rows wait to be saved together; with zero each step saves its own.
	SaveEvery time.Duration
	// GangHold is how long a gang holds places at some hosts while others have none for it. Then it gives them back, and
	// gathers again after a pause.
	GangHold time.Duration
	// Limits bounds what waits; nil: nothing does.
	Backlog *backlog.Limits
	// Priorities are the highest priorities of jobs that users submit; nil: any.
	Priorities *contract.Priorities
	// Limits are the limits of users here: the longest time limit of jobs that they submit, and what their tasks may
	// hold in the cluster; nil: none. It must not be changed.
	Limits *contract.UserLimits
	// Order says by what tasks of one priority are ordered.
	Order contract.OrderBy
	// MaxWait is how long tasks wait before they go first, the oldest of each user first; 0: they never go first. See
	// overdue.
	MaxWait time.Duration
	// Private says that users see only their own jobs here, so hosts must not name these jobs to other owners.
	Private bool
}

// DefaultConfig returns the usual bounds. The caller fills in the daemon's identity and the seed.
func DefaultConfig() Config {
	return Config{
		MaxJobs:   500_000, // about 2 GB of rows at 4 KB each
		KeepEnded: 100_000,
		KeepFor:   7 * 24 * time.Hour,
		LossLimit: 3,
		GangHold:  10 * time.Minute,
		KeepWhole: 256, // for clients that wait for the end of a job, or ask right after it
		Policy:    policy.Default,
	}
}

// Validate says what is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Self == "":
		return errors.New("scheduler: config: self is empty")
	case c.Group == 0:
		return errors.New("scheduler: config: group is 0")
	case c.Seed == 0:
		return errors.New("scheduler: config: seed is 0; draw one")
	case c.MaxJobs < 1 || c.KeepEnded < 0 || c.KeepEnded > c.MaxJobs, c.KeepWhole < 0:
		return fmt.Errorf("scheduler: config: max_jobs %d, keep_ended %d, keep_whole %d", c.MaxJobs, c.KeepEnded, c.KeepWhole)
	case c.LossLimit < 1 || c.LossLimit > job.MaxLost:
		return fmt.Errorf("scheduler: config: loss_limit %d is not from 1 to %d", c.LossLimit, job.MaxLost)
	case c.GangHold < MinGangHold || c.GangHold > MaxGangHold:
		return fmt.Errorf("scheduler: config: gang_hold %s is not from %s to %s", c.GangHold, MinGangHold, MaxGangHold)
	case c.Order < contract.ByAge || c.Order > contract.ByRemaining:
		return fmt.Errorf("scheduler: config: order %d", int(c.Order))
	case c.MaxWait != 0 && (c.MaxWait < MinMaxWait || c.MaxWait > MaxMaxWait):
		return fmt.Errorf("scheduler: config: max_wait %s is not 0 and not from %s to %s", c.MaxWait, MinMaxWait, MaxMaxWait)
	case c.Candidates < 0:
		return fmt.Errorf("scheduler: config: candidates %d", c.Candidates)
	case c.KeepFor <= 0:
		return fmt.Errorf("scheduler: config: keep_for %s", c.KeepFor)
	}
	if err := policy.Check(c.Policy); err != nil {
		return fmt.Errorf("scheduler: config: %w", err)
	}
	return nil
}

// Policies returns the names of the placement policies.
func Policies() []string { return policy.Names() }

// CheckPolicy returns an error if a job names a placement policy that does not exist.
func CheckPolicy(name string) error { return policy.Check(name) }

// The bounds of Config.GangHold. Hosts hold a place for 30 minutes at most, however often they are asked to.
const (
	MinGangHold = 30 * time.Second
	MaxGangHold = 25 * time.Minute
)

// The bounds of Config.MaxWait.
const (
	MinMaxWait = time.Minute
	MaxMaxWait = 365 * 24 * time.Hour
)

// The bounds of a step and of what is under way.
const (
	PlanLimit   = 256  // placements tried in one step; the rest in the next
	MaxOutgoing = 4096 // records proposed and not yet applied
)

// ErrNotOwner says that this daemon no longer owns the jobs of the group. What was asked for may have been done or not:
// ask the daemon that owns them now.
var ErrNotOwner = errors.New("scheduler: another daemon answers for these jobs now")

// ErrStopped says that the scheduler has ended; the daemon is going down.
var ErrStopped = errors.New("scheduler: stopped")
