package job

// Counts holds the number of tasks of a job in each state.
type Counts [stateCount]int32

const stateCount = 14

// places maps each state to its index in Counts.
var places = func() map[State]int {
	m := map[State]int{}
	for i, s := range States() {
		m[s] = i
	}
	return m
}()

// CountsOf counts tasks by state.
func CountsOf(tasks []Task) Counts {
	var c Counts
	for i := range tasks {
		c.Add(tasks[i].State, 1)
	}
	return c
}

// Add counts n more tasks in a state; n may be negative.
func (c *Counts) Add(s State, n int) { c[places[s]] += int32(n) }

// Of returns the number of tasks in the state.
func (c *Counts) Of(s State) int { return int(c[places[s]]) }

// Total returns the number of tasks.
func (c *Counts) Total() int {
	n := 0
	for _, x := range c {
		n += int(x)
	}
	return n
}

// Ended returns the number of tasks that have ended.
func (c *Counts) Ended() int {
	n := 0
	for _, s := range ends {
		n += c.Of(s)
	}
	return n
}

// byPriority lists the states in order of priority. The state of a job is the first of them that one of its tasks has.
var byPriority = []State{
	Running, Completing, Starting, Reserved, Unreachable, Pending, Held,
	NodeFail, OutOfMemory, Timeout, Failed, Preempted, Cancelled, Succeeded,
}

// State returns the state of a job with these task counts: that of an active task if there is one, else of a waiting
// one, else the worst final state. A job without tasks is PENDING.
func (c *Counts) State() State {
	for _, s := range byPriority {
		if c.Of(s) > 0 {
			return s
		}
	}
	return Pending
}
