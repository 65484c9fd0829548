package hostinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup1"

	"github.com/musterhq/muster/job"
)

// tree writes files below a directory, as the kernel shows cgroups.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLimitsAreReadFromCgroup2(t *testing.T) {
	root := tree(t, map[string]string{
		"cgroup.controllers":                "cpuset cpu memory",
		"box/cpu.max":                       "150000 100000",
		"box/memory.stat":                   "anon 1",
		"box/memory.max":                    "2147483648",
		"box/memory.current":                "1048576",
		"box/muster/cpu.max":                "max 100000",
		"box/muster/memory.stat":            "anon 1",
		"box/muster/memory.max":             "max",
		"box/muster/memory.current":         "4096",
		"box/muster/cgroup.controllers":     "cpu memory pids",
		"box/muster/cgroup.subtree_control": "",
		"tight/cpu.max":                     "400000 100000",
		"tight/in/cpu.max":                  "50000 100000",
		"tight/in/memory.stat":              "anon 1",
		"tight/in/memory.max":               "1073741824",
		"tight/in/memory.current":           "1073741825",
		"tight/memory.stat":                 "anon 1",
		"tight/memory.max":                  "4294967296",
		"tight/memory.current":              "0",
		"odd/cpu.max":                       "gibberish",
	})
	g := readV2(root, "/box/muster")
	if g.version != 2 || g.quota != 1.5 || g.memory != 2<<30 || g.used != 1<<20 || !g.delegated || !slices.Equal(g.controllers, []string{"cpu", "memory", "pids"}) {
		t.Errorf("a limit of the parent group: got %+v, want 1.5 CPUs and 2 GiB", g)
	}
	if g := readV2(root, "/tight/in"); g.quota != 0.5 || g.memory != 1<<30 || g.used != 1<<30 || g.delegated {
		t.Errorf("an own limit: got %+v, want half a CPU and 1 GiB", g)
	}
	for _, path := range []string{"/", "/odd", "/not/here"} {
		if g := readV2(root, path); g.quota != 0 || g.memory != 0 || g.version != 2 {
			t.Errorf("%s: got %+v, want no limits", path, g)
		}
	}
}

func TestLimitsAreReadFromCgroup1(t *testing.T) {
	files := map[string]string{
		"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
		"cpu/box/cpu.cfs_quota_us": "300000", "cpu/box/cpu.cfs_period_us": "100000",
		"cpu/box/in/cpu.cfs_quota_us": "-1", "cpu/box/in/cpu.cfs_period_us": "100000",
		"memory/box/in/memory.stat": "cache 0\nhierarchical_memory_limit 1073741824",
		"memory/memory.stat":        "cache 0\nhierarchical_memory_limit 9223372036854771712",
	}
	for _, dir := range []string{"memory/box/in/", "memory/"} {
		for _, value := range []string{"usage_in_bytes", "max_usage_in_bytes", "failcnt", "limit_in_bytes"} {
			files[dir+"memory."+value] = "4096"
		}
		files[dir+"memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 0"
	}
	root := tree(t, files)
	if g := readV1(root, cgroup1.StaticPath("/box/in")); g.version != 1 || g.quota != 3 || g.memory != 1<<30 || g.used != 4096 {
		t.Errorf("limits: got %+v, want 3 CPUs and 1 GiB", g)
	}
	if g := readV1(root, cgroup1.StaticPath("/")); g.quota != 0 || g.memory < job.Size(1)<<62 {
		t.Errorf("without limits: got %+v, want none", g)
	}
	failing := func(cgroup1.Name) (string, error) { return "", fmt.Errorf("no such controller") }
	if g := readV1(root, failing); g.version != 1 || g.quota != 0 || g.memory != 0 || g.used != 0 {
		t.Errorf("without controllers: got %+v, want none", g)
	}
}

func TestIncarnationIsOfThisBoot(t *testing.T) {
	text, err := Incarnation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var boot string
	var namespace, start uint64
	if n, err := fmt.Sscanf(text, "%36s/%d/%d", &boot, &namespace, &start); n != 3 || len(boot) != 36 || namespace == 0 {
		t.Errorf("incarnation %q: got %d parts, %v, want the boot, the namespace and the start", text, n, err)
	}
}
