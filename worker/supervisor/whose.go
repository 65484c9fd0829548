package supervisor

// Whether processes belong to tasks or to others. The control group of a process shows it, because no process can leave
// the group of its task. For a process in a container, its PID namespace shows it.

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/musterhq/muster/worker/cgroup"
)

// places says where the processes of tasks can be.
type places struct {
	groups     []string // the parents of the control groups of tasks
	containers []int    // the first process of each container
	elsewhere  bool     // tasks may also be elsewhere
}

// Whose reports by PID whether processes of this host belong to tasks. It leaves out processes for which that is not
// known: all of them if tasks have no control groups.
func (d *Driver) Whose(ctx context.Context, pids []int) map[int]bool {
	if len(pids) == 0 {
		return nil
	}
	answer := make(chan places, 1)
	if d.inbox.put(func(s *state) { answer <- s.places() }) != nil {
		return nil
	}
	select {
	case at := <-answer:
		return at.whose(pids)
	case <-ctx.Done():
		return nil
	}
}

func (s *state) places() (at places) {
	for _, k := range s.runners.links {
		switch {
		case k.role == containers && k.welcomed: // see below
		case k.cgroup == "":
			at.elsewhere = at.elsewhere || k.welcomed || !k.own // a new one has no task yet
		default:
			at.groups = append(at.groups, k.cgroup)
		}
	}
	for _, e := range s.entries {
		k := s.runners.links[e.runner]
		switch {
		case k == nil || k.role != containers || e.start != nil: // a process, or not begun yet
		case e.pid > 0:
			at.containers = append(at.containers, e.pid)
		default:
			at.elsewhere = true
		}
	}
	return at
}

func (at places) whose(pids []int) map[int]bool {
	inside := map[string]bool{}
	for _, pid := range at.containers {
		if ns := namespaceOf(pid); ns != "" && ns != namespaceOf(os.Getpid()) {
			inside[ns] = true
		} else {
			at.elsewhere = true // the engine runs on another host, or does not isolate
		}
	}
	all, find := map[int]bool{}, cgroup.Finder{}
	for _, pid := range pids {
		groups, err := find.Of(pid)
		if err != nil {
			continue // it is gone, or not of this PID namespace
		}
		below := func(dir string) bool { return cgroup.Below(groups, dir) }
		ns := namespaceOf(pid)
		switch {
		case slices.ContainsFunc(at.groups, below) || inside[ns]:
			all[pid] = true
		case !at.elsewhere && (ns != "" || len(inside) == 0):
			all[pid] = false
		}
	}
	return all
}

// namespaceOf returns the PID namespace of a process; empty: it is not known.
func namespaceOf(pid int) string {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	return ns
}
