package fabric

// A timeline for a network that is simulated alone.

import "time"

// Clock is a Timeline that runs the events of a network alone. The zero value is at time 0.
type Clock struct {
	now   time.Duration
	count uint64
	queue []event // a binary heap
}

type event struct {
	at    time.Duration
	order uint64
	f     func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// Now returns the time of the event that runs.
func (c *Clock) Now() time.Duration { return c.now }

// At calls f at the time t, at once after the running event if t has passed.
func (c *Clock) At(t time.Duration, f func()) {
	c.count++
	e := event{at: max(t, c.now), order: c.count, f: f}
	c.queue = append(c.queue, e)
	i := len(c.queue) - 1
	for i > 0 && e.before(c.queue[(i-1)/2]) {
		c.queue[i] = c.queue[(i-1)/2]
		i = (i - 1) / 2
	}
	c.queue[i] = e
}

// Run runs all events until a time, which is then the present time. It returns how many events there were.
func (c *Clock) Run(until time.Duration) int {
	n := 0
	for ; len(c.queue) > 0 && c.queue[0].at <= until; n++ {
		e := c.pop()
		c.now = e.at
		e.f()
	}
	c.now = max(c.now, until)
	return n
}

func (c *Clock) pop() event {
	top := c.queue[0]
	last := len(c.queue) - 1
	e := c.queue[last]
	c.queue[last] = event{}
	c.queue = c.queue[:last]
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && c.queue[child+1].before(c.queue[child]) {
			child++
		}
		if !c.queue[child].before(e) {
			break
		}
		c.queue[i] = c.queue[child]
		i = child
	}
	if last > 0 {
		c.queue[i] = e
	}
	return top
}
