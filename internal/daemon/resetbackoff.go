package daemon

// Ending the back-offs of waiting jobs, in all groups that this daemon owns.

import (
	"context"
	"errors"
	"sync"

	"github.com/musterhq/muster/api"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
)

// LookAnew ends the back-offs of the jobs of one user, or of all users, so that schedulers look for hosts again. It asks all
// groups at once, because each takes some seconds.
func (b jobsBackend) LookAnew(ctx context.Context, user string) (sum api.Looked, err error) {
	var mu sync.Mutex
	var looks sync.WaitGroup
	for _, o := range b.by {
		looks.Go(func() {
			x, failed := schedulerloop.ResetBackoff(ctx, o.Loop, user)
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, failed); failed == nil {
				addLooked(&sum, &x)
			}
		})
	}
	looks.Wait()
	return sum, apiErrorOf(err)
}

func addLooked(sum *api.Looked, x *step.ResetResult) {
	sum.Ended, sum.Tasks, sum.More = sum.Ended+x.Ended, sum.Tasks+x.Tasks, sum.More+x.More
	for _, p := range x.Placed {
		sum.Placed = append(sum.Placed, api.Placed{Job: p.Job, Task: p.Task, NodeID: p.Node, Node: p.NodeName})
	}
	for _, w := range x.Waiting {
		sum.Waiting = append(sum.Waiting, api.WaitingFor{Reason: w.Reason.Word, Detail: w.Reason.Detail, Jobs: w.Jobs, Tasks: w.Tasks, Job: w.Job})
	}
}
