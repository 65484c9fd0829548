package spawn

// The limits of a task's control group, and the GPUs that the task may not open.

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
)

// limits returns the limits of a task's control groups.
func (s *Spawner) limits(o *Order) cgroup.Limits {
	l := o.Start.Limits
	c := cgroup.Limits{CPUs: l.CPUs, Quota: l.Quota, Memory: int64(l.Memory), PIDs: l.PIDs}
	if !l.AnyGPU && s.Group.Bounds(cgroup.Devices) {
		c.Deny = s.nodes.denied(l.GPUs)
	}
	return c
}

// nodes are the device files of NVIDIA's driver. They are listed again when the directory has changed.
type nodes struct {
	dir string

	mu    sync.Mutex
	since unix.Timespec            // guarded by mu: modification time of dir
	all   map[string]cgroup.Device // guarded by mu; by path
}

// denied returns the devices that a task with these GPUs may not open. A task with a GPU needs the driver's control
// files; a task without one does not.
func (n *nodes) denied(gpus []string) []cgroup.Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refreshLocked()
	var denied []cgroup.Device
	for path, d := range n.all {
		if slices.Contains(gpus, path) || len(gpus) > 0 && !isGPU(path) {
			continue
		}
		denied = append(denied, d)
	}
	slices.SortFunc(denied, func(a, b cgroup.Device) int {
		return (int(a.Major)-int(b.Major))<<20 + int(a.Minor) - int(b.Minor)
	})
	return denied
}

func (n *nodes) refreshLocked() {
	var dir unix.Stat_t
	if err := unix.Stat(n.dir, &dir); err != nil || dir.Mtim == n.since {
		return
	}
	n.since, n.all = dir.Mtim, map[string]cgroup.Device{}
	for _, pattern := range []string{"nvidia*", "nvidia-caps/*"} {
		paths, err := filepath.Glob(filepath.Join(n.dir, pattern))
		if err != nil {
			continue // the patterns are right
		}
		for _, path := range paths {
			var node unix.Stat_t
			if unix.Stat(path, &node) == nil && node.Mode&unix.S_IFMT == unix.S_IFCHR {
				n.all[path] = cgroup.Device{Major: unix.Major(node.Rdev), Minor: unix.Minor(node.Rdev)}
			}
		}
	}
}

// isGPU reports whether path is a GPU (/dev/nvidiaN) and not one of the driver's control files.
func isGPU(path string) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "nvidia"))
	return err == nil
}
