package api

// The pauses between batches of changes: in feeds and in streams of events.

import (
	"context"
	"time"
)

const (
	// soonAfter is the pause after a batch that ends a quiet time. A change seldom comes alone: a job is COMPLETING,
	// 2 ms later SUCCEEDED, and the next one starts.
	soonAfter = 50 * time.Millisecond
	// quietTime is how long nothing changes in a quiet time. It bounds batches to two in 250 ms if changes come in pairs.
	quietTime = 200 * time.Millisecond
)

// pacer spaces batches. The first one after a quiet time is written at once and the second soonAfter; those that follow
// are at least pause apart, however many changes there are.
type pacer struct {
	pause time.Duration
	last  time.Time // when the last batch was written
	busy  bool      // something had changed again when the last pause ended
}

// rest waits after a batch until the next one may be written. changed is closed when there is something for it. It returns
// false if ctx ends before.
func (p *pacer) rest(ctx context.Context, changed <-chan struct{}) bool {
	now, pause := time.Now(), p.pause
	if !p.busy && now.Sub(p.last) >= quietTime {
		pause = soonAfter
	}
	p.last = now
	if !sleep(ctx, pause) {
		return false
	}
	select {
	case <-changed:
		p.busy = true
	default:
		p.busy = false
	}
	return true
}
