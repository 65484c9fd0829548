package supervisor

// What tasks write, for those who read it while it grows.

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
)

// Follow reads the log of an attempt from an offset, which below 0 counts from
// the end, to its end. With follow the end is where the attempt has ended and
// all that it wrote was read; without, what is there now. An attempt that has
// no directory here gives os.ErrNotExist.
func (d *Driver) Follow(ctx context.Context, a job.Attempt, s output.Stream, offset int64, follow bool) (*output.Follower, error) {
	var ended <-chan struct{}
	if life := d.lives.of(a); follow && life != nil {
		ended = life.ended
		select {
		case <-life.begun:
		case <-ctx.Done():
			return nil, fmt.Errorf("supervisor: follow %s: %w", a, ctx.Err())
		}
	}
	f, err := d.follows.Follow(ctx, d.dir.Task(a), s, offset, ended)
	if err != nil {
		return nil, fmt.Errorf("supervisor: follow %s: %w", a, err)
	}
	return f, nil
}
