package hostinfo

// The cgroup limits of this process, versions 2 and 1.

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// mountpoint is where all systems mount cgroups.
const mountpoint = "/sys/fs/cgroup"

// readGroup reads the cgroup of this process; zero if there is none.
func readGroup() group {
	switch cgroups.Mode() {
	case cgroups.Unified:
		if path, err := cgroup2.NestedGroupPath(""); err == nil {
			return readV2(mountpoint, path)
		}
	case cgroups.Legacy, cgroups.Hybrid:
		return readV1(mountpoint, cgroup1.NestedPath(""))
	case cgroups.Unavailable:
	}
	return group{}
}

// readV2 returns the tightest limits of the cgroup and its ancestors.
func readV2(mount, path string) group {
	g := group{version: 2}
	own := filepath.Join(mount, path)
	g.delegated = unix.Access(own, unix.W_OK) == nil && unix.Access(filepath.Join(own, "cgroup.subtree_control"), unix.W_OK) == nil
	if m, err := cgroup2.Load(path, cgroup2.WithMountpoint(mount)); err == nil {
		g.controllers, _ = m.Controllers() // empty if unreadable
	}
	for p := filepath.Clean("/" + path); ; p = filepath.Dir(p) {
		if limit, used, ok := memoryV2(mount, p); ok {
			g.narrow(limit, used)
		}
		if quota, ok := quotaV2(filepath.Join(mount, p)); ok {
			g.slow(quota)
		}
		if p == "/" {
			return g
		}
	}
}

func memoryV2(mount, path string) (limit, used uint64, ok bool) {
	m, err := cgroup2.Load(path, cgroup2.WithMountpoint(mount))
	if err != nil {
		return 0, 0, false
	}
	s, err := m.StatFiltered(cgroup2.StatMemory)
	if err != nil || s.Memory == nil {
		return 0, 0, false
	}
	return s.Memory.UsageLimit, s.Memory.Usage, true
}

// quotaV2 returns the cgroup's CPU quota in CPUs. The libraries write this value but cannot read it.
func quotaV2(dir string) (float64, bool) {
	var quota, period float64
	text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0, false
	}
	if _, err := fmt.Sscan(string(text), &quota, &period); err != nil || period <= 0 {
		return 0, false // "max"
	}
	return quota / period, true
}

// readV1 returns the limits of the cgroup; the kernel enforces those of its ancestors.
func readV1(mount string, path cgroup1.Path) group {
	g := group{version: 1}
	if p, err := path(cgroup1.Memory); err == nil {
		var s v1.Metrics
		if cgroup1.NewMemory(mount, cgroup1.IgnoreModules("memsw", "kmem", "kmem.tcp")).Stat(p, &s) == nil {
			g.narrow(s.Memory.HierarchicalMemoryLimit, s.Memory.Usage.GetUsage())
		}
	}
	p, err := path(cgroup1.Cpu)
	if err != nil {
		return g
	}
	for p = filepath.Clean("/" + p); ; p = filepath.Dir(p) {
		if quota, ok := quotaV1(filepath.Join(mount, string(cgroup1.Cpu), p)); ok {
			g.slow(quota)
		}
		if p == "/" {
			return g
		}
	}
}

func quotaV1(dir string) (float64, bool) {
	var quota, period float64
	for file, value := range map[string]*float64{"cpu.cfs_quota_us": &quota, "cpu.cfs_period_us": &period} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0, false
		}
		if _, err := fmt.Sscan(string(text), value); err != nil {
			return 0, false
		}
	}
	return quota / period, quota > 0 && period > 0
}

// narrow applies a memory limit if it is tighter than the previous ones. Version 1 writes "no limit" as nearly 2^63,
// version 2 as more.
func (g *group) narrow(limit, used uint64) {
	if limit == 0 || limit >= math.MaxInt64 {
		return
	}
	if g.memory == 0 || job.Size(limit) < g.memory {
		g.memory, g.used = job.Size(limit), job.Size(min(used, limit))
	}
}

// slow applies a quota if it is tighter than the previous ones.
func (g *group) slow(quota float64) {
	if g.quota == 0 || quota < g.quota {
		g.quota = quota
	}
}
