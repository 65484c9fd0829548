package api

import (
	"testing"

	"github.com/musterhq/muster/job"
)

// The document of an owner with an earlier version does not have the exit status, which follows from the state and the
// exit code.
func TestExitOfAnEarlierVersionFollowsFromItsFields(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		doc  Job
		want int
	}{
		{Job{State: job.Succeeded}, 0},
		{Job{State: job.Succeeded, ExitCode: code(0)}, 0},
		{Job{State: job.Failed, ExitCode: code(3)}, 3},
		{Job{State: job.Timeout, ExitCode: code(0)}, job.ExitTimeLimit},
		{Job{State: job.Cancelled}, job.ExitMuster},
		{Job{State: job.Failed, ExitCode: code(3), ExitStatus: code(137)}, 137},
	} {
		if got, ended := c.doc.Exit(); got != c.want || !ended {
			t.Errorf("%s, exit code %v, exit status %v: got %d, %v, want %d, true", c.doc.State, c.doc.ExitCode, c.doc.ExitStatus, got, ended, c.want)
		}
	}
	if _, ended := (Job{State: job.Running}).Exit(); ended {
		t.Error("a running job has ended")
	}
}
