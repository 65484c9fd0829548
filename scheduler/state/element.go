package state

// Elements: a job has one element, or one for each index of its array. An element is one task, or a gang of several.

import "github.com/musterhq/muster/job"

// gangOf returns the size of the gangs of a job with n tasks, or 0 if it has none.
func gangOf(s *job.Spec, n int) int {
	if s.Nodes < 2 || n%s.Nodes != 0 {
		return 0
	}
	return s.Nodes
}

// Gang returns how many tasks an element of the job has: 1, or the size of a gang.
func (j *Job) Gang() int { return max(1, j.gang) }

// Element returns the tasks of the element to which a task belongs.
func (j *Job) Element(index int) job.Range {
	first := index - index%j.Gang()
	return job.Range{First: first, Last: first + j.Gang() - 1}
}

// Widen returns the elements that have tasks in the ranges, which are in rising order and apart. No ranges mean all tasks.
func Widen(j *Job, ranges []job.Range) []job.Range {
	if j.gang == 0 || len(ranges) == 0 {
		return ranges
	}
	var out []job.Range
	for _, r := range ranges {
		first, last := j.Element(max(0, r.First)).First, j.Element(max(0, r.Last)).Last
		if n := len(out); n > 0 {
			first = max(first, out[n-1].Last+1)
		}
		out = appendRange(out, first, last)
	}
	return out
}

// ElementAssigned reports whether a task of the element to which a task belongs is assigned.
func ElementAssigned(j *Job, index int) bool {
	if j.gang == 0 {
		return j.tasks.brief(index).Assigned
	}
	for r, i := j.Element(index), 0; i < j.gang; i++ {
		if j.tasks.brief(r.First + i).Assigned {
			return true
		}
	}
	return false
}

// Unsettled reports whether a task is a member of a gang that has ended while other members are assigned.
func Unsettled(j *Job, index int) bool {
	return j.gang > 0 && j.tasks.brief(index).State.Ended() && ElementAssigned(j, index)
}

// settled returns the ranges without the gangs of which a member is assigned; some is false if nothing is left. No
// ranges mean all tasks.
func settled(j *Job, ranges []job.Range) (rest []job.Range, some bool) {
	if j.gang == 0 || j.tasks.assigned == 0 {
		return ranges, true
	}
	if len(ranges) == 0 {
		ranges = []job.Range{{First: 0, Last: j.tasks.n - 1}}
	}
	for _, r := range ranges {
		next := r.First
		j.Each([]job.Range{r}, active, func(i int) bool {
			if i >= next {
				e := j.Element(i)
				rest = appendRange(rest, next, e.First-1)
				next = e.Last + 1
			}
			return true
		})
		rest = appendRange(rest, next, r.Last)
	}
	return rest, len(rest) > 0
}

// elementState returns the state of the element to which a task belongs. It is PENDING until all tasks of the element
// have ended, then SUCCEEDED if all have succeeded, else the state of the last of them that has not.
func elementState(j *Job, index int) job.State {
	e := j.Element(index)
	out := job.Succeeded
	for i := e.First; i <= e.Last; i++ {
		switch s := j.tasks.brief(i).State; {
		case !s.Ended():
			return job.Pending
		case s != job.Succeeded:
			out = s
		}
	}
	return out
}

// elementRuns calls f with each run of tasks in the same state, in order. For a job of gangs it calls f with each gang
// and the state of the element.
func elementRuns(j *Job, f func(first, last int, s job.State)) {
	if j.gang == 0 {
		j.tasks.runs(f)
		return
	}
	for i := 0; i < j.tasks.n; i += j.gang {
		f(i, i+j.gang-1, elementState(j, i))
	}
}
