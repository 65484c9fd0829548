//go:build e2e

package e2e

// A host's limits of what one user may hold.

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

func TestPerUserLimit(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "limits:\n  per_user: {gpus: 0, tasks: 3}\n  users:\n    " + me.Username + ": {gpus: 2}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cat := newDaemon(t, "cat", "--config", file, "--gpus", "sim:4xH100-80GB", "--cpus", "8").start()
	g := newGate(t)
	first := cat.ok(append([]string{"submit", "-G", "2", "--"}, g.script("exit 0")...)...)
	cat.untilState(first, "RUNNING")
	second := cat.ok("submit", "-G", "1", "--", "true")
	cat.until(second, "PENDING for the quota", func(j jobDoc) bool { return j.State == "PENDING" && j.Reason == "Quota" })
	want := "user " + me.Username + " holds 2 of the 2 gpus"
	if out := cat.ok("why", second); !strings.Contains(out, want) {
		t.Errorf("why:\n%s", out)
	}
	free := cat.ok("submit", "--", "true") // of what is not used up
	cat.untilState(free, "SUCCEEDED")
	g.open()
	cat.untilState(second, "SUCCEEDED")
	if out := cat.ok("config", "show", "--config", file); !strings.Contains(out, "per_user.tasks=3") {
		t.Errorf("config show:\n%s", out)
	}
}
