// Package spawn starts the processes of tasks: it makes their directories, opens their files and forks.
//
// A Spawner takes Orders. It looks up the program, the working directory and the output files with the rights of the
// task's user. Any of these may lie on a file server that does not answer, and a thread that is blocked there cannot
// be interrupted. So the caller withdraws an order that hangs, and has another goroutine run the next orders.
//
// What happens to a process after its start is the business of package runner.
package spawn

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/userfile"
)

// Config says where processes are started and within which limits.
type Config struct {
	Dir        protocol.Dir
	Generation int           // of the runner
	Answer     time.Duration // how long the mounts of a container may take to answer
	AllowRoot  bool
	NoGroups   bool // as in runner.Config
	NoUnified  bool // as in runner.Config
	NoSpaces   bool // as in runner.Config
	SharedTmp  bool // as in runner.Config
}

// Spawner starts processes. Its methods are safe for concurrent use.
type Spawner struct {
	dir       protocol.Dir
	hosts     string // directory of the hostfiles
	answer    time.Duration
	allowRoot bool
	Group     *cgroup.Tree    // nil: no control groups
	Spaces    *pidspace.Maker // nil: no namespaces
	Tmps      *TmpDirs        // nil: tasks have the /tmp and the /dev/shm of the host
	WhyShared string          // for people, if Tmps is nil
	null      *os.File
	Pump      *pump.Pump
	Notes     *os.File // the file protocol.Dir.MainProcesses; nil with control groups
	spares    *spares
	looks     looks
	ticks     tickReader
	processes processBound
	score     oomScore
	log       *slog.Logger
}

// Result is the result of one start.
type Result struct {
	PID   int           // 0: no process was started
	Ticks uint64        // its start in ticks since boot; only without control groups
	Began time.Time     // its start on the wall clock, for people
	Who   Account       // the user that it runs as
	Where string        // the working directory that it started in
	From  time.Duration // CLOCK_BOOTTIME before the fork
	Known bool          // the attempt already had a directory: an earlier runner has had it
	Out   *pump.Outlet
	Space *pidspace.Space // nil: it is in the namespaces of the host
	Tmp   *TmpDir         // nil: it has the /tmp of the host
	In    *os.File        // where its input is written; nil: it gets none
	Err   error           // why there is no process; nil if the order was withdrawn
}

// newGroup makes the control groups above those of the tasks. Each directory and generation has its own.
func newGroup(cfg Config) (*cgroup.Tree, error) {
	abs, err := filepath.Abs(string(cfg.Dir))
	if err != nil {
		return nil, fmt.Errorf("runner: control group: %w", err)
	}
	name := fmt.Sprintf("muster-%08x-%d", hash(abs), cfg.Generation)
	t, err := cgroup.New(name, cgroup.Options{NoUnified: cfg.NoUnified}, startIn)
	if err != nil {
		return nil, fmt.Errorf("runner: %w", err)
	}
	return t, nil
}

// Isolation says for people how a runner that is started like this process would isolate its tasks. The error says
// why there are no control groups, if there are none.
func Isolation(noGroups bool) (string, error) {
	if noGroups {
		return ProcessGroup, nil
	}
	t, err := cgroup.New(fmt.Sprintf("muster-try-%d", os.Getpid()), cgroup.Options{}, startIn)
	if err != nil {
		return ProcessGroup, fmt.Errorf("runner: %w", err)
	}
	defer t.Remove()
	return t.String(), nil
}

// CanEndAll reports whether a runner that is started like this process could end all processes of a task for certain, those
// that are being forked included: with their PID namespace or their control group.
func CanEndAll(noGroups bool) bool {
	if os.Geteuid() == 0 {
		err := onThread(func() error {
			m, err := pidspace.New()
			if err == nil {
				m.Close()
			}
			return err
		})
		if err == nil {
			return true
		}
	}
	how, _ := Isolation(noGroups) // the error says why there are no control groups
	return how != ProcessGroup
}

const (
	// ProcessGroup is the name of the isolation without control groups.
	ProcessGroup = "process group"
	// PrivateTmp ends the name of the isolation if tasks have a /tmp and a /dev/shm of their own.
	PrivateTmp = ", private /tmp"
)

// New returns a spawner. Errors come from the file system; a host that permits no control groups is no error.
func New(cfg Config, log *slog.Logger) (*Spawner, error) {
	if os.Geteuid() == 0 {
		if err := userfile.CheckKernel(); err != nil {
			return nil, fmt.Errorf("runner: %w", err)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("runner: %w", err)
	}
	s := &Spawner{dir: cfg.Dir, hosts: cfg.Dir.Hosts(cfg.Generation), answer: cfg.Answer, allowRoot: cfg.AllowRoot, null: null, log: log}
	if s.Pump, err = pump.New(log); err != nil {
		return nil, err
	}
	if s.spares, err = newSpares(protocol.Spares(cfg.Dir, cfg.Generation)); err != nil {
		return nil, err
	}
	if !cfg.NoGroups {
		if s.Group, err = newGroup(cfg); err != nil {
			log.Info("no control groups for tasks, processes are found by their parents", "error", err)
		}
	}
	if s.Group == nil {
		s.Notes, err = os.OpenFile(s.dir.MainProcesses(cfg.Generation), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fmt.Errorf("runner: open notes: %w", err)
		}
	}
	s.Spaces, s.Tmps, err = newSpaces(cfg, log)
	if err != nil {
		s.WhyShared = err.Error()
	}
	s.score.lower()
	return s, nil
}

// newSpaces returns what gives tasks namespaces and directories of their own, as far as this host permits. The error says
// why they have no directories.
func newSpaces(cfg Config, log *slog.Logger) (spaces *pidspace.Maker, tmps *TmpDirs, err error) {
	if cfg.NoSpaces {
		return nil, nil, errors.New("tasks have no mounts of their own")
	}
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("only a daemon of root gives them their own")
	}
	err = onThread(func() (err error) { spaces, err = pidspace.New(); return err })
	if err != nil {
		log.Info("no PID namespaces for tasks: only their main processes end with this runner", "error", err)
		return nil, nil, fmt.Errorf("tasks have no mounts of their own: %w", err)
	}
	if cfg.SharedTmp {
		return spaces, nil, errors.New("by the setting private-tmp")
	}
	if tmps, err = newTmpDirs(cfg.Dir, cfg.Generation, spaces, log); err != nil {
		log.Info("tasks share /tmp and /dev/shm of the host", "error", err)
	}
	return spaces, tmps, err
}

// onThread calls f on a thread that has a working directory of its own.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Close removes the control groups and closes what New has opened.
func (s *Spawner) Close() {
	_ = s.null.Close() // was only read
	s.score.close()
	if s.Notes != nil {
		_ = s.Notes.Close() // needs no sync: no process survives a reboot
	}
	if s.Spaces != nil {
		s.Spaces.Close()
	}
	if s.Tmps != nil {
		s.Tmps.close()
	}
	if s.Group != nil {
		s.Group.Remove()
	}
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, s) // never fails
	return h.Sum32()
}
