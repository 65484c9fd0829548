package job

// Counts is how many tasks of a job are in each state.
type Counts [stateCount]int32

const stateCount = 14

// places are those of the states in Counts.
var places = func() map[State]int {
	m := map[State]int{}
	for i, s := range States() {
		m[s] = i
	}
	return m
}()

// CountsOf counts tasks.
func CountsOf(tasks []Task) Counts {
	var c Counts
	for i := range tasks {
		c.Add(tasks[i].State, 1)
	}
	return c
}

// Add counts n more tasks in a state; n may be negative.
func (c *Counts) Add(s State, n int) { c[places[s]] += int32(n) }

// Of is how many tasks are in the state.
func (c *Counts) Of(s State) int { return int(c[places[s]]) }

// Total is how many tasks there are.
func (c *Counts) Total() int {
	n := 0
	for _, x := range c {
		n += int(x)
	}
	return n
}

// Ended is how many tasks have ended.
func (c *Counts) Ended() int {
	n := 0
	for _, s := range ends {
		n += c.Of(s)
	}
	return n
}

// telling orders the states of tasks by how much they tell of their job.
var telling = []State{
	Running, Completing, Starting, Reserved, Unreachable, Pending, Held,
	NodeFail, OutOfMemory, Timeout, Failed, Preempted, Cancelled, Succeeded,
}

// State is that of a job with these tasks: any active one, else waiting, else the
// worst end. A job without tasks is pending.
func (c *Counts) State() State {
	for _, s := range telling {
		if c.Of(s) > 0 {
			return s
		}
	}
	return Pending
}
