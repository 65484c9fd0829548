package job

import (
	"slices"
	"strings"
	"testing"
)

func TestRetriesAreChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Spec)
		want   string // of the error; empty: none
	}{
		"codes":                    {func(s *Spec) { s.Retries, s.RetryOn = 2, []int{75, 137} }, ""},
		"codes without retries":    {func(s *Spec) { s.RetryOn = []int{75} }, "retry_on: it needs retries, the number of further runs (--retries N)"},
		"code 0":                   {func(s *Spec) { s.Retries, s.RetryOn = 2, []int{0} }, "retry_on 0: want exit codes from 1 to 255"},
		"code 256":                 {func(s *Spec) { s.Retries, s.RetryOn = 2, []int{1, 256} }, "retry_on 256: want"},
		"too many codes":           {func(s *Spec) { s.Retries, s.RetryOn = 2, slices.Repeat([]int{1}, 256) }, "retry_on: 256 exit codes; at most 255"},
		"the same code many times": {func(s *Spec) { s.Retries, s.RetryOn = 2, []int{1, 1} }, ""},
		"a checkpoint":             {func(s *Spec) { s.CheckpointExitCode = 85 }, ""},
		"a checkpoint and codes":   {func(s *Spec) { s.CheckpointExitCode, s.Retries, s.RetryOn = 85, 1, []int{1} }, ""},
		"a bound of failures":      {func(s *Spec) { s.MaxFailures = 1 }, ""},
		"a negative bound":         {func(s *Spec) { s.MaxFailures = -1 }, "max_failures -1: want 1 to"},
		"a checkpoint of 256":      {func(s *Spec) { s.CheckpointExitCode = 256 }, "checkpoint_exit_code 256: want 1 to 255"},
		"a negative checkpoint":    {func(s *Spec) { s.CheckpointExitCode = -1 }, "checkpoint_exit_code -1: want 1 to 255"},
		"both at once":             {func(s *Spec) { s.CheckpointExitCode, s.Retries, s.RetryOn = 85, 1, []int{85} }, "also in retry_on"},
	} {
		s := DefaultSpec()
		s.Command = []string{"true"}
		tt.change(&s)
		err := s.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
