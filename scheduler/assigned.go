package scheduler

// Which tasks are assigned to which host.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
)

// assigned is which tasks are assigned to each host.
type assigned struct {
	byNode map[job.Peer]map[*task]bool
}

// at returns the tasks assigned to a host, in a fixed order.
func (as *assigned) at(p job.Peer) []*task {
	out := make([]*task, 0, len(as.byNode[p]))
	for t := range as.byNode[p] {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.e.job.ID, b.e.job.ID), cmp.Compare(a.index, b.index))
	})
	return out
}

// busy says whether a task is assigned to the host.
func (as *assigned) busy(p job.Peer) bool { return len(as.byNode[p]) > 0 }
