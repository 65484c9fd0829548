package scheduler

import (
	"fmt"
	"testing"
)

// A job that has ended has no timer.
func TestEndedJobHasNoTimers(t *testing.T) {
	s := newStory(t, 0)
	s.do("lead")
	s.do("worker n1 cpus=4")
	before := s.core.turn.Timers.Len()
	for i := range 100 {
		for _, line := range []string{"submit j%d", "take n1 j%d", "event n1 j%d RUNNING", "event n1 j%d SUCCEEDED"} {
			s.do(fmt.Sprintf(line, i))
		}
		s.do("free n1 cpus=4")
	}
	if n := s.core.turn.Timers.Len(); n != before {
		t.Errorf("%d timers after 100 jobs, want %d as before", n, before)
	}
}
