package supervisor

// Reading the output of tasks while they write it.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
)

// Follow reads the log of an attempt from an offset in bytes; a negative offset counts from the end. With follow it
// reads until the attempt has ended; without, until the present end of the log. An attempt without a directory on
// this host gives os.ErrNotExist, unless it wrote nothing and a later attempt has taken its directory.
func (d *Driver) Follow(ctx context.Context, a job.Attempt, s output.Stream, offset int64, follow bool) (*output.Follower, error) {
	if follow { // else an attempt that runs would be taken for one that has ended
		if err := d.awaitRunners(ctx); err != nil {
			if _, unended := d.dir.FindEnd(a); unended != nil {
				return nil, err
			}
		}
	}
	var ended <-chan struct{}
	if activity := d.activity.of(a); follow && activity != nil {
		ended = activity.ended
		select {
		case <-activity.started:
		case <-ctx.Done():
			return nil, fmt.Errorf("supervisor: follow %s: %w", a, ctx.Err())
		}
	}
	f, err := d.follows.Follow(ctx, d.dir.Task(a), s, offset, ended)
	if errors.Is(err, os.ErrNotExist) && s.Valid() && d.spares.gave(a) {
		return output.FollowNothing(offset), nil
	}
	if err != nil {
		return nil, fmt.Errorf("supervisor: follow %s: %w", a, err)
	}
	return f, nil
}
