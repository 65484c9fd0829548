package state

// Which tasks of a job are in some states, without a look at each of them.

import "github.com/musterhq/muster/job"

// CountsIn returns the number of tasks of the ranges in each state. No ranges means all tasks.
func (j *Job) CountsIn(ranges []job.Range) job.Counts {
	if len(ranges) == 0 {
		return j.tasks.counts
	}
	var c job.Counts
	for _, r := range ranges {
		first, end := max(0, r.First), min(r.Last+1, j.tasks.n)
		for first < end {
			k := first / chunkTasks
			next := min(end, (k+1)*chunkTasks)
			if x := &j.tasks.chunks[k]; x.mixed == nil {
				c.Add(j.tasks.values.state(x.value), next-first)
			} else {
				for i := first; i < next; i++ {
					c.Add(stateOf(j.tasks.stateAt(x, i%chunkTasks)), 1)
				}
			}
			first = next
		}
	}
	return c
}

// Each calls visit with each task of the ranges that is in one of the states, in rising order, until visit returns
// false. No ranges means all tasks, and no states any state.
func (j *Job) Each(ranges []job.Range, states []job.State, visit func(index int) bool) {
	if len(ranges) == 0 {
		ranges = []job.Range{{First: 0, Last: j.tasks.n - 1}}
	}
	wanted := [256]bool{}
	for _, s := range states {
		wanted[number(s)] = true
	}
	for _, r := range ranges {
		for i := max(0, r.First); i <= min(r.Last, j.tasks.n-1); i++ {
			c := &j.tasks.chunks[i/chunkTasks]
			switch {
			case len(states) == 0 || wanted[j.tasks.stateAt(c, i%chunkTasks)]:
			case c.mixed == nil:
				i |= chunkTasks - 1 // the last task of the chunk
				continue
			default:
				continue
			}
			if !visit(i) {
				return
			}
		}
	}
}

// EachBegun calls visit with each task of the ranges that has an attempt, in rising order, until visit returns false.
func EachBegun(j *Job, ranges []job.Range, visit func(index int) bool) {
	for _, r := range ranges {
		for i := max(0, r.First); i <= min(r.Last, j.tasks.n-1); i++ {
			c := &j.tasks.chunks[i/chunkTasks]
			if c.mixed == nil || len(c.mixed.cells) == 0 {
				i |= chunkTasks - 1
				continue
			}
			if x := c.cell(i % chunkTasks); x != nil && x.attempt > 0 && !visit(i) {
				return
			}
		}
	}
}

// First returns the first task in the state. It returns false if there is none.
func (j *Job) First(s job.State) (index int, ok bool) {
	if j.tasks.counts.Of(s) > 0 {
		j.Each(nil, []job.State{s}, func(i int) bool { index, ok = i, true; return false })
	}
	return index, ok
}

// NextPending returns the first pending task from this index on; Len if there is none.
func (j *Job) NextPending(from int) int {
	for i := from; i < j.tasks.n; i++ {
		switch c := &j.tasks.chunks[i/chunkTasks]; {
		case c.pending == 0:
			i |= chunkTasks - 1
		case stateOf(j.tasks.stateAt(c, i%chunkTasks)) == job.Pending:
			return i
		}
	}
	return j.tasks.n
}
