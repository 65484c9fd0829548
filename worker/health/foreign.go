package health

// To whom the memory in use on a device belongs: to tasks, to programs that muster did not start, or to no listed process.
// The daemon looks up the control group of each listed process; one in a container is known by its PID namespace. Its
// environment (MUSTER_JOB_ID) proves nothing, because anybody can set it. Where the control group is not known (tasks
// without one, a runner that is not connected, an engine on another host), the time decides: what is in use while no task
// holds the device belongs to others. Held memory is not subtracted from unlisted memory in general: a task that uses
// little would hide others.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// reserve is how much memory a device itself may use. If the memory in use that belongs to no listed process exceeds
// this, all of it counts as taken.
const reserve = job.Size(1 << 30)

// memoryUse is the memory in use on a device.
type memoryUse struct {
	tasks  bool         // a process of a task is on the device
	pids   map[int]bool // processes of others
	most   gpu.Process  // of them: the one that uses most
	others job.Size     // used by them
	rest   job.Size     // used by no listed process
}

// memoryUseOf splits the memory use of a status. tasks says by PID whether a process belongs to a task. A process that is
// missing in tasks belongs to others if it is in foreign, or if free says that no task holds the device.
func memoryUseOf(s gpu.Status, tasks, foreign map[int]bool, free bool) (u memoryUse) {
	u.rest = s.MemoryUsed
	for _, p := range s.Processes {
		u.rest -= p.Memory
		task, known := tasks[p.PID]
		if !known {
			task = !free && !foreign[p.PID]
		}
		if task {
			u.tasks = true
			continue
		}
		if u.pids == nil {
			u.pids = map[int]bool{}
		}
		u.pids[p.PID] = true
		u.others += p.Memory
		if p.Memory > u.most.Memory || u.most.PID == 0 {
			u.most = p
		}
	}
	u.rest = max(0, u.rest)
	return u
}

// taken returns how much of a device others have. held is what its tasks have reserved, and before is what rest was when
// no task held it. If no process of a task is listed, its tasks have not begun, or their processes cannot be seen: then
// the rest may be theirs.
func (u memoryUse) taken(held, before job.Size) job.Size {
	rest := u.rest
	if !u.tasks {
		rest = max(rest-held, min(rest, before))
	}
	if rest > reserve {
		return u.others + rest
	}
	return u.others
}
