package scheduler

// The index of tasks by the host that they are assigned to.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
)

// assigned is the index of assigned tasks by host.
type assigned struct {
	byNode map[job.Peer]map[*task]bool
}

// put notes that the task is assigned to the host. It returns false if that was known already.
func (as *assigned) put(t *task, p job.Peer) bool {
	if t.node == p {
		return false
	}
	as.remove(t)
	t.node = p
	if as.byNode[p] == nil {
		as.byNode[p] = map[*task]bool{}
	}
	as.byNode[p][t] = true
	return true
}

// remove notes that the task is not assigned.
func (as *assigned) remove(t *task) {
	delete(as.byNode[t.node], t)
	if len(as.byNode[t.node]) == 0 {
		delete(as.byNode, t.node)
	}
	t.node = ""
}

// at returns the tasks that are assigned to a host, by job id and index.
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

// busy reports whether any task is assigned to the host.
func (as *assigned) busy(p job.Peer) bool { return len(as.byNode[p]) > 0 }
