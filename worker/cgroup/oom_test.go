package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// The kernel's counters of version 2, as files. An OOM kill of any process of the task counts exactly, even if the main
// process goes on. The kernel adds the task's own subgroups.
func TestOOMKillsOfVersion2AreExact(t *testing.T) {
	t.Parallel()
	tree := &Tree{unified: t.TempDir()}
	for name, c := range map[string]struct {
		events string
		kills  int64
		full   bool
	}{
		"child": {"low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n", 1, true},
		"group": {"low 0\nhigh 0\nmax 40\noom 2\noom_kill 3\noom_group_kill 1\n", 3, true},
		"host":  {"low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", 1, false},
		"none":  {"low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n", 0, false},
	} {
		dir := filepath.Join(tree.unified, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(c.events), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, exact := tree.OOMKills(name); n != c.kills || !exact || tree.FullMemory(name) != c.full {
			t.Errorf("%s: %d kills, exact %t, full %t, want the counts of the case", name, n, exact, tree.FullMemory(name))
		}
	}
	if n, _ := tree.OOMKills("absent"); n != -1 {
		t.Errorf("%d kills without the controller, want -1", n)
	}
}
