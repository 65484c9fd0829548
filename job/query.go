package job

// Queries: which jobs a listing shows, and in which order.

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// Query chooses jobs, newest first; an empty field chooses all.
type Query struct {
	IDs    []ID
	Prefix string  // of the id
	States []State // of the job
	Ended  bool    // only jobs that have ended
	User   string
	Name   string   // a glob
	After  Position // only jobs after this one in the order of listings: the next page
	Limit  int      // 0: whoever answers sets it
}

// Match says whether the query chooses a job, its limit apart.
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

// Pick returns the jobs that the query chooses, in order. It sorts in place.
func (q Query) Pick(jobs []Job) []Job {
	jobs = slices.DeleteFunc(jobs, func(j Job) bool { return !q.Match(&j) })
	slices.SortFunc(jobs, func(a, b Job) int { return a.Position().Compare(b.Position()) })
	if q.Limit > 0 && len(jobs) > q.Limit {
		jobs = jobs[:q.Limit]
	}
	return jobs
}

// Position is a job's place in the order of listings: newest first, then by id.
type Position struct {
	Submitted time.Time
	ID        ID
}

// Position is the job's place in the order of listings.
func (j Job) Position() Position { return Position{j.Submitted, j.ID} }

// Compare is below 0 if p is listed before o.
func (p Position) Compare(o Position) int {
	return cmp.Or(o.Submitted.Compare(p.Submitted), cmp.Compare(p.ID, o.ID))
}
