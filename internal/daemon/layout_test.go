package daemon

// The layers of the packages: each package imports only the packages of this module that are listed for it.

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/musterhq/muster/"

// allowedImports lists each package and the packages of this module that it may import. A new import between packages
// is a change of this table, so a reviewer sees it.
var allowedImports = map[string][]string{
	"job":                         {},
	"job/jobfile":                 {"job", "job/yamldoc"},
	"job/yamldoc":                 {},
	"gpu":                         {"job"},
	"gpu/nvidia":                  {"gpu"},
	"gpu/nvml":                    {"gpu", "gpu/nvidia", "job"},
	"gpu/simgpu":                  {"gpu", "gpu/nvidia", "job"},
	"gpu/gputest":                 {"gpu", "job"},
	"internal/hostinfo":           {"job"},
	"internal/osuser":             {},
	"internal/timers":             {},
	"internal/inbox":              {},
	"internal/audit":              {"job"},
	"internal/fairshare":          {"job"},
	"internal/usage":              {"internal/usage/usagepb"},
	"internal/usage/usagepb":      {},
	"internal/waittime":           {},
	"internal/contract":           {"job", "gpu", "internal/fairshare"},
	"scheduler/state":             {"job", "scheduler/state/jobspb", "internal/store/storepb"},
	"scheduler/state/jobspb":      {"internal/store/storepb"},
	"scheduler/state/statetest":   {"job", "scheduler/state", "scheduler/state/jobspb", "internal/store/storepb"},
	"scheduler/backlog":           {"job", "scheduler/state"},
	"scheduler/step":              {"job", "scheduler/state", "scheduler/backlog", "scheduler/policy", "internal/contract", "internal/fairshare", "internal/timers", "internal/waittime"},
	"scheduler/search":            {"job", "internal/contract", "scheduler/step"},
	"scheduler/shares":            {"job", "internal/contract", "internal/fairshare", "scheduler/step"},
	"scheduler":                   {"job", "scheduler/state", "gpu", "internal/contract", "internal/fairshare", "scheduler/backlog", "scheduler/step", "scheduler/search", "scheduler/shares", "scheduler/fleet", "scheduler/place", "scheduler/policy", "internal/timers", "internal/waittime"},
	"scheduler/loop":              {"job", "scheduler", "scheduler/state", "scheduler/backlog", "scheduler/step", "internal/contract", "internal/fairshare", "internal/inbox"},
	"scheduler/fleet":             {"job", "gpu", "internal/contract", "internal/fairshare"},
	"scheduler/place":             {"job", "internal/contract", "scheduler/fleet", "scheduler/policy"},
	"scheduler/policy":            {"job", "gpu", "internal/contract", "scheduler/fleet"},
	"internal/testkit/chromium":   {},
	"internal/testkit/exetest":    {}, // tests only
	"internal/logcount":           {"internal/ratelimit"},
	"internal/ratelimit":          {},
	"internal/testkit/needtest":   {"internal/testkit/chromium"}, // tests only
	"internal/testkit/logtest":    {},
	"internal/profile":            {},
	"internal/testkit/rulestest":  {},
	"internal/testkit/stories":    {"job"},
	"internal/inplace":            {},
	"internal/keptsocket":         {},
	"internal/timerslack":         {},
	"internal/testkit/rogue":      {"job", "dht", "p2p", "p2p/gossip", "p2p/peerhttp", "p2p/session", "p2p/wirepb"}, // the hostile member of tests
	"worker":                      {"job", "gpu", "internal/contract", "internal/fairshare", "worker/admission", "worker/driver", "worker/environment", "worker/health", "worker/leaseclock", "worker/resources", "worker/step", "worker/useraccounts"},
	"worker/leaseclock":           {},
	"worker/driver":               {"job", "worker/leaseclock"},
	"worker/step":                 {"job", "internal/contract", "internal/timers", "worker/driver", "worker/leaseclock"},
	"worker/resources":            {"job", "gpu", "internal/contract", "internal/fairshare", "worker/driver", "worker/leaseclock", "worker/step"},
	"worker/health":               {"job", "gpu", "internal/contract", "worker/leaseclock", "worker/resources", "worker/step"},
	"worker/useraccounts":         {"job", "internal/contract", "worker/leaseclock", "worker/step"},
	"worker/environment":          {"job", "gpu", "internal/contract"},
	"worker/admission":            {"job", "gpu", "internal/contract", "internal/fairshare", "worker/leaseclock", "worker/resources", "worker/step"},
	"worker/ledger":               {"job", "internal/contract", "internal/store", "internal/store/storepb"},
	"worker/loop":                 {"job", "gpu", "internal/contract", "internal/fairshare", "internal/inbox", "worker", "worker/driver", "worker/health", "worker/leaseclock", "worker/resources", "worker/step", "worker/useraccounts"},
	"worker/output":               {"job"},
	"worker/userfile":             {},
	"worker/cgroup":               {},
	"worker/runner":               {"internal/inplace", "internal/keptsocket", "job", "internal/contract", "internal/timers", "worker/output", "worker/cgroup", "worker/leaseclock", "worker/runner/guard", "worker/runner/pidspace", "worker/runner/proc", "worker/runner/protocol", "worker/runner/pump", "worker/runner/scratch", "worker/runner/spawn"},
	"worker/runner/guard":         {"job", "worker/cgroup", "worker/leaseclock", "worker/runner/proc", "worker/runner/protocol"},
	"worker/runner/pidspace":      {},
	"worker/runner/private":       {},
	"worker/runner/proc":          {"job"},
	"worker/runner/protocol":      {"job", "worker/output", "worker/runner/proc"},
	"worker/runner/pump":          {"worker/output", "worker/userfile"},
	"worker/runner/spawn":         {"internal/timerslack", "job", "internal/osuser", "worker/cgroup", "worker/output", "worker/runner/pidspace", "worker/runner/private", "worker/runner/proc", "worker/runner/protocol", "worker/runner/pump", "worker/userfile"},
	"worker/runner/scratch":       {"job", "worker/runner/protocol"},
	"worker/runner/docker":        {"job", "worker/runner/proc", "worker/runner/protocol", "worker/runner/spawn"},
	"worker/supervisor":           {"internal/timerslack", "job", "gpu", "worker/cgroup", "worker/driver", "worker/leaseclock", "worker/output", "worker/runner/guard", "worker/runner/proc", "worker/runner/protocol", "worker/runner/scratch"},
	"worker/meter":                {"job", "gpu", "internal/usage", "worker/cgroup"},
	"worker/files":                {"job", "internal/upload", "worker/driver", "worker/leaseclock", "worker/runner/protocol", "worker/runner/scratch", "worker/runner/spawn", "worker/userfile"},
	"p2p":                         {"job", "gpu", "internal/contract", "p2p/wirepb"},
	"p2p/wirepb":                  {},
	"p2p/session":                 {"job", "gpu", "internal/contract", "internal/fairshare", "internal/ratelimit", "p2p", "p2p/wirepb", "internal/timers", "internal/usage"},
	"p2p/gossip":                  {"internal/ratelimit", "job", "p2p", "p2p/wirepb"},
	"p2p/peerhttp":                {"job", "p2p"},
	"p2p/p2ptest":                 {"job", "p2p", "p2p/wirepb"},
	"dht":                         {"job", "gpu", "internal/contract"},
	"internal/store":              {"internal/inplace", "job", "internal/contract", "internal/store/storepb"},
	"internal/store/storepb":      {"job"},
	"internal/store/storetest":    {"job", "internal/store/storepb"},
	"scheduler/journal":           {"job", "internal/store", "internal/store/storepb", "scheduler/journal/journalpb"},
	"scheduler/journal/journalpb": {"internal/store/storepb"},
	"internal/upload":             {},
	"api":                         {"internal/keptsocket", "job", "job/jobfile", "gpu", "internal/contract", "internal/fairshare", "internal/upload", "internal/audit", "internal/docsite", "internal/forward", "internal/dashboard/ui", "internal/dashboard/origin", "internal/osuser", "api/view", "internal/usage", "internal/waittime"},
	"docs":                        {},
	"internal/docsite":            {"docs"},
	"internal/dashboard/ui":       {},
	"internal/dashboard/origin":   {},
	"internal/forward":            {"internal/dashboard/origin"},
	"internal/dashboard/door":     {"api", "internal/docsite", "internal/forward", "internal/dashboard/ui", "internal/dashboard/origin"},
	"api/view":                    {"job"},
	"internal/metrics":            {"job", "gpu"},
	"internal/metrics/jobfiles":   {"job", "gpu"},
	"internal/daemon": {
		"job", "gpu", "gpu/nvml", "gpu/simgpu", "internal/hostinfo", "internal/osuser", "internal/contract", "internal/fairshare", "scheduler", "scheduler/backlog", "scheduler/loop", "scheduler/step", "worker", "worker/driver", "worker/health", "worker/leaseclock", "worker/ledger", "worker/loop", "worker/resources", "worker/step", "worker/useraccounts", "worker/runner/docker", "worker/supervisor", "worker/output", "worker/runner", "worker/runner/protocol", "worker/runner/spawn", "worker/cgroup",
		"p2p", "p2p/session", "p2p/gossip", "p2p/peerhttp", "dht", "internal/store", "scheduler/journal", "api", "internal/upload", "worker/files", "worker/meter", "internal/audit", "internal/metrics", "internal/metrics/jobfiles", "internal/usage", "internal/waittime",
	},
	"internal/sim":                   {"job", "scheduler/state", "gpu", "internal/contract", "internal/fairshare", "scheduler", "scheduler/step", "worker", "worker/driver", "worker/health", "worker/leaseclock", "worker/resources", "internal/timers", "internal/sim/load", "internal/sim/record"},
	"internal/sim/load":              {"job", "job/jobfile", "gpu", "internal/contract"},
	"internal/sim/record":            {},
	"internal/sim/fabric":            {"job/yamldoc"},
	"internal/sim/gossip":            {"internal/sim/fabric"},
	"internal/sim/placing":           {"job", "gpu", "internal/contract", "scheduler/fleet", "scheduler/place", "scheduler/policy", "internal/sim/load"},
	"internal/sim/central":           {"job", "gpu", "internal/contract", "scheduler/fleet", "scheduler/place", "scheduler/policy", "internal/sim/load", "internal/sim/record"},
	"internal/sim/report":            {"job", "gpu", "internal/sim/load", "internal/sim/record", "internal/sim/report/units"},
	"internal/sim/report/page":       {"internal/sim/report", "internal/sim/report/units"},
	"internal/sim/report/reporttest": {"job", "gpu", "internal/sim/load", "internal/sim/record", "internal/sim/report"},
	"internal/sim/report/units":      {},
	"internal/sim/scenario":          {"internal/fairshare", "internal/contract", "scheduler/policy", "internal/sim", "internal/sim/central", "internal/sim/fabric", "internal/sim/gossip", "internal/sim/load", "internal/sim/record", "internal/sim/report"},
	"internal/sim/study":             {"gpu", "internal/sim/central", "internal/sim/fabric", "internal/sim/load", "internal/sim/placing", "internal/sim/record", "internal/sim/report", "internal/sim/report/units", "internal/sim/scenario"},
	"cmd/muster-runner":              {"internal/profile", "worker/runner", "worker/runner/spawn"},
	"cmd/muster/manual":              {"job", "job/jobfile"},
	"cmd/muster/table":               {},
	"cmd/muster/top":                 {"api", "cmd/muster/table", "gpu", "job"},
	"cmd/muster":                     {"cmd/muster/manual", "cmd/muster/table", "cmd/muster/top", "internal/profile", "internal/timerslack", "job", "job/jobfile", "job/yamldoc", "internal/contract", "gpu", "gpu/nvml", "internal/logcount", "internal/hostinfo", "worker/runner", "worker/runner/docker", "worker/runner/spawn", "api", "internal/dashboard/door", "internal/dashboard/ui", "internal/audit", "internal/daemon", "internal/upload", "scheduler/policy", "internal/sim", "internal/sim/central", "internal/sim/fabric", "internal/sim/load", "internal/sim/placing", "internal/sim/record", "internal/sim/report", "internal/sim/report/page", "internal/sim/scenario"},
}

// outside lists the directories without layers. They run the built program.
var outside = []string{"e2e"}

func TestLayout(t *testing.T) {
	seen := map[string]bool{}
	for dir, files := range sources(t) {
		if slices.ContainsFunc(outside, func(o string) bool { return dir == o || strings.HasPrefix(dir, o+"/") }) {
			continue
		}
		allowed, known := allowedImports[dir]
		if !known {
			t.Errorf("package %s is not in the table of allowed imports", dir)
		}
		seen[dir] = true
		documented := false
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", dir, file), nil, parser.ImportsOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || f.Doc != nil
			for _, imp := range f.Imports {
				path := strings.Trim(imp.Path.Value, `"`)
				if own, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, own) {
					t.Errorf("%s/%s imports %s: the table does not allow that", dir, file, own)
				}
				if dir == "job" && strings.Contains(path, ".") {
					t.Errorf("job/%s imports %s: job may import only the standard library", file, path)
				}
				if foreign := strings.Contains(path, "libp2p/"); foreign && slices.Contains([]string{"scheduler", "scheduler/loop", "worker", "worker/admission", "worker/health", "worker/loop", "worker/resources", "worker/step", "internal/store", "api", "internal/sim"}, dir) {
					t.Errorf("%s/%s imports %s: only p2p, dht and node may import libp2p", dir, file, path)
				}
			}
		}
		if !documented {
			t.Errorf("package %s has no package comment", dir)
		}
	}
	for dir := range allowedImports {
		if !seen[dir] {
			t.Errorf("the table names %s, which does not exist", dir)
		}
	}
}

// sources lists the non-test Go files of each directory of the repository.
func sources(t *testing.T) map[string][]string {
	found := map[string][]string{}
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "internal/tools") {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			dir := filepath.ToSlash(filepath.Dir(path))
			found[dir] = append(found[dir], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
