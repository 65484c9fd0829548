package job

// Queries: which jobs a listing shows.

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// Query selects jobs, newest first. An empty field matches all jobs.
type Query struct {
	IDs    []ID
	Prefix string  // of the ID
	States []State // of the job
	Ended  bool    // only jobs that have ended
	User   string
	Name   string   // a glob
	After  Position // only jobs after this one in listing order: the next page
	Limit  int      // 0: the daemon that answers chooses
}

// TaskQuery selects tasks of a job, in the order of their indexes.
type TaskQuery struct {
	Ranges []Range // of indexes, as Layout.Select returns them; empty: all
	States []State // empty: any
	Begun  bool    // only tasks with an attempt, whatever their state
	After  int     // only tasks with a higher index; -1: all
	Limit  int
}

// Rest returns the ranges of a job of n tasks that follow After. They may be empty, with First above Last.
func (q *TaskQuery) Rest(n int) []Range {
	ranges := q.Ranges
	if len(ranges) == 0 {
		ranges = []Range{{First: 0, Last: n - 1}}
	}
	rest := make([]Range, 0, len(ranges))
	for _, r := range ranges {
		rest = append(rest, Range{First: max(r.First, q.After+1), Last: r.Last})
	}
	return rest
}

// Match reports whether the query selects the job, whatever the limit.
func (q Query) Match(j *Job) bool {
	switch {
	case len(q.IDs) > 0 && !slices.Contains(q.IDs, j.ID),
		!strings.HasPrefix(string(j.ID), q.Prefix),
		q.User != "" && q.User != j.User,
		q.After.ID != "" && q.After.Compare(j.Position()) >= 0,
		q.Ended && !j.State().Ended(),
		len(q.States) > 0 && !slices.Contains(q.States, j.State()):
		return false
	}
	if q.Name != "" {
		ok, err := path.Match(q.Name, j.Spec.Name)
		return err == nil && ok
	}
	return true
}

// Pick returns the jobs that the query selects, in order. It reuses and sorts the given slice.
func (q Query) Pick(jobs []Job) []Job {
	jobs = slices.DeleteFunc(jobs, func(j Job) bool { return !q.Match(&j) })
	slices.SortFunc(jobs, func(a, b Job) int { return a.Position().Compare(b.Position()) })
	if q.Limit > 0 && len(jobs) > q.Limit {
		jobs = jobs[:q.Limit]
	}
	return jobs
}

// Position is a job's place in a listing: newest first, then by ID.
type Position struct {
	Submitted time.Time
	ID        ID
}

// Position returns the job's place in a listing.
func (j Job) Position() Position { return Position{j.Submitted, j.ID} }

// Compare is negative if p is listed before o, and positive if it is listed after o.
func (p Position) Compare(o Position) int {
	return cmp.Or(o.Submitted.Compare(p.Submitted), cmp.Compare(p.ID, o.ID))
}
