package worker

// Doors for tests.

// Bounds that tests fill.
const (
	MaxQueued   = maxQueued
	MaxAge      = maxAge
	MaxRefusals = maxRefusals
)

// Refusals counts what a core keeps of refusals for quota, told or not.
func Refusals(c *Core) int {
	n := c.refusals.list.Len()
	for _, users := range c.eased {
		n += len(users)
	}
	return n
}
