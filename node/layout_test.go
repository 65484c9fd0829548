package node

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
	"job":                    {},
	"job/jobfile":            {"job", "job/yamldoc"},
	"job/yamldoc":            {},
	"gpu":                    {"job"},
	"gpu/nvidia":             {"gpu"},
	"gpu/nvml":               {"gpu", "gpu/nvidia", "job"},
	"gpu/simgpu":             {"gpu", "gpu/nvidia", "job"},
	"gpu/gputest":            {"gpu", "job"},
	"machine":                {"job"},
	"machine/account":        {},
	"timers":                 {},
	"inbox":                  {},
	"audit":                  {"job"},
	"share":                  {"job"},
	"usage":                  {"usage/usagepb"},
	"usage/usagepb":          {},
	"waits":                  {},
	"lease":                  {"job", "gpu", "share"},
	"jobs":                   {"job", "jobs/jobspb", "store/storepb"},
	"jobs/jobspb":            {"store/storepb"},
	"jobs/jobstest":          {"job", "jobs", "jobs/jobspb", "store/storepb"},
	"scheduler":              {"job", "jobs", "gpu", "lease", "share", "scheduler/fleet", "scheduler/place", "scheduler/policy", "inbox", "timers", "waits"},
	"scheduler/fleet":        {"job", "gpu", "lease", "share"},
	"scheduler/place":        {"job", "lease", "scheduler/fleet", "scheduler/policy"},
	"scheduler/policy":       {"job", "gpu", "lease", "scheduler/fleet"},
	"internal/chromium":      {},
	"internal/exetest":       {}, // tests only
	"internal/logcount":      {},
	"internal/needtest":      {"internal/chromium"}, // tests only
	"internal/logtest":       {},
	"internal/profile":       {},
	"internal/rulestest":     {},
	"internal/stories":       {"job"},
	"internal/inplace":       {},
	"internal/keptsocket":    {},
	"internal/timerslack":    {},
	"internal/rogue":         {"job", "dht", "p2p", "p2p/gossip", "p2p/peerhttp", "p2p/session", "p2p/wirepb"}, // the hostile member of tests
	"worker":                 {"job", "gpu", "inbox", "lease", "share", "timers", "worker/leaseclock"},
	"worker/leaseclock":      {},
	"worker/output":          {"job"},
	"worker/userfile":        {},
	"worker/cgroup":          {},
	"worker/runner":          {"internal/inplace", "internal/keptsocket", "job", "lease", "timers", "worker/output", "worker/cgroup", "worker/leaseclock", "worker/runner/guard", "worker/runner/pidspace", "worker/runner/proc", "worker/runner/protocol", "worker/runner/pump", "worker/runner/scratch", "worker/runner/spawn"},
	"worker/runner/guard":    {"job", "worker/cgroup", "worker/leaseclock", "worker/runner/proc", "worker/runner/protocol"},
	"worker/runner/pidspace": {},
	"worker/runner/private":  {},
	"worker/runner/proc":     {"job"},
	"worker/runner/protocol": {"job", "worker/output", "worker/runner/proc"},
	"worker/runner/pump":     {"worker/output", "worker/userfile"},
	"worker/runner/spawn":    {"internal/timerslack", "job", "machine/account", "worker/cgroup", "worker/output", "worker/runner/pidspace", "worker/runner/private", "worker/runner/proc", "worker/runner/protocol", "worker/runner/pump", "worker/userfile"},
	"worker/runner/scratch":  {"job", "worker/runner/protocol"},
	"worker/runner/docker":   {"job", "worker/runner/proc", "worker/runner/protocol", "worker/runner/spawn"},
	"worker/supervisor":      {"internal/timerslack", "job", "gpu", "worker", "worker/cgroup", "worker/leaseclock", "worker/output", "worker/runner/guard", "worker/runner/proc", "worker/runner/protocol", "worker/runner/scratch"},
	"worker/meter":           {"job", "gpu", "usage", "worker/cgroup"},
	"worker/files":           {"job", "blob", "worker", "worker/runner/protocol", "worker/runner/scratch", "worker/runner/spawn", "worker/userfile"},
	"p2p":                    {"job", "gpu", "lease", "p2p/wirepb"},
	"p2p/wirepb":             {},
	"p2p/session":            {"job", "gpu", "lease", "share", "p2p", "p2p/wirepb", "timers", "usage"},
	"p2p/gossip":             {"job", "p2p", "p2p/wirepb"},
	"p2p/peerhttp":           {"job", "p2p"},
	"p2p/p2ptest":            {"job", "p2p", "p2p/wirepb"},
	"dht":                    {"job", "gpu", "lease"},
	"store":                  {"internal/inplace", "job", "lease", "store/storepb"},
	"store/storepb":          {"job"},
	"store/storetest":        {"job", "store/storepb"},
	"journal":                {"job", "store", "store/storepb", "journal/journalpb"},
	"journal/journalpb":      {"store/storepb"},
	"blob":                   {},
	"api":                    {"internal/keptsocket", "job", "job/jobfile", "gpu", "lease", "share", "blob", "audit", "api/guide", "api/ui", "api/web", "machine/account", "picture", "usage", "waits"},
	"docs":                   {},
	"api/guide":              {"docs"},
	"api/ui":                 {},
	"api/web":                {},
	"api/door":               {"api", "api/guide", "api/ui", "api/web"},
	"picture":                {"job"},
	"metrics":                {"job", "gpu"},
	"metrics/jobfiles":       {"job", "gpu"},
	"node": {
		"job", "gpu", "gpu/nvml", "gpu/simgpu", "machine", "machine/account", "lease", "share", "scheduler", "worker", "worker/runner/docker", "worker/supervisor", "worker/output", "worker/runner", "worker/runner/protocol", "worker/runner/spawn", "worker/cgroup",
		"p2p", "p2p/session", "p2p/gossip", "p2p/peerhttp", "dht", "store", "journal", "api", "blob", "worker/files", "worker/meter", "audit", "metrics", "metrics/jobfiles", "usage", "waits",
	},
	"sim":                   {"job", "jobs", "gpu", "lease", "share", "scheduler", "worker", "timers", "sim/load", "sim/record"},
	"sim/load":              {"job", "job/jobfile", "gpu", "lease"},
	"sim/record":            {},
	"sim/fabric":            {"job/yamldoc"},
	"sim/gossip":            {"sim/fabric"},
	"sim/placing":           {"job", "gpu", "lease", "scheduler/fleet", "scheduler/place", "scheduler/policy", "sim/load"},
	"sim/central":           {"job", "gpu", "lease", "scheduler/fleet", "scheduler/place", "scheduler/policy", "sim/load", "sim/record"},
	"sim/report":            {"job", "gpu", "sim/load", "sim/record", "sim/report/units"},
	"sim/report/page":       {"sim/report", "sim/report/units"},
	"sim/report/reporttest": {"job", "gpu", "sim/load", "sim/record", "sim/report"},
	"sim/report/units":      {},
	"sim/scenario":          {"share", "lease", "scheduler/policy", "sim", "sim/central", "sim/fabric", "sim/gossip", "sim/load", "sim/record", "sim/report"},
	"cmd/study":             {"gpu", "sim/central", "sim/fabric", "sim/load", "sim/placing", "sim/record", "sim/report", "sim/report/units", "sim/scenario"},
	"cmd/muster-runner":     {"internal/profile", "worker/runner", "worker/runner/spawn"},
	"cmd/muster/manual":     {"job", "job/jobfile"},
	"cmd/muster/table":      {},
	"cmd/muster/top":        {"api", "cmd/muster/table", "gpu", "job"},
	"cmd/muster":            {"cmd/muster/manual", "cmd/muster/table", "cmd/muster/top", "internal/profile", "internal/timerslack", "job", "job/jobfile", "job/yamldoc", "lease", "gpu", "gpu/nvml", "internal/logcount", "machine", "worker/runner", "worker/runner/docker", "worker/runner/spawn", "api", "api/door", "api/ui", "audit", "node", "blob", "scheduler/policy", "sim", "sim/central", "sim/fabric", "sim/load", "sim/placing", "sim/record", "sim/report", "sim/report/page", "sim/scenario"},
}

// outside lists the directories without layers. They run the built program.
var outside = []string{"e2e", "bench"}

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
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", dir, file), nil, parser.ImportsOnly|parser.ParseComments)
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
				if foreign := strings.Contains(path, "libp2p/"); foreign && slices.Contains([]string{"scheduler", "worker", "store", "api", "sim"}, dir) {
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
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools") {
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
