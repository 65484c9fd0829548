// Package hostinfo reports what this host has besides GPUs: CPUs, memory and disk, the limits of this process, and the
// identity of the current boot.
package hostinfo

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// Facts is the result of Read. A field is zero if the system does not report it.
type Facts struct {
	CPUs     int      // that this process and its children may use; at least 1
	HostCPUs int      // that the host has
	Quota    float64  // CPU time that the cgroup allows, in CPUs; 0: no limit
	Memory   job.Size // that this process and its children may use
	HostMem  job.Size // that the host has
	FreeMem  job.Size // part of Memory that is not in use

	Disk       job.Size // of the file system that holds the data directory
	DiskFree   job.Size // free space for this user
	FileSystem string   // its type

	CgroupVersion int      // 2; 1, also if both are mounted; 0: none
	Controllers   []string // of this process's cgroup, version 2 only
	Delegated     bool     // this process may create cgroups below its own

	OpenFiles    uint64 // soft limit of this process
	MaxOpenFiles uint64 // hard limit of this process

	// Incarnation identifies the current boot of this host or container. After a reboot, or a restart of the
	// container, it is different, and no earlier process is left. Setting the clock does not change it.
	Incarnation string
}

// group holds the limits of the cgroup of this process.
type group struct {
	version     int
	controllers []string
	delegated   bool
	quota       float64  // CPUs; 0: no limit
	memory      job.Size // 0: no limit
	used        job.Size // of memory
}

// Read collects the facts; dataDir must exist.
func Read(ctx context.Context, dataDir string) (Facts, error) {
	g := readGroup()
	f := Facts{Quota: g.quota, CgroupVersion: g.version, Controllers: g.controllers, Delegated: g.delegated}
	var err error
	if f.HostCPUs, err = cpu.CountsWithContext(ctx, true); err != nil {
		return Facts{}, fmt.Errorf("machine: count the processors: %w", err)
	}
	f.CPUs = usable(runtime.NumCPU(), g.quota)
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Facts{}, fmt.Errorf("machine: read the memory: %w", err)
	}
	f.HostMem = job.Size(min(m.Total, math.MaxInt64))
	f.Memory, f.FreeMem = limited(f.HostMem, job.Size(min(m.Available, math.MaxInt64)), g)
	d, err := disk.UsageWithContext(ctx, dataDir)
	if err != nil {
		return Facts{}, fmt.Errorf("machine: read the disk of %s: %w", dataDir, err)
	}
	f.Disk, f.DiskFree, f.FileSystem = job.Size(min(d.Total, math.MaxInt64)), job.Size(min(d.Free, math.MaxInt64)), d.Fstype
	if f.OpenFiles, f.MaxOpenFiles, err = openFiles(); err != nil {
		return Facts{}, fmt.Errorf("machine: read the limit of open files: %w", err)
	}
	if f.Incarnation, err = Incarnation(ctx); err != nil {
		return Facts{}, err
	}
	return f, nil
}

// DiskFree returns the free space for this user on the file system of path.
func DiskFree(ctx context.Context, path string) (job.Size, error) {
	d, err := disk.UsageWithContext(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("machine: read the disk of %s: %w", path, err)
	}
	return job.Size(min(d.Free, math.MaxInt64)), nil
}

// usable returns the number of CPUs under a quota: a whole number, at least one. inSet is the number of CPUs in this
// process's CPU set.
func usable(inSet int, quota float64) int {
	if quota > 0 {
		inSet = min(inSet, int(quota))
	}
	return max(1, inSet)
}

// limited returns the memory under the cgroup's limit, and how much of it is free.
func limited(total, available job.Size, g group) (memory, free job.Size) {
	if g.memory <= 0 || g.memory >= total {
		return total, available
	}
	return g.memory, min(available, max(0, g.memory-g.used))
}

// openFiles returns the soft and the hard limit of open files.
func openFiles() (now, most uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	return l.Cur, l.Max, nil
}
