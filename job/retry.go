package job

// Which ends of an attempt make a task run again, and the outcomes of its attempts.

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxExitCode is the largest exit code of a process.
const maxExitCode = 255

func checkRetries(s Spec) error {
	for _, code := range s.RetryOn {
		if code < 1 || code > maxExitCode {
			return fmt.Errorf("retry_on %d: want exit codes from 1 to %d", code, maxExitCode)
		}
	}
	switch n := s.CheckpointExitCode; {
	case len(s.RetryOn) > maxExitCode:
		return fmt.Errorf("retry_on: %d exit codes; at most %d", len(s.RetryOn), maxExitCode)
	case len(s.RetryOn) > 0 && s.Retries == 0:
		return errors.New("retry_on: it needs retries, the number of further runs (--retries N)")
	case s.MaxFailures < 0 || s.MaxFailures > MaxTasks:
		return fmt.Errorf("max_failures %d: want 1 to %d, or 0 for no limit", s.MaxFailures, MaxTasks)
	case n < 0 || n > maxExitCode:
		return fmt.Errorf("checkpoint_exit_code %d: want 1 to %d", n, maxExitCode)
	case n > 0 && slices.Contains(s.RetryOn, n):
		return fmt.Errorf("checkpoint_exit_code %d: it is also in retry_on; a task that ends with it runs again in any case", n)
	}
	return nil
}

// code returns the exit code as `muster run` gives it: 124 for the time limit, 128+N for signal N.
func (x Exit) code() int {
	switch {
	case x.State == Timeout:
		return ExitTimeLimit
	case x.Signal > 0:
		return ExitSignal + x.Signal
	}
	return x.Code
}

// RetriesAfter reports whether a task that failed like this runs again, if it has retries left.
func (s *Spec) RetriesAfter(x Exit) bool {
	return len(s.RetryOn) == 0 || slices.Contains(s.RetryOn, x.code())
}

// Saved reports whether the task has ended by itself with the checkpoint exit code: it has saved its state and asks to
// run again.
func (s *Spec) Saved(x Exit) bool {
	if s.CheckpointExitCode == 0 || !x.Started || x.Signal != 0 || x.Code != s.CheckpointExitCode {
		return false
	}
	return x.State == Failed || x.State == Timeout || x.State == Preempted
}

// Outcome is how one attempt of a task went.
type Outcome struct {
	N        int // number of the attempt
	Node     Peer
	NodeName string
	Placed   time.Time // as in Task
	// Exit has no Tail and no Isolation. For an attempt that has not ended it has only State and Began.
	Exit Exit
}

// MaxOutcomes bounds the earlier attempts of a task whose outcomes are kept.
const MaxOutcomes = 16

// Earlier has the outcomes of a task's attempts before the newest.
type Earlier struct {
	Outcomes []Outcome // at least one, the oldest first
	Older    int       // attempts before those, whose outcomes are not kept
}

// Outcomes returns how the attempts of the task went, the newest last. Attempts that no host started are left out.
// Earlier must be filled in.
func (t *Task) Outcomes() []Outcome {
	var earlier []Outcome
	last := 0
	if t.Earlier != nil {
		earlier = t.Earlier.Outcomes
		last = earlier[len(earlier)-1].N
	}
	newest := Outcome{N: t.Attempt, Node: t.Node, NodeName: t.NodeName, Placed: t.Placed}
	switch {
	case t.Attempt <= last:
		return earlier
	case t.Assigned:
		newest.Exit = Exit{State: t.State, Began: t.Started}
	case t.Exit != nil:
		newest.Exit = *t.Exit
		newest.Exit.Tail, newest.Exit.Isolation = "", ""
	default:
		return earlier
	}
	return append(slices.Clip(earlier), newest)
}
