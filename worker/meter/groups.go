package meter

// The control groups of a task: which of them are its own, and what they say.

import (
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/worker/cgroup"
)

// groups are the directories of the control groups that a task has for itself; empty where it shares one with others.
type groups struct {
	unified string // of version 2
	cpuacct string // the others are of version 1
	memory  string
	pids    string
	freezer string
}

// groupsOf returns the groups of a task by its main process. It returns false if the process is gone or cannot be seen.
func (k *kernel) groupsOf(t *Task, finder *cgroup.Finder) (g groups, ok bool) {
	if t.Group == "" && !t.Container {
		return g, true
	}
	by, err := finder.By(t.PID)
	if err != nil {
		return g, false
	}
	at := map[string]string{}
	for controller, dir := range by {
		if t.Container {
			at[controller] = k.ofContainer(controller, dir, finder)
		} else {
			at[controller] = ofTask(dir, t.Group)
		}
	}
	return groups{unified: at[""], cpuacct: at["cpuacct"], memory: at[cgroup.Memory], pids: at[cgroup.PIDs], freezer: at["freezer"]}, true
}

// ofTask returns the group of a task that holds a process: the one directly below a directory of the runner. The runner
// gives its directory the same name in each hierarchy. A group without that name is shared with other tasks.
func ofTask(dir, parent string) string {
	name := "/" + filepath.Base(parent) + "/"
	at := strings.LastIndex(dir, name)
	if at < 0 {
		return ""
	}
	task, _, _ := strings.Cut(dir[at+len(name):], "/") // the task may have made groups below its own
	if task == "" {
		return ""
	}
	return dir[:at+len(name)] + task
}

// ofContainer returns the group of a container, which the engine has made. A group in which this daemon is too, or one
// above it, is not that of a container alone.
func (k *kernel) ofContainer(controller, dir string, finder *cgroup.Finder) string {
	own, err := finder.By(-1)
	if err != nil || own[controller] == dir || strings.HasPrefix(own[controller], strings.TrimSuffix(dir, "/")+"/") {
		return ""
	}
	return dir
}

// holder is the group that lists the processes of the task; empty: none does.
func (g groups) holder() string {
	if g.unified != "" {
		return g.unified
	}
	return g.freezer
}

// cpu returns the CPU time of all processes that ever were in the group, in seconds.
func (g groups) cpu(k *kernel) (float64, bool) {
	if us, ok := k.keyed(g.unified, "cpu.stat", "usage_usec "); ok {
		return us / 1e6, true
	}
	ns, ok := k.number(g.cpuacct, "cpuacct.usage")
	return ns / 1e9, ok
}

// resident returns the bytes of memory in use, without the file cache that the kernel would drop first.
func (g groups) resident(k *kernel) (float64, bool) {
	if all, ok := k.number(g.unified, "memory.current"); ok {
		cache, ok := k.keyed(g.unified, "memory.stat", "inactive_file ")
		return max(0, all-cache), ok
	}
	all, ok := k.number(g.memory, "memory.usage_in_bytes")
	if !ok {
		return 0, false
	}
	cache, ok := k.keyed(g.memory, "memory.stat", "total_inactive_file ")
	return max(0, all-cache), ok
}

// count returns the number of processes and threads.
func (g groups) count(k *kernel) (float64, bool) {
	if n, ok := k.number(g.unified, "pids.current"); ok {
		return n, true
	}
	return k.number(g.pids, "pids.current")
}
