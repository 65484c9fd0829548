package node

// Doctor: the checks of the isolation between tasks.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// isolationFact reads the isolation of the running runner. Without a runner it tries which isolation one would have.
func isolationFact(cfg Config) api.Fact {
	f := api.Fact{Name: "isolation", State: api.FactOK, Detail: runnerIsolation(cfg)}
	if f.Detail == "" {
		held, err := spawn.Isolation(cfg.CgroupsOff)
		if f.Detail = held + ", as this process found"; err != nil {
			f.Detail += fmt.Sprintf(" (%v)", err)
		}
	}
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids", "devices"} {
		if !strings.Contains(f.Detail, c) {
			missing = append(missing, c)
		}
	}
	switch {
	case len(missing) == 0:
	case cfg.CgroupsOff:
		f.State, f.Advice = api.FactWarn, "cgroups are disabled by the setting cgroups-off"
	case os.Geteuid() != 0:
		f.State = api.FactWarn
		f.Advice = "run the daemon as root or as a systemd service; until then tasks are not limited in " + strings.Join(missing, ", ") + ", except by ulimits"
	default:
		f.State = api.FactWarn
		f.Advice = "tasks are not limited in " + strings.Join(missing, ", ") + ": run the daemon as a systemd service, or in a cgroup of its own with these controllers"
	}
	return f
}

// runnerIsolation returns the isolation of the newest running runner, or "" if none runs.
func runnerIsolation(cfg Config) string {
	dir := protocol.Dir(filepath.Join(cfg.DataDir, "run"))
	all, err := dir.Generations()
	if err != nil {
		return ""
	}
	for _, n := range slices.Backward(all) {
		lock, err := dir.TryLock(n)
		if lock != nil {
			_ = lock.Close() // the lock was free: this runner has ended
			continue
		}
		if info, errRead := dir.ReadInfo(n); err == nil && errRead == nil {
			return info.Isolation
		}
	}
	return ""
}
