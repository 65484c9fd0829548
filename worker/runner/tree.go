package runner

// The processes of a task, however they have hidden themselves, held together
// by a control group where the host permits one.

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is the control group (v2) above those of the tasks. It is driven by
// hand: a task costs one mkdir, one open and one rmdir, while
// containerd/cgroups brings D-Bus, eBPF and a logger into a process that has
// to stay small.
type group struct{ dir string }

// probeName is a path that cannot exist, to see whether a process can be born
// in a control group.
const probeName = "/proc/self/muster-probe"

// newGroup makes the group of runner n below the runner's own, and tries
// everything on it that a task will need.
func newGroup(dir Dir, n int) (*group, error) {
	own, err := ownGroup()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(string(dir))
	if err != nil {
		return nil, fmt.Errorf("runner: control group: %w", err)
	}
	g := &group{dir: filepath.Join(own, fmt.Sprintf("muster-%08x-%d", hash(abs), n))}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("runner: control group: %w", err)
	}
	if err := g.probe(); err != nil {
		g.remove()
		return nil, err
	}
	// Where it can be had, each task's memory is watched, so that the kernel
	// tells which of them ran out of it.
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.subtree_control"), []byte("+memory"), 0) //nolint:gosec // a kernel file has no mode
	return g, nil
}

func (g *group) probe() error {
	probe := filepath.Join(g.dir, "probe")
	if err := os.Mkdir(probe, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("runner: control group: %w", err)
	}
	defer os.Remove(probe) //nolint:errcheck // an empty group that stays does no harm
	if _, err := os.Stat(filepath.Join(probe, "cgroup.kill")); err != nil {
		return fmt.Errorf("runner: control group cannot kill: %w", err)
	}
	fd, err := openDir(probe)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if err := bornIn(fd); !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("runner: no process can be born in control group %s: %w", probe, err)
	}
	return nil
}

func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("runner: open %s: %w", path, err)
	}
	return fd, nil
}

// place makes the group of an attempt and gives the descriptor with which its
// process is born there.
func (g *group) place(name string) (int, error) {
	path := filepath.Join(g.dir, name)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, fmt.Errorf("runner: control group of task: %w", err)
	}
	return openDir(path)
}

// empty removes the group of an attempt; false means that processes are left
// in it.
func (g *group) empty(name string) bool {
	path := filepath.Join(g.dir, name)
	err := unix.Rmdir(path)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true
	}
	if populated(path) {
		return false
	}
	removeGroups(path) // the task made groups of its own
	_, err = os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// signal reaches every process in the group of an attempt.
func (g *group) signal(name string, sig unix.Signal) {
	path := filepath.Join(g.dir, name)
	if sig == unix.SIGKILL {
		killGroup(path)
		return
	}
	for _, pid := range members(path) {
		if start := startTicks(pid); start != 0 {
			signalProcess(pid, start, sig)
		}
	}
}

// outOfMemory says that the kernel killed something in the group of an attempt
// for lack of memory.
func (g *group) outOfMemory(name string) bool {
	return countIn(filepath.Join(g.dir, name, "memory.events"), "oom_kill") > 0
}

func (g *group) remove() { removeSoon(g.dir) }

const (
	// removeTries and removePause bound the wait for the kernel to be done with
	// groups that were removed from a group, before which it calls that busy.
	removeTries = 100
	removePause = 20 * time.Millisecond
)

// removeSoon removes a group that no process is in or will be in.
func removeSoon(path string) {
	for range removeTries {
		removeGroups(path)
		if _, err := os.Stat(path); err != nil {
			return
		}
		time.Sleep(removePause)
	}
}

// killGroup ends all processes in and below a group at once, also those that
// are being born.
func killGroup(path string) {
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0) //nolint:gosec // a kernel file has no mode; a group that is gone has no processes
}

// populated says whether a process is in or below a group.
func populated(path string) bool {
	return countIn(filepath.Join(path, "cgroup.events"), "populated") > 0
}

// members lists the processes in and below a group.
func members(path string) []int {
	var all []int
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // a group that has just gone has no members
		}
		b, err := readBounded(filepath.Join(p, "cgroup.procs"), maxChildren)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		for word := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(word); err == nil && n > 0 {
				all = append(all, n)
			}
		}
		return nil
	})
	return all
}

// removeGroups removes a group and those below it, as far as they are empty.
func removeGroups(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(path, e.Name()))
		}
	}
	_ = unix.Rmdir(path) // one that has processes stays
}

// countIn reads one number of a kernel file of "name number" lines; -1 if it
// is not there.
func countIn(path, name string) int64 {
	b, err := readBounded(path, maxSmallFile)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// ownGroup is the directory of the version 2 control group that the runner is in.
func ownGroup() (string, error) {
	mount, err := groupMount("cgroup2")
	if err != nil {
		return "", err
	}
	path, err := groupPath("")
	if err != nil {
		return "", err
	}
	return filepath.Join(mount, path), nil
}

// groupPath is the runner's place in the hierarchy of a version 1 controller,
// or of version 2 for none.
func groupPath(controller string) (string, error) {
	b, err := readBounded("/proc/self/cgroup", maxSmallFile)
	if err != nil {
		return "", fmt.Errorf("runner: own control group: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && parts[1] == controller {
			return parts[2], nil
		}
	}
	return "", fmt.Errorf("runner: in no control group of %q", controller)
}

// groupMount is where a hierarchy is mounted: "cgroup2", or the name of a
// version 1 controller.
func groupMount(kind string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("runner: mounts: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		fields, what := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(what) < 3 {
			continue
		}
		v2 := what[0] == "cgroup2" && kind == "cgroup2"
		v1 := what[0] == "cgroup" && strings.Contains(","+what[2]+",", ","+kind+",")
		if v2 || v1 {
			return fields[4], nil
		}
	}
	return "", fmt.Errorf("runner: %s is not mounted", kind)
}

// oomKills counts the processes that the kernel killed for lack of memory in
// and below the runner's own control group; -1 where it does not say.
func oomKills() int64 {
	if own, err := ownGroup(); err == nil {
		if n := countIn(filepath.Join(own, "memory.events"), "oom_kill"); n >= 0 {
			return n
		}
	}
	mount, err := groupMount("memory")
	if err != nil {
		return -1
	}
	path, err := groupPath("memory")
	if err != nil {
		return -1
	}
	return countIn(filepath.Join(mount, path, "memory.oom_control"), "oom_kill")
}

// bootTime reads CLOCK_BOOTTIME: it goes on while the host sleeps.
func bootTime() time.Duration { return clock(unix.CLOCK_BOOTTIME) }

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(ts.Nano())
}
