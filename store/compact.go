package store

// Leave to compact: one compaction at a time. Pebble's own scheduler looks ten
// times a second whether it could grant more, which is most of what an idle
// daemon's database would do.

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// oneCompaction grants a compaction when none runs, and the next when it ends.
type oneCompaction struct {
	db pebble.DBForCompaction // set by Register, before any other call

	mu       sync.Mutex
	idle     *sync.Cond // of mu: granting has ended
	running  bool       // guarded by mu
	granting bool       // guarded by mu: the database is being asked
	missed   bool       // guarded by mu: leave was refused since it was asked
	closed   bool       // guarded by mu
}

func newOneCompaction() *oneCompaction {
	c := &oneCompaction{}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Register tells which database asks.
func (c *oneCompaction) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister ends all granting and waits for what is under way.
func (c *oneCompaction) Unregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.granting {
		c.idle.Wait()
	}
}

// TrySchedule grants a compaction if none runs.
func (c *oneCompaction) TrySchedule() (bool, pebble.CompactionGrantHandle) { //nolint:ireturn // Pebble's interface wants it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, nil
	}
	if c.running {
		c.missed = true
		return false, nil
	}
	c.running = true
	return true, c
}

// UpdateGetAllowedWithoutPermission is of no matter: the number is always one.
func (c *oneCompaction) UpdateGetAllowedWithoutPermission() {}

// Started, MeasureCPU and CumulativeStats tell how a compaction fares.
func (c *oneCompaction) Started() {}

// MeasureCPU is part of the handle that Pebble wants.
func (c *oneCompaction) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is part of the handle that Pebble wants.
func (c *oneCompaction) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done ends a compaction; the leave goes to the next that waits. Until that is
// settled nobody else gets it, and whoever is refused meanwhile is asked again.
func (c *oneCompaction) Done() {
	for c.ask() {
		waiting, _ := c.db.GetWaitingCompaction()
		if c.settle(waiting && c.db.Schedule(c)) {
			return
		}
	}
}

func (c *oneCompaction) ask() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granting, c.missed = !c.closed, false
	if c.closed {
		c.running = false
	}
	return c.granting
}

func (c *oneCompaction) settle(granted bool) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granting = false
	c.idle.Broadcast()
	if granted || c.missed && !c.closed {
		return granted
	}
	c.running = false
	return true
}
