package scheduler

// Holders: what the tasks of each user hold, on all hosts together.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// holder counts what those tasks of a user hold that are assigned or offered to hosts.
type holder struct {
	contract.Held

	jobs   int    // of the user, that are kept in memory
	easing func() // called when the user holds less; nil: nobody waits for that
}

// change counts what a task holds now instead of what it held before.
func (h *holder) change(before, now contract.Held) {
	h.Tasks += now.Tasks - before.Tasks
	h.CPUs += now.CPUs - before.CPUs
	h.Milli += now.Milli - before.Milli
	h.Memory += now.Memory - before.Memory
	if h.easing != nil && !before.Within(now) {
		h.easing()
	}
}

// holders has a holder for each user with jobs in memory.
type holders map[string]*holder

// join returns the holder of the user for one more job.
func (hs holders) join(user string) *holder {
	h := hs[user]
	if h == nil {
		h = &holder{}
		hs[user] = h
	}
	h.jobs++
	return h
}

// leave notes that a job of the user is not kept in memory any more.
func (hs holders) leave(user string) {
	if h := hs[user]; h != nil {
		if h.jobs--; h.jobs == 0 {
			delete(hs, user)
		}
	}
}

// wholeOf returns what a task with this need holds of a host. If h is nil, because the host is not known, that is what
// the task asks for.
func wholeOf(h *fleet.Host, need job.Resources) job.Resources {
	if h == nil {
		return need
	}
	return contract.Whole(need, h.Profile.CPUs, len(h.Profile.GPUs))
}
