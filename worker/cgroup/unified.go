package cgroup

// Version 2: one group for each task.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openUnified makes the directory of the tree. The package writes the kernel's files itself: a task costs one mkdir
// and one write for each limit.
func (t *Tree) openUnified(name string, start func(fd int) error) error {
	own, err := Own("")
	if err != nil {
		return err
	}
	dir, has := parentOf(own, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := probe(dir, start); err != nil {
		RemoveSoon(dir)
		return err
	}
	t.unified = dir
	t.root, _ = mountOf("/proc", "") // Own found it
	for _, c := range has {
		if write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c) == nil {
			t.has = append(t.has, c)
		}
	}
	if err := t.filters.probe(dir); err == nil {
		t.has = append(t.has, Devices)
	}
	return nil
}

// bounding are the controllers of version 2 that limit tasks.
var bounding = []string{CPU, Memory, PIDs, DMem}

// parentOf chooses the directory of the tree and returns the controllers that it has there. A group other than the
// root cannot both hold processes and enable controllers for its subgroups. So if the caller is alone in its own
// group, as in a systemd scope, it moves itself into a subgroup next to the tree. Otherwise the tree is placed next
// to the caller's group.
func parentOf(own, name string) (dir string, has []string) {
	dir = filepath.Join(own, name)
	available := words(filepath.Join(own, "cgroup.controllers"))
	if !slices.ContainsFunc(available, func(c string) bool { return slices.Contains(bounding, c) }) {
		return dir, nil // version 1 has them, or they are not available
	}
	if _, err := os.Stat(filepath.Join(own, "cgroup.type")); errors.Is(err, os.ErrNotExist) {
		return dir, enable(own) // the root
	}
	if stepAside(own, name) {
		return dir, enable(own)
	}
	if parent := filepath.Dir(own); !underSystemd() && unix.Access(parent, unix.W_OK) == nil {
		if has = enabled(parent); len(has) > 0 {
			return filepath.Join(parent, name), has
		}
	}
	return dir, nil
}

// stepAside moves the caller into a subgroup of its own group, and back if there are other processes in its own
// group. The kernel would let a group with processes enable cpu and pids, but then no process could be started in its
// subgroups.
func stepAside(own, name string) bool {
	leaf := filepath.Join(own, name+"-runner")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return false
	}
	if write(filepath.Join(leaf, "cgroup.procs"), "0") == nil {
		if others := words(filepath.Join(own, "cgroup.procs")); len(others) == 0 {
			return true
		}
		_ = write(filepath.Join(own, "cgroup.procs"), "0") // back
	}
	_ = unix.Rmdir(leaf) // not needed
	return false
}

// enable turns on the limiting controllers for the subgroups of a group, and returns those that are on.
func enable(dir string) []string {
	for _, c := range bounding {
		_ = write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c) // enabled says which are on
	}
	return enabled(dir)
}

// enabled returns the limiting controllers that are on for the subgroups of a group.
func enabled(dir string) []string {
	on := words(filepath.Join(dir, "cgroup.subtree_control"))
	return slices.DeleteFunc(slices.Clone(bounding), func(c string) bool { return !slices.Contains(on, c) })
}

func words(path string) []string {
	b, err := readBounded(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

func probe(dir string, start func(fd int) error) error {
	path := filepath.Join(dir, "probe")
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	defer os.Remove(path) //nolint:errcheck // an empty group that stays does no harm
	if _, err := os.Stat(filepath.Join(path, "cgroup.kill")); err != nil {
		return fmt.Errorf("cgroup: group cannot kill: %w", err)
	}
	fd, err := openDir(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if err := start(fd); err != nil {
		return fmt.Errorf("cgroup: no process can be started in %s: %w", path, err)
	}
	return nil
}

func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cgroup: open %s: %w", path, err)
	}
	return fd, nil
}

// weightOfCPU is the cpu.weight of one CPU. With it a task of a hundred CPUs is well below the maximum of 10,000.
const weightOfCPU = 39

func (t *Tree) placeUnified(p *Place, l Limits) error {
	path := filepath.Join(t.unified, p.name)
	if err := unix.Mkdir(path, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cgroup: of task: %w", &os.PathError{Op: "mkdir", Path: path, Err: err})
	}
	var err error
	if p.FD, err = openDir(path); err != nil {
		return err
	}
	for _, b := range append(t.boundsOf(l), t.boundsOfDevices(l.DeviceMemory)...) {
		if err == nil {
			err = writeAt(p.FD, b.file, b.value)
		}
	}
	if err == nil && len(l.Closed) > 0 && t.Bounds(Devices) && t.find(Devices) == nil {
		err = t.filters.deny(p.FD, l.Closed)
	}
	if err != nil {
		p.Close()
	}
	return err
}

type bound struct{ file, value string }

// boundsOf returns what is written to the files of a task's new group, except what they contain already.
func (t *Tree) boundsOf(l Limits) []bound {
	var all []bound
	if t.inUnified(CPU) {
		if w := min(max(l.CPUs*weightOfCPU, weightOfCPU/10), 10_000); w != 100 {
			all = append(all, bound{"cpu.weight", strconv.Itoa(w)})
		}
		if l.Quota && l.CPUs > 0 {
			all = append(all, bound{"cpu.max", fmt.Sprintf("%d %d", l.CPUs*period, period)})
		}
	}
	if l.Memory > 0 && t.inUnified(Memory) {
		all = append(all, bound{"memory.max", strconv.FormatInt(l.Memory, 10)}, bound{"memory.oom.group", "1"})
		if _, err := os.Stat(filepath.Join(t.unified, "memory.swap.max")); err == nil {
			all = append(all, bound{"memory.swap.max", "0"})
		}
	}
	if l.PIDs > 0 && t.inUnified(PIDs) {
		all = append(all, bound{"pids.max", strconv.Itoa(l.PIDs)})
	}
	return all
}

// inUnified says whether version 2 has a controller here.
func (t *Tree) inUnified(controller string) bool {
	return t.Bounds(controller) && t.find(controller) == nil
}
