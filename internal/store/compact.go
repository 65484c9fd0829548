package store

// One compaction at a time. Pebble's own scheduler checks ten times a second whether it can start more. In an idle
// daemon that would be most of the database's work.

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// oneCompaction lets Pebble start a compaction when none runs, and the next one when that ends.
type oneCompaction struct {
	db pebble.DBForCompaction // set by Register, before any other call

	mu       sync.Mutex
	idle     *sync.Cond // of mu: signals that granting is false again
	running  bool       // guarded by mu
	granting bool       // guarded by mu: Done asks Pebble for the next compaction
	missed   bool       // guarded by mu: a compaction was refused while granting
	closed   bool       // guarded by mu
}

func newOneCompaction() *oneCompaction {
	c := &oneCompaction{}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Register is called by Pebble with the database that requests compactions.
func (c *oneCompaction) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister starts no more compactions. It waits until Done has finished asking.
func (c *oneCompaction) Unregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.granting {
		c.idle.Wait()
	}
}

// TrySchedule lets a compaction start if none runs.
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

// UpdateGetAllowedWithoutPermission does nothing, because the limit is always one.
func (c *oneCompaction) UpdateGetAllowedWithoutPermission() {}

// Started is part of the handle that Pebble wants.
func (c *oneCompaction) Started() {}

// MeasureCPU is part of the handle that Pebble wants.
func (c *oneCompaction) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is part of the handle that Pebble wants.
func (c *oneCompaction) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done is called by Pebble at the end of a compaction. It starts the next one that waits. Until Pebble has answered, no
// other may start; if one was refused meanwhile, Done asks Pebble again.
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
