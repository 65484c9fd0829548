package api

// The pauses between batches of changes, in feeds and in streams of events.

import (
	"context"
	"time"
)

const (
	// soonAfter is the pause after a batch that ends a quiet time. A change seldom comes alone: a job is COMPLETING,
	// 2 ms later SUCCEEDED, and the next one starts.
	soonAfter = 50 * time.Millisecond
	// quietTime is the shortest time without a batch that counts as quiet. So changes that come in pairs cause at most two
	// batches in 250 ms.
	quietTime = 200 * time.Millisecond
)

// pacer spaces batches. The first batch after a quiet time is written at once, and the second one soonAfter later. Further
// batches are at least pause apart, however many changes there are.
type pacer struct {
	pause time.Duration
	last  time.Time // when the last batch was written
	busy  bool      // something had changed again when the last pause ended
}

// rest waits after a batch until the next one may be written. changed is closed when something has changed since. rest
// returns false if ctx ends before.
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
