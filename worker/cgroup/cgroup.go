// Package cgroup holds the processes of each task together, bounds what they
// use, and ends them all, with control groups of version 2, of version 1, or of
// both where a host mounts both.
//
// A Tree stands below the group of the process that makes it and has one group
// for each task. Version 2 holds the processes where it can be had, as it kills
// a whole group at once; without it the freezer of version 1 does. Controllers
// are taken from whichever version has them.
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

// Limits bound one task; zero is no bound.
type Limits struct {
	CPUs   int   // its weight beside other tasks; 0 weighs a tenth of one
	Quota  bool  // it gets no more than CPUs even if others are idle
	Memory int64 // bytes, without swap
	PIDs   int   // processes and threads
	Deny   []Device
}

// Device is a character device by its numbers.
type Device struct{ Major, Minor uint32 }

// Options say what not to use.
type Options struct {
	NoUnified bool // version 2, as on a host without it
}

// The controllers that bound a task.
const (
	CPU     = "cpu"
	Memory  = "memory"
	PIDs    = "pids"
	Devices = "devices"
	freezer = "freezer"
)

// Tree is the groups of all tasks. Its methods may be called at once for
// different tasks.
type Tree struct {
	unified string    // directory of version 2 above those of the tasks; empty: none
	legacy  []*legacy // hierarchies of version 1 that are used
	has     []string  // controllers that bound a task
	filters filters   // with version 2
}

// New makes a tree below the caller's own groups and tries all that a task
// will need of it. An error says why there can be none. Born is called to try
// whether a process can be started in the group of a descriptor.
func New(name string, o Options, start func(fd int) error) (*Tree, error) {
	t := &Tree{}
	err := errors.New("cgroup: version 2 is not wanted")
	if !o.NoUnified {
		err = t.openUnified(name, start)
	}
	t.openLegacy(name)
	if t.unified == "" && t.find(freezer) == nil {
		t.Remove()
		return nil, fmt.Errorf("%w, and the freezer of version 1 cannot be had", err)
	}
	return t, nil
}

// String is what the tree does for a task, for people: "cgroup v1 (cpu,
// memory, pids, devices)".
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

// Bounds says whether a controller bounds tasks: cpu, memory, pids or devices.
func (t *Tree) Bounds(controller string) bool { return slices.Contains(t.has, controller) }

// Dir is the directory above the groups that hold the tasks' processes.
func (t *Tree) Dir() string {
	if t.unified != "" {
		return t.unified
	}
	return t.find(freezer).dir
}

// Dirs are all directories that Remove removes, Dir first.
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

// Place is the groups of one task before its process is started.
type Place struct {
	FD   int // of the group of version 2 to be started in; -1: none
	tree *Tree
	name string
}

// Place makes the groups of a task.
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

// Join is the groups of a task that runs, for one more process in them.
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

// Fork calls fork with this thread in the task's groups of version 1, in which
// its child begins. The caller has locked its goroutine to the thread. It is
// moved by itself and alone, which costs no wait for the kernel's other threads.
func (p *Place) Fork(fork func() (int, error)) (pid int, err error) {
	var in []*legacy
	for _, h := range p.tree.legacy {
		moved, enterErr := h.enter(p.name)
		if err = enterErr; err != nil {
			break
		}
		if moved {
			in = append(in, h)
		}
	}
	if err == nil {
		pid, err = fork()
	}
	for _, h := range in {
		if back := h.leave(); back != nil && err == nil && pid == 0 {
			err = back
		}
	}
	return pid, err
}

// Close lets go of the descriptor; the groups stay.
func (p *Place) Close() {
	if p.FD >= 0 {
		_ = unix.Close(p.FD) // opened for its path only
		p.FD = -1
	}
}

// Empty removes the groups of a task; false means that processes are left in it.
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

// remove says whether a group is gone.
func remove(path string) bool {
	err := unix.Rmdir(path)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// Signal reaches every process of a task; KILL also those that are being forked.
func (t *Tree) Signal(name string, sig unix.Signal) {
	path := t.group(name)
	if sig == unix.SIGKILL {
		Kill(path)
		return
	}
	signalMembers(path, sig)
}

// Members are the processes of a task.
func (t *Tree) Members(name string) []int { return members(t.group(name)) }

// group is the directory that holds the processes of a task.
func (t *Tree) group(name string) string {
	if t.unified != "" {
		return filepath.Join(t.unified, name)
	}
	return t.find(freezer).group(name)
}

// OOMKills counts the processes of a task that the kernel killed for lack of
// memory; -1 if that is not counted.
func (t *Tree) OOMKills(name string) int64 {
	if h := t.find(Memory); h != nil {
		return h.oomKills(name)
	}
	if t.unified == "" {
		return -1
	}
	return count(filepath.Join(t.unified, name, "memory.events"), "oom_kill")
}

// Remove removes what the tree has made, as far as no process is in it. It may
// wait a moment for the kernel.
func (t *Tree) Remove() {
	for _, dir := range t.Dirs() {
		RemoveSoon(dir)
	}
	t.filters.close()
	for _, h := range t.legacy {
		h.close()
	}
}

// find is a hierarchy of version 1, nil if it is not used.
func (t *Tree) find(name string) *legacy {
	for _, h := range t.legacy {
		if h.name == name {
			return h
		}
	}
	return nil
}
