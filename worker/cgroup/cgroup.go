// Package cgroup holds the processes of each task in a control group, limits what they use and kills them all. It
// uses control groups of version 2, of version 1, or of both where a host mounts both.
//
// A Tree is below the group of the process that makes it, and has one group for each task. Version 2 holds the
// processes if it is available, because it can kill a whole group at once. Otherwise the freezer of version 1 holds
// them. Each controller is used in the version that has it.
//
// The library containerd/cgroups compiles the device filters. Its managers are not used: that of version 2 walks from the
// root for each task, and that of version 1 moves processes after they were born, in every hierarchy.
//
// See docs/adr, ADR 20.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are the limits of one task; zero is no limit.
type Limits struct {
	CPUs   int      // its weight against other tasks; 0 weighs as much as a tenth of 1
	Quota  bool     // it gets no more than CPUs, even if the host is idle
	Memory int64    // bytes, without swap
	PIDs   int      // processes and threads
	Closed []Closed // devices that it may not open
	// DeviceMemory bounds the memory of devices, where the kernel has the controller dmem.
	DeviceMemory []DeviceMemory
}

// Closed are the character devices of one major number, except those that a task may open.
type Closed struct {
	Major  uint32
	Minors uint32   // how many minor numbers the major number has; version 2 does not need it
	Open   []uint32 // minor numbers that may be opened, sorted
}

// Options turn features off.
type Options struct {
	NoUnified bool // do not use version 2, as on a host without it
}

// The controllers that limit tasks.
const (
	CPU     = "cpu"
	Memory  = "memory"
	PIDs    = "pids"
	Devices = "devices"
	DMem    = "dmem"
	freezer = "freezer"
)

// Tree is the groups of all tasks. Its methods may be called concurrently for different tasks.
type Tree struct {
	unified string    // directory of version 2, with a group for each task; empty: none
	root    string    // where version 2 is mounted
	legacy  []*legacy // the hierarchies of version 1 in use
	has     []string  // the controllers that limit tasks
	filters filters   // device filters of version 2
}

// New makes a tree below the caller's own groups and checks that everything a task needs works. The error says why
// there are no control groups. Start is called to check that a process can be started in the group of a descriptor.
func New(name string, o Options, start func(fd int) error) (*Tree, error) {
	t := &Tree{}
	err := errors.New("cgroup: version 2 is turned off")
	if !o.NoUnified {
		err = t.openUnified(name, start)
	}
	t.openLegacy(name)
	if t.unified == "" && t.find(freezer) == nil {
		t.Remove()
		return nil, fmt.Errorf("%w, and the freezer of version 1 is not available", err)
	}
	return t, nil
}

// String describes the tree for people, for example "cgroup v1 (cpu, memory, pids, devices)".
func (t *Tree) String() string {
	version := "v2"
	if len(t.legacy) > 0 {
		version = "v1"
	}
	what := strings.Join(t.has, ", ")
	if what == "" {
		what = "processes only"
	}
	return "cgroup " + version + " (" + what + ")"
}

// Bounds reports whether a controller limits tasks: CPU, Memory, PIDs, Devices or DMem.
func (t *Tree) Bounds(controller string) bool { return slices.Contains(t.has, controller) }

// Dir returns the parent directory of the groups that hold the tasks' processes.
func (t *Tree) Dir() string {
	if t.unified != "" {
		return t.unified
	}
	return t.find(freezer).dir
}

// Dirs returns all directories that Remove removes, Dir first.
func (t *Tree) Dirs() []string {
	all := []string{}
	if t.unified != "" {
		all = append(all, t.unified)
	}
	for _, l := range t.legacy {
		if l.name == freezer {
			all = append([]string{l.dir}, all...)
		} else {
			all = append(all, l.dir)
		}
	}
	return all
}

// Place is the groups of one task, for starting a process in them.
type Place struct {
	FD   int // of the group of version 2 to start in; -1: none
	tree *Tree
	name string
}

// Place makes the groups of a task. The caller closes the Place.
func (t *Tree) Place(name string, l Limits) (*Place, error) {
	p := &Place{FD: -1, tree: t, name: name}
	if t.unified != "" {
		if err := t.placeUnified(p, l); err != nil {
			return nil, err
		}
	}
	for _, h := range t.legacy {
		if err := h.place(name, l); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Join returns the groups of a running task, for starting another process in them. The caller closes the Place.
func (t *Tree) Join(name string) (*Place, error) {
	p := &Place{FD: -1, tree: t, name: name}
	if t.group(name) == "" {
		return nil, fmt.Errorf("cgroup: join %s: %w", name, os.ErrNotExist)
	}
	if t.unified != "" {
		var err error
		if p.FD, err = openDir(filepath.Join(t.unified, name)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Fork moves this thread into the task's groups of version 1, in which its child then starts, calls fork, and moves
// the thread back. The caller has locked its goroutine to the thread. Moving a single thread costs no wait for the
// kernel's other threads.
func (p *Place) Fork(fork func() (int, error)) (pid int, err error) {
	type entered struct {
		h *legacy
		s *slot
	}
	var in []entered
	for _, h := range p.tree.legacy {
		s, enterErr := h.enter(p.name)
		if err = enterErr; err != nil {
			break
		}
		if s != nil {
			in = append(in, entered{h, s})
		}
	}
	if err == nil {
		pid, err = fork()
	}
	for _, e := range in {
		if back := e.h.leave(e.s); back != nil && err == nil && pid == 0 {
			err = back
		}
	}
	return pid, err
}

// Close closes the descriptor. The groups stay.
func (p *Place) Close() {
	if p.FD >= 0 {
		_ = unix.Close(p.FD) // nothing was written to it
		p.FD = -1
	}
}

// Empty removes the groups of a task. It returns false if they still have processes.
func (t *Tree) Empty(name string) bool {
	if path := t.group(name); path != "" && !remove(path) {
		if Populated(path) {
			return false
		}
		removeAll(path) // the task made groups of its own
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	for _, h := range t.legacy {
		h.done(name)
	}
	return true
}

// remove removes a group and reports whether it is gone.
func remove(path string) bool {
	err := unix.Rmdir(path)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// Signal signals every process of a task. KILL, TERM and HUP also reach processes that are being forked.
func (t *Tree) Signal(name string, sig unix.Signal) {
	path := t.group(name)
	switch {
	case sig != unix.SIGKILL && sig != unix.SIGTERM && sig != unix.SIGHUP:
		signalMembers(path, sig)
	case t.unified == "":
		t.find(freezer).signalFrozen(name, sig)
	case sig == unix.SIGKILL:
		Kill(path)
	default:
		signalFrozen(freezeOf(path), path, sig)
	}
}

// Members lists the processes of a task.
func (t *Tree) Members(name string) []int { return members(t.group(name)) }

// Group returns the directory of the group that holds the processes of a task. No other task of this tree ever gets it.
func (t *Tree) Group(name string) string { return t.group(name) }

// group returns the directory of the group that holds the processes of a task.
func (t *Tree) group(name string) string {
	if t.unified != "" {
		return filepath.Join(t.unified, name)
	}
	return t.find(freezer).group(name)
}

// OOMKills returns how many processes of a task the OOM killer has killed, or -1 if that is not counted. The count is
// not exact if the kernel only says how often the limit was reached.
func (t *Tree) OOMKills(name string) (n int64, exact bool) {
	if h := t.find(Memory); h != nil {
		return h.oomKills(name)
	}
	if t.unified == "" {
		return -1, false
	}
	return count(filepath.Join(t.unified, name, "memory.events"), "oom_kill"), true
}

// FullMemory reports whether a task has reached its limit of memory.
func (t *Tree) FullMemory(name string) bool {
	if h := t.find(Memory); h != nil {
		return h.full(name)
	}
	return t.unified != "" && count(filepath.Join(t.unified, name, "memory.events"), "oom") > 0
}

// Remove removes the tree's groups that have no process. It may wait a moment for the kernel.
func (t *Tree) Remove() {
	for _, dir := range t.Dirs() {
		RemoveSoon(dir)
	}
	t.filters.close()
	for _, h := range t.legacy {
		h.close()
	}
}

// find returns a hierarchy of version 1, or nil if it is not used.
func (t *Tree) find(name string) *legacy {
	for _, h := range t.legacy {
		if h.name == name {
			return h
		}
	}
	return nil
}
