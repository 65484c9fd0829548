package spawn

// An order to start a process, and who may still cancel it.

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// Order asks for the process of one attempt.
type Order struct {
	Attempt job.Attempt
	Name    string // of the attempt
	Start   *protocol.Start
	// Refused is the reason why no process is to be started; nil: one is. The attempt's directory is made in either
	// case.
	Refused error
	// Making is called when the process is about to be made, with the first process of its PID namespace (0: it has
	// none), the start of that process, and the directory of its control group. After an error no process is made. It may
	// be nil.
	Making func(first int, ticks uint64, group string) error
	// Slow is called in a goroutine of its own if the start takes longer than SlowStart.
	Slow func()
	// Done is called once, with the result of the start. After Withdraw it may never be called, because the start may
	// hang for ever.
	Done func(Result)

	claim claim
	step  atomic.Int32
}

// NewOrder returns an order without callbacks.
func NewOrder(a job.Attempt, s *protocol.Start) *Order {
	o := &Order{Attempt: a, Name: s.Attempt, Start: s}
	o.claim.state.Store(claimNew)
	return o
}

// SlowStart is how long a start may take before Slow is called.
const SlowStart = time.Second

// Withdraw cancels the order. It returns false if it is too late: the process exists or is being made.
func (o *Order) Withdraw() bool { return o.claim.withdraw() }

// Withdrawn reports whether Withdraw has returned true.
func (o *Order) Withdrawn() bool { return o.claim.withdrawn() }

// claim decides a race about a start between the spawner, which wants to make the process, and the runner, which
// wants to withdraw the order. Exactly one of them succeeds.
type claim struct{ state atomic.Int32 }

const (
	claimOpen      int32 = iota // either may claim it
	claimNew                    // nobody may claim it yet: an earlier runner may have had the attempt
	claimMade                   // the process is being made
	claimWithdrawn              // no process will be made
)

func (c *claim) open()           { c.state.Store(claimOpen) }
func (c *claim) make() bool      { return c.state.CompareAndSwap(claimOpen, claimMade) }
func (c *claim) withdraw() bool  { return c.state.CompareAndSwap(claimOpen, claimWithdrawn) }
func (c *claim) withdrawn() bool { return c.state.Load() == claimWithdrawn }

// The steps of a start that may hang, for messages.
const (
	stepOwn int32 = iota // the runner's own files
	stepWorkdir
	stepCommand
	stepOutput
)

// WaitsFor says for people what the start waits for.
func (o *Order) WaitsFor() string {
	s := o.Start
	switch o.step.Load() {
	case stepWorkdir:
		return "workdir " + cmp.Or(s.Workdir, s.SubmitDir)
	case stepCommand:
		if s.Script != "" {
			return "the interpreter of its script"
		}
		return "command " + s.Command[0]
	case stepOutput:
		return outputFiles(s)
	}
	return "its files on this node"
}
