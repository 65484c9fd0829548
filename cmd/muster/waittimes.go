package main

// The line about waiting times that goes with the list of waiting jobs.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// waited returns how long the jobs that started in the last hour had waited. It is empty if that is not known, because
// the listing does not need it.
func waited(ctx context.Context, client *api.Client) string {
	s, err := client.Stats(ctx)
	if err != nil || s.Waits == nil {
		return ""
	}
	w := s.Waits
	if w.Started == 0 || w.P50 == nil || w.P95 == nil || w.Longest == nil {
		return "muster: no job has started in the last hour"
	}
	text := fmt.Sprintf("muster: the jobs that started in the last hour (%d) waited %s (median), %s (95th percentile), at most %s",
		w.Started, waitText(*w.P50), waitText(*w.P95), waitText(*w.Longest))
	if left := append(append([]string{}, s.Partial...), w.Partial...); len(left) > 0 {
		text += fmt.Sprintf("; not counting those of %s", strings.Join(left, ", "))
	}
	return text
}

// waitText writes a wait. The figures of daemons may be up to a tenth too high.
func waitText(seconds float64) string {
	d := time.Duration(min(max(seconds, 0), (100*365*24*time.Hour).Seconds()) * float64(time.Second))
	if d < time.Second {
		return "less than 1s"
	}
	return job.Duration(d.Round(time.Second)).String()
}
