package cgroup

// Version 1: one directory for each task in the hierarchy of each controller.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	sharesOfCPU = 1024
	maxShares   = 262_144
	// period is the span over which a quota counts, in µs: the kernel's default.
	period = 100_000
)

// legacy is the hierarchy of one controller. A group that a task has left and
// that keeps nothing of it is used again by the next task with the same bounds:
// to make and remove one costs some fifty times what moving a thread does.
type legacy struct {
	name string
	dir  string   // above the groups of the tasks
	home *os.File // where a thread of this process goes back to

	mu    sync.Mutex
	used  map[string]*slot   // guarded by mu: by task
	free  map[string][]*slot // guarded by mu: by bounds
	spare int                // guarded by mu: slots in free
	made  int                // guarded by mu
}

// slot is one group for one task at a time.
type slot struct {
	dir   string
	key   string // its bounds, empty if it cannot be used again
	tasks int    // descriptor of the file that takes in threads
}

// maxSpare bounds the groups that wait for a task.
const maxSpare = 64

// openLegacy takes every controller that version 2 does not have.
func (t *Tree) openLegacy(name string) {
	want := []string{CPU, Memory, PIDs, Devices}
	if t.unified == "" {
		want = append(want, freezer)
	}
	for _, c := range want {
		if t.Bounds(c) {
			continue
		}
		h, err := openHierarchy(c, name)
		if err != nil {
			continue // String says that it is not there
		}
		t.legacy = append(t.legacy, h)
		if c != freezer {
			t.has = append(t.has, c)
		}
	}
	order := []string{CPU, Memory, PIDs, Devices}
	slices.SortFunc(t.has, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
}

func openHierarchy(controller, name string) (*legacy, error) {
	own, err := Own(controller)
	if err != nil {
		return nil, err
	}
	h := &legacy{name: controller, dir: filepath.Join(own, name), used: map[string]*slot{}, free: map[string][]*slot{}}
	if err := os.Mkdir(h.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if h.home, err = os.OpenFile(filepath.Join(own, "tasks"), os.O_WRONLY, 0); err != nil {
		RemoveSoon(h.dir)
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if controller == CPU { // beside it may be all other processes of the host
		shares := min(runtime.NumCPU()*sharesOfCPU, maxShares)
		_ = write(filepath.Join(h.dir, "cpu.shares"), strconv.Itoa(shares)) // else it has the weight of one
	}
	if err := h.tryOut(); err != nil {
		h.close()
		RemoveSoon(h.dir)
		return nil, err
	}
	return h, nil
}

// tryOut moves a thread there and back.
func (h *legacy) tryOut() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := write(filepath.Join(h.dir, "tasks"), "0"); err != nil {
		return err
	}
	return h.leave()
}

func (h *legacy) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.home.Close() // nothing is lost with it
	for _, all := range h.free {
		for _, s := range all {
			_ = unix.Close(s.tasks) // as above
		}
	}
	for _, s := range h.used {
		_ = unix.Close(s.tasks) // as above
	}
	clear(h.free)
	clear(h.used)
}

// place finds a task a group, if its limits ask for one here.
func (h *legacy) place(name string, l Limits) error {
	if !h.wanted(l) {
		return nil
	}
	bounds := h.boundsOf(l)
	key := ""
	if h.name == CPU || h.name == PIDs { // others keep counts, pages or rules
		key = fmt.Sprint(bounds)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.used[name] != nil {
		return nil
	}
	if all := h.free[key]; key != "" && len(all) > 0 {
		h.used[name], h.free[key] = all[len(all)-1], all[:len(all)-1]
		h.spare--
		return nil
	}
	h.made++
	s, err := newSlot(filepath.Join(h.dir, strconv.Itoa(h.made)), bounds)
	if err != nil {
		return err
	}
	s.key = key
	h.used[name] = s
	return nil
}

func newSlot(dir string, bounds []bound) (*slot, error) {
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("cgroup: of task: %w", &os.PathError{Op: "mkdir", Path: dir, Err: err})
	}
	for _, b := range bounds {
		err := write(filepath.Join(dir, b.file), b.value)
		if b.file == swapFile && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			_ = unix.Rmdir(dir) // it is empty
			return nil, err
		}
	}
	fd, err := unix.Open(filepath.Join(dir, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Rmdir(dir) // it is empty
		return nil, fmt.Errorf("cgroup: of task: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}
	return &slot{dir: dir, tasks: fd}, nil
}

// done takes a task's group back: nothing of the task is left.
func (h *legacy) done(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.used[name]
	if s == nil {
		return
	}
	delete(h.used, name)
	if s.key != "" && h.spare < maxSpare {
		h.free[s.key] = append(h.free[s.key], s)
		h.spare++
		return
	}
	_ = unix.Close(s.tasks) // nothing is lost with it
	if !remove(s.dir) {
		removeAll(s.dir)
	}
}

// group is the directory of a task's group, empty if it has none here.
func (h *legacy) group(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.used[name]; s != nil {
		return s.dir
	}
	return ""
}

// wanted says whether a task needs a group here: each costs a few
// microseconds to make and more to remove.
func (h *legacy) wanted(l Limits) bool {
	switch h.name {
	case Memory:
		return l.Memory > 0
	case PIDs:
		return l.PIDs > 0
	case Devices:
		return len(l.Deny) > 0
	}
	return true
}

// swapFile bounds memory and swap together; kernels may do without it.
const swapFile = "memory.memsw.limit_in_bytes"

func (h *legacy) boundsOf(l Limits) []bound {
	switch h.name {
	case CPU:
		all := []bound{{"cpu.shares", strconv.Itoa(min(max(l.CPUs*sharesOfCPU, sharesOfCPU/10), maxShares))}}
		if l.Quota && l.CPUs > 0 {
			all = append(all, bound{"cpu.cfs_period_us", strconv.Itoa(period)}, bound{"cpu.cfs_quota_us", strconv.Itoa(l.CPUs * period)})
		}
		return all
	case Memory:
		bytes := strconv.FormatInt(l.Memory, 10)
		return []bound{{"memory.limit_in_bytes", bytes}, {swapFile, bytes}}
	case PIDs:
		return []bound{{"pids.max", strconv.Itoa(max(2, l.PIDs))}} // the thread that forks counts for a moment
	case Devices:
		all := make([]bound, len(l.Deny))
		for i, d := range l.Deny {
			all[i] = bound{"devices.deny", fmt.Sprintf("c %d:%d rwm", d.Major, d.Minor)}
		}
		return all
	}
	return nil
}

// enter moves the calling thread into the group of a task, if it has one here.
// The lock is held so that the task, which may be running, does not end
// meanwhile: its descriptor would then be that of any other file.
func (h *legacy) enter(name string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.used[name]
	if s == nil {
		return false, nil
	}
	if _, err := unix.Write(s.tasks, []byte("0")); err != nil {
		return false, fmt.Errorf("cgroup: enter %s: %w", s.dir, err)
	}
	return true, nil
}

// leave moves the calling thread back.
func (h *legacy) leave() error {
	if _, err := h.home.WriteAt([]byte("0"), 0); err != nil {
		return fmt.Errorf("cgroup: leave group of task: %w", err)
	}
	return nil
}

// oomKills is OOMKills of the memory hierarchy. Kernels before 4.13 count only
// how often the limit was met.
func (h *legacy) oomKills(name string) int64 {
	path := h.group(name)
	if path == "" {
		return -1
	}
	if n := count(filepath.Join(path, "memory.oom_control"), "oom_kill"); n >= 0 {
		return n
	}
	b, err := readBounded(filepath.Join(path, "memory.failcnt"))
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(string(b[:max(0, len(b)-1)]), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
