package api

import (
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// The document of a job has the time of --begin, also in listings, which have no job file.
func TestDocumentsHaveTheBeginTime(t *testing.T) {
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.FixedZone("CET", 3600))
	j := job.Job{Spec: job.DefaultSpec()}
	if d := briefDocument(&j, 1); d.BeginAt != nil {
		t.Errorf("without --begin: got %v, want no time", d.BeginAt)
	}
	j.Spec.Begin = &at
	if d := briefDocument(&j, 1); d.BeginAt == nil || !d.BeginAt.Equal(at) || d.BeginAt.Location() != time.UTC || d.Spec != nil {
		t.Errorf("with --begin: got %v, want the time in UTC", d.BeginAt)
	}
}
