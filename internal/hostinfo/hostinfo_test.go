package hostinfo

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/musterhq/muster/job"
)

func TestReadReturnsPlausibleFacts(t *testing.T) {
	f, err := Read(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f)
	if f.CPUs < 1 || f.CPUs > runtime.NumCPU() || f.HostCPUs < f.CPUs {
		t.Errorf("got %d of %d processors, want some of them", f.CPUs, f.HostCPUs)
	}
	if f.Memory < 64<<20 || f.Memory > f.HostMem || f.FreeMem < 0 || f.FreeMem > f.Memory {
		t.Errorf("got %s of %s of memory with %s free, want plausible sizes", f.Memory, f.HostMem, f.FreeMem)
	}
	if f.Disk <= 0 || f.DiskFree < 0 || f.DiskFree > f.Disk || f.FileSystem == "" {
		t.Errorf("got %s of %s of disk, %q, want plausible sizes and a file system", f.DiskFree, f.Disk, f.FileSystem)
	}
	if f.OpenFiles == 0 || f.MaxOpenFiles < f.OpenFiles || f.Incarnation == "" {
		t.Errorf("got facts %+v, want open files and an incarnation", f)
	}
	again, err := Incarnation(t.Context())
	if err != nil || again != f.Incarnation {
		t.Errorf("incarnation: got %[2]q, %[3]v, want %[1]q", f.Incarnation, again, err)
	}
	if free, err := DiskFree(t.Context(), t.TempDir()); err != nil || free < 0 || free > f.Disk {
		t.Errorf("DiskFree: got %s, %v, want at most the disk", free, err)
	}
}

func TestReadOfAMissingDirectoryFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if f, err := Read(t.Context(), missing); err == nil {
		t.Errorf("got %+v from a missing directory, want an error", f)
	}
	if _, err := DiskFree(t.Context(), missing); err == nil {
		t.Error("got free space of a missing directory, want an error")
	}
}

func TestUsableCPUsFollowTheQuota(t *testing.T) {
	for _, c := range []struct {
		set   int
		quota float64
		want  int
	}{{8, 0, 8}, {8, 2.5, 2}, {8, 0.3, 1}, {8, 64, 8}, {1, 4, 1}, {0, 0, 1}} {
		if got := usable(c.set, c.quota); got != c.want {
			t.Errorf("usable(%d, %v) = %d, want %d", c.set, c.quota, got, c.want)
		}
	}
}

func TestMemoryIsThatOfHostOrLimit(t *testing.T) {
	const gib = job.Size(1) << 30
	for name, c := range map[string]struct {
		total, available job.Size
		g                group
		memory, free     job.Size
	}{
		"no limit":        {64 * gib, 50 * gib, group{}, 64 * gib, 50 * gib},
		"limit":           {64 * gib, 50 * gib, group{memory: 8 * gib, used: 3 * gib}, 8 * gib, 5 * gib},
		"host is tighter": {64 * gib, gib, group{memory: 8 * gib, used: 3 * gib}, 8 * gib, gib},
		"above the host":  {64 * gib, 50 * gib, group{memory: 100 * gib}, 64 * gib, 50 * gib},
		"over the limit":  {64 * gib, 50 * gib, group{memory: gib, used: 2 * gib}, gib, 0},
	} {
		if memory, free := limited(c.total, c.available, c.g); memory != c.memory || free != c.free {
			t.Errorf("%s: got %s, %s free; want %s, %s", name, memory, free, c.memory, c.free)
		}
	}
}
