package main

// Parts of a listing of jobs: those since a time, the newest, their ids.

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// sinceOf returns the time that --since means: so long before now, or a time in the past. The zero time is no limit.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := job.ParseDuration(text); err == nil {
		return now.Add(-d.D()), nil
	}
	at, err := parseBegin(text, now, false)
	switch {
	case err != nil:
		return at, fmt.Errorf("%.40q: want a duration such as 2h, or a time such as 08:00, 2026-12-01 or 2026-12-01T08:00", text)
	case at.After(now):
		at = at.AddDate(0, 0, -1) // a time of day that has passed means tomorrow to --begin
	}
	return at, nil
}

// newest returns the jobs that were submitted since a time, of these the newest so many (0: all), in their order.
func newest(jobs []api.Job, since time.Time, limit int) []api.Job {
	jobs = slices.DeleteFunc(jobs, func(j api.Job) bool { return j.SubmittedAt.Before(since) })
	if limit == 0 || len(jobs) <= limit {
		return jobs
	}
	last := slices.Clone(jobs)
	slices.SortStableFunc(last, func(a, b api.Job) int { return b.SubmittedAt.Compare(a.SubmittedAt) })
	kept := map[job.ID]bool{}
	for _, j := range last[:limit] {
		kept[j.ID] = true
	}
	return slices.DeleteFunc(jobs, func(j api.Job) bool { return !kept[j.ID] })
}

func idTable(w io.Writer, jobs []api.Job) {
	for _, j := range jobs {
		row(w, string(j.ID))
	}
}
