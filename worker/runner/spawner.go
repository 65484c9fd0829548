package runner

// The spawner and what it is made of.

import (
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// spawnConfig says for whom and within which limits processes are started.
type spawnConfig struct {
	Dir        protocol.Dir
	Generation int           // of the runner
	Answer     time.Duration // how long the mounts of a container may take to answer
	AllowRoot  bool
	NoGroups   bool // as in the runner's Config
	NoUnified  bool
}

// starter makes processes. It has no state that changes but what its parts keep
// for themselves.
type starter struct {
	dir       protocol.Dir
	hosts     string // directory of the hostfiles
	answer    time.Duration
	allowRoot bool
	group     *cgroup.Tree // nil: none can be had
	null      *os.File
	pump      *pump
	notes     *os.File // without groups: the main processes, a line each
	nodes     nodes
	processes processBound
	score     oomScore
	log       *slog.Logger
}

// started is what came of one start.
type started struct {
	pid   int
	ticks uint64
	began time.Time
	who   identity
	where string
	from  time.Duration // CLOCK_BOOTTIME before the fork
	known bool          // the attempt had a directory: nothing was started now
	out   *outlet
	err   error
}

// newGroup makes the control groups above those of the tasks; runners of other
// directories and generations have others.
func newGroup(cfg spawnConfig) (*cgroup.Tree, error) {
	abs, err := filepath.Abs(string(cfg.Dir))
	if err != nil {
		return nil, fmt.Errorf("runner: control group: %w", err)
	}
	name := fmt.Sprintf("muster-%08x-%d", hash(abs), cfg.Generation)
	t, err := cgroup.New(name, cgroup.Options{NoUnified: cfg.NoUnified}, bornIn)
	if err != nil {
		return nil, fmt.Errorf("runner: %w", err)
	}
	return t, nil
}

// Isolation says for people what would hold the tasks of a runner that is
// started as this process was, and why it is no more than that.
func Isolation(noGroups bool) (string, error) {
	if noGroups {
		return processGroup, nil
	}
	t, err := cgroup.New(fmt.Sprintf("muster-try-%d", os.Getpid()), cgroup.Options{}, bornIn)
	if err != nil {
		return processGroup, fmt.Errorf("runner: %w", err)
	}
	defer t.Remove()
	return t.String(), nil
}

// processGroup is the isolation without control groups.
const processGroup = "process group"

func newStarter(cfg spawnConfig, log *slog.Logger) (*starter, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("runner: %w", err)
	}
	s := &starter{dir: cfg.Dir, hosts: cfg.Dir.Hosts(cfg.Generation), answer: cfg.Answer, allowRoot: cfg.AllowRoot, null: null, nodes: nodes{dir: "/dev"}, log: log}
	if s.pump, err = newPump(log); err != nil {
		return nil, err
	}
	if !cfg.NoGroups {
		if s.group, err = newGroup(cfg); err != nil {
			log.Info("no control groups for tasks, processes are found by their parents", "error", err)
		}
	}
	if s.group == nil {
		s.notes, err = os.OpenFile(s.dir.MainProcesses(cfg.Generation), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fmt.Errorf("runner: open notes: %w", err)
		}
	}
	s.score.up()
	return s, nil
}

func (s *starter) close() {
	_ = s.null.Close() // was only read
	s.score.close()
	if s.notes != nil {
		_ = s.notes.Close() // was never synced: no process outlives a boot
	}
	if s.group != nil {
		s.group.Remove()
	}
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, s) // never fails
	return h.Sum32()
}
