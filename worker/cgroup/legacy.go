package cgroup

// Version 1: one group for each task in the hierarchy of each controller.
//
// Support ends with the last release of 2027; then this file and the hybrid cases of its tests are deleted, and such a host
// counts as one without control groups. systemd dropped version 1 with 258, and each change of limits is written and tested
// twice. RHEL 8, which is supported until 2029, can boot with version 2.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	sharesOfCPU = 1024
	maxShares   = 262_144
	// period is the interval of a CPU quota, in µs: the kernel's default.
	period = 100_000
)

// legacy is the hierarchy of one controller. A group is reused for the next task with the same limits if it keeps no
// state of the last one, because making and removing a group costs some fifty times as much as moving a thread.
type legacy struct {
	name string
	dir  string   // parent of the tasks' groups
	home *os.File // the file "tasks" of this process's own group

	mu    sync.Mutex
	used  map[string]*slot   // guarded by mu; by task
	free  map[string][]*slot // guarded by mu; by limits
	spare int                // guarded by mu; number of slots in free
	made  int                // guarded by mu; number of groups ever made, for their names
}

// slot is a group that is used by one task at a time.
type slot struct {
	dir    string
	key    string // its limits; empty: it cannot be reused
	tasks  int    // descriptor of its file "tasks", to which thread ids are written
	guests int    // guarded by legacy.mu; threads of this process that are in the group while they fork
}

// maxSpare bounds the groups that are kept for reuse.
const maxSpare = 64

// openLegacy opens every controller that version 2 does not have.
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
			continue // String does not list it then
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
	if controller == CPU { // it may compete with all other processes of the host
		shares := min(runtime.NumCPU()*sharesOfCPU, maxShares)
		_ = write(filepath.Join(h.dir, "cpu.shares"), strconv.Itoa(shares)) // on an error all tasks together weigh as one CPU
	}
	if err := h.tryOut(); err != nil {
		h.close()
		RemoveSoon(h.dir)
		return nil, err
	}
	return h, nil
}

// tryOut moves a thread to the hierarchy's directory and back, to check that it works.
func (h *legacy) tryOut() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := write(filepath.Join(h.dir, "tasks"), "0"); err != nil {
		return err
	}
	return h.leave(nil)
}

func (h *legacy) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.home.Close() // holds no data
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

// place finds or makes a group for a task, if the task's limits need one in this hierarchy.
func (h *legacy) place(name string, l Limits) error {
	if !h.wanted(l) {
		return nil
	}
	key := h.keyOf(l)
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
	s, err := newSlot(filepath.Join(h.dir, strconv.Itoa(h.made)), h.boundsOf(l))
	if err != nil {
		return err
	}
	s.key = key
	h.used[name] = s
	return nil
}

// keyOf returns a key for the limits. A task may reuse the group of another task with the same key; empty: it may not.
// Groups of memory keep counters and pages of the last task, and a group of the freezer may be left frozen.
func (h *legacy) keyOf(l Limits) string {
	switch h.name {
	case CPU, PIDs:
		return fmt.Sprint(h.boundsOf(l))
	case Devices:
		return fmt.Sprint(l.Closed)
	}
	return ""
}

func newSlot(dir string, bounds []bound) (*slot, error) {
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("cgroup: of task: %w", &os.PathError{Op: "mkdir", Path: dir, Err: err})
	}
	var files lastFile
	defer files.close()
	for _, b := range bounds {
		err := files.write(filepath.Join(dir, b.file), b.value)
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

// done takes back the group of a task that has no process left.
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
	_ = unix.Close(s.tasks) // holds no data
	if !remove(s.dir) {
		removeAll(s.dir)
	}
}

// group returns the directory of a task's group, or "" if it has none in this hierarchy.
func (h *legacy) group(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.used[name]; s != nil {
		return s.dir
	}
	return ""
}

// wanted reports whether a task needs a group in this hierarchy. Each costs a few microseconds to make and more to
// remove.
func (h *legacy) wanted(l Limits) bool {
	switch h.name {
	case Memory:
		return l.Memory > 0
	case PIDs:
		return l.PIDs > 0
	case Devices:
		return len(l.Closed) > 0
	}
	return true
}

// swapFile limits memory and swap together. Some kernels do not have it.
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
		return []bound{{"pids.max", strconv.Itoa(max(2, l.PIDs))}} // the forking thread counts while it is in the group
	case Devices:
		var all []bound
		for _, d := range l.Closed {
			all = append(all, d.denials()...)
		}
		return all
	}
	return nil
}

// denials returns what is written to deny the devices. The kernel knows no exceptions from a rule for a whole major
// number. So if any minor number is open, each of the others gets a rule of its own.
func (d Closed) denials() []bound {
	const file = "devices.deny"
	if len(d.Open) == 0 {
		return []bound{{file, fmt.Sprintf("c %d:* rwm", d.Major)}}
	}
	var all []bound
	for minor := range d.Minors {
		if !slices.Contains(d.Open, minor) {
			all = append(all, bound{file, fmt.Sprintf("c %d:%d rwm", d.Major, minor)})
		}
	}
	return all
}

// enter moves the calling thread into the group of a task, and returns the group. It returns nil if the task has none in
// this hierarchy. It holds the lock so that the task's group is not closed meanwhile: the descriptor could then belong to
// another file.
func (h *legacy) enter(name string) (*slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.used[name]
	if s == nil {
		return nil, nil //nolint:nilnil // there is no group, and that is no error
	}
	if _, err := unix.Write(s.tasks, []byte("0")); err != nil {
		return nil, fmt.Errorf("cgroup: enter %s: %w", s.dir, err)
	}
	s.guests++
	return s, nil
}

// leave moves the calling thread back from a group; nil is the directory of the tree.
func (h *legacy) leave(s *slot) error {
	if _, err := h.home.WriteAt([]byte("0"), 0); err != nil {
		return fmt.Errorf("cgroup: leave group of task: %w", err)
	}
	if s != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.guests--
	}
	return nil
}

// signalFrozen signals each process of a task once, in the hierarchy of the freezer. It holds the lock so that no thread of
// this process enters a frozen group. If one is there already, the group is not frozen: Go's runtime may need the thread.
func (h *legacy) signalFrozen(name string, sig unix.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s := h.used[name]; {
	case s == nil:
	case s.guests > 0:
		signalMembers(s.dir, sig)
	default:
		signalFrozen(legacyFreezeOf(s.dir), s.dir, sig)
	}
}

// oomKills returns how many processes of a task the OOM killer has killed, or -1. Kernels before 4.13 only count how
// often the limit was reached, which may also have cost no more than cached files; exact is false then.
func (h *legacy) oomKills(name string) (n int64, exact bool) {
	path := h.group(name)
	if path == "" {
		return -1, false
	}
	if n := count(filepath.Join(path, "memory.oom_control"), "oom_kill"); n >= 0 {
		return n, true
	}
	n, err := number(filepath.Join(path, "memory.failcnt"))
	if err != nil {
		return -1, false
	}
	return n, false
}

// charged is how many bytes the kernel takes at a time from the limit of a group: 64 pages. If less than that is left, it
// takes single pages.
const charged = 256 << 10

// full reports whether a task has reached its limit of memory. The kernel's count of that, memory.failcnt, stays 0 on
// some versions.
func (h *legacy) full(name string) bool {
	path := h.group(name)
	if path == "" {
		return false
	}
	most, err1 := number(filepath.Join(path, "memory.max_usage_in_bytes"))
	limit, err2 := number(filepath.Join(path, "memory.limit_in_bytes"))
	return err1 == nil && err2 == nil && most > limit-charged
}

// number reads a file that holds one number.
func number(path string) (int64, error) {
	b, err := readBounded(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}
