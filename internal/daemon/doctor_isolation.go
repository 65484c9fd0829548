package daemon

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

// isolationFact reads the isolation of the present runner. If none runs, it tests which isolation a runner would have.
func isolationFact(cfg Config) api.Fact {
	info, _ := runnerOfProcesses(cfg)
	f := api.Fact{Name: "isolation", State: api.FactOK, Detail: info.Isolation}
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

// tmpFact says whether tasks have their own /tmp and /dev/shm, and if not, why.
func tmpFact(cfg Config) api.Fact {
	info, runs := runnerOfProcesses(cfg)
	f := api.Fact{Name: "private-tmp", State: api.FactOK, Detail: "each task has a /tmp and a /dev/shm of its own"}
	switch {
	case !runs:
		f.State, f.Detail = api.FactSkip, "no runner runs that could say whether this host permits it"
	case strings.Contains(info.Isolation, spawn.PrivateTmp):
	case info.SharedTmp == "":
		f.State, f.Detail = api.FactSkip, "tasks share those of the host: their runner is of an older version"
	default:
		f.State, f.Detail = api.FactWarn, "tasks share the /tmp and the /dev/shm of the host: "+info.SharedTmp
		f.Advice = "what a task leaves there stays, and may be in the way of other users"
	}
	if f.State == api.FactWarn && (!cfg.PrivateTmp || os.Geteuid() != 0) {
		f.State, f.Advice = api.FactSkip, ""
	}
	return f
}

// runnerOfProcesses returns what the newest living runner of processes says about itself, or false if none lives.
func runnerOfProcesses(cfg Config) (protocol.Info, bool) {
	dir := protocol.Dir(filepath.Join(cfg.DataDir, "run"))
	all, err := dir.Generations()
	if err != nil {
		return protocol.Info{}, false
	}
	for _, n := range slices.Backward(all) {
		lock, err := dir.TryLock(n)
		if lock != nil {
			_ = lock.Close() // the lock was free: this runner has ended
			continue
		}
		if info, errRead := dir.ReadInfo(n); err == nil && errRead == nil && !info.Containers {
			return info, true
		}
	}
	return protocol.Info{}, false
}
