package spawn

// An order to start a process, and who may still decide about it.

import (
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
	// Refused is why no process shall be started; nil: one shall. The attempt's directory is made all the same.
	Refused error
	// Slow is called if the start takes longer than SlowStart, from a goroutine of its own.
	Slow func()
	// Done is called once, with what came of the order. After Withdraw it may never be: the start may hang for ever.
	Done func(Result)

	claim claim
	step  atomic.Int32
}

// NewOrder is an order without callbacks.
func NewOrder(a job.Attempt, s *protocol.Start) *Order {
	o := &Order{Attempt: a, Name: s.Attempt, Start: s}
	o.claim.state.Store(claimNew)
	return o
}

// SlowStart is how long a start may take before Slow is called.
const SlowStart = time.Second

// Withdraw cancels the order. It returns false if it is too late: the process is being made, or was.
func (o *Order) Withdraw() bool { return o.claim.withdraw() }

// Withdrawn says that Withdraw has returned true.
func (o *Order) Withdrawn() bool { return o.claim.withdrawn() }

// claim says who decides about a start: the spawner, once it makes the process, or the runner, once it has
// withdrawn the order. Both may try at the same time; one succeeds.
type claim struct{ state atomic.Int32 }

const (
	claimOpen      int32 = iota // either may claim it
	claimNew                    // an order whose attempt may be known from an earlier runner: none may claim it yet
	claimMade                   // the process is being made
	claimWithdrawn              // no process will be made
)

func (c *claim) open()           { c.state.Store(claimOpen) }
func (c *claim) make() bool      { return c.state.CompareAndSwap(claimOpen, claimMade) }
func (c *claim) withdraw() bool  { return c.state.CompareAndSwap(claimOpen, claimWithdrawn) }
func (c *claim) withdrawn() bool { return c.state.Load() == claimWithdrawn }

// The steps of a start that may hang, for the message that says where it does.
const (
	stepOwn int32 = iota // files of the runner's own
	stepWorkdir
	stepCommand
	stepOutput
)

// WaitsFor says for people what the start waits for.
func (o *Order) WaitsFor() string {
	s := o.Start
	switch o.step.Load() {
	case stepWorkdir:
		return "workdir " + s.Workdir
	case stepCommand:
		if s.Script != "" {
			return "the interpreter of its script"
		}
		return "command " + s.Command[0]
	case stepOutput:
		if s.Stdout == s.Stderr || s.Stderr == "" {
			return "output file " + s.Stdout
		}
		return "output files " + s.Stdout + " and " + s.Stderr
	}
	return "its files on this node"
}
