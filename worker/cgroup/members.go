package cgroup

// The processes of a group: listing, signalling and killing them.

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// removeTries and removePause bound the wait for the kernel to finish the removal of subgroups. Until then the
	// parent is busy.
	removeTries = 100
	removePause = 20 * time.Millisecond
	// frozenTries and frozenPause bound the wait for a group to be frozen. It may never be, if a process hangs in the
	// kernel.
	frozenTries = 20
	frozenPause = time.Millisecond
)

// Kill kills all processes in and below a group, including those that are being forked.
func Kill(path string) {
	if err := write(filepath.Join(path, "cgroup.kill"), "1"); err == nil {
		return
	}
	signalFrozen(legacyFreezeOf(path), path, unix.SIGKILL) // they die once they run
}

// Populated reports whether a process is in or below a group.
func Populated(path string) bool {
	if n := count(filepath.Join(path, "cgroup.events"), "populated"); n >= 0 {
		return n > 0
	}
	return len(members(path)) > 0
}

// signalFrozen signals each process of a group once. It freezes the group meanwhile, so that no process forks, and lists the
// processes until all are frozen and none is new. Otherwise the child of a process that dies of the signal may get none, and
// a program that a handler of the signal starts may get it.
func signalFrozen(z freeze, path string, sig unix.Signal) {
	if write(z.file, z.on) != nil {
		signalMembers(path, sig)
		return
	}
	done := map[int]bool{}
	for range frozenTries {
		frozen := z.isOn()
		if n := signalNew(path, sig, done); frozen && n == 0 {
			break
		}
		if !frozen {
			time.Sleep(frozenPause)
		}
	}
	_ = write(z.file, z.off) // fails only if the group is gone
}

// freeze is the kernel's file that freezes a group.
type freeze struct {
	file    string
	on, off string // what is written to it
	isOn    func() bool
}

// freezeOf returns the file of a group of version 2.
func freezeOf(path string) freeze {
	return freeze{filepath.Join(path, "cgroup.freeze"), "1", "0", func() bool { return count(filepath.Join(path, "cgroup.events"), "frozen") != 0 }}
}

// legacyFreezeOf returns the file of a group of version 1.
func legacyFreezeOf(path string) freeze {
	file := filepath.Join(path, "freezer.state")
	return freeze{file, "FROZEN", "THAWED", func() bool {
		b, err := readBounded(file)
		return err != nil || strings.TrimSpace(string(b)) == "FROZEN"
	}}
}

// signalMembers signals each process of a group.
func signalMembers(path string, sig unix.Signal) { signalNew(path, sig, map[int]bool{}) }

// signalNew signals the processes of a group that are not in done, adds them to done, and returns their number. It opens
// the processes and then lists them again, so that no process that reuses a pid is signalled.
func signalNew(path string, sig unix.Signal, done map[int]bool) (n int) {
	held := map[int]int{}
	for _, pid := range members(path) {
		if done[pid] {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	still := members(path)
	for pid, fd := range held {
		if slices.Contains(still, pid) {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0) // fails if it is gone
		}
		_ = unix.Close(fd) // nothing was written to it
		done[pid] = true
	}
	return len(held)
}

// Finder finds the groups of processes. It looks up once where each hierarchy is mounted.
type Finder struct {
	Proc   string // the directory of the kernel's files about processes; empty: /proc
	mounts map[string]string
}

// Of returns the directories of the groups that a process is in, one for each hierarchy that is mounted. The error says
// that the process is gone or cannot be seen.
func (f *Finder) Of(pid int) ([]string, error) {
	var all []string
	err := f.each(pid, func(_, dir string) { all = append(all, dir) })
	return all, err
}

// By returns the directories of the groups that a process is in, by controller; that of version 2 by "". Pid -1 is this
// process. The error is that of Of.
func (f *Finder) By(pid int) (map[string]string, error) {
	all := map[string]string{}
	err := f.each(pid, func(controllers, dir string) {
		for c := range strings.SplitSeq(controllers, ",") {
			all[c] = dir
		}
	})
	return all, err
}

// each calls found for each hierarchy that is mounted.
func (f *Finder) each(pid int, found func(controllers, dir string)) error {
	who := strconv.Itoa(pid)
	if pid == -1 {
		who = "self"
	}
	b, err := readBounded(filepath.Join(f.proc(), who, "cgroup"))
	if err != nil {
		return fmt.Errorf("cgroup: groups of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controller, _, _ := strings.Cut(parts[1], ",")
		if mount := f.mount(controller); mount != "" {
			found(parts[1], filepath.Join(mount, parts[2]))
		}
	}
	return nil
}

func (f *Finder) proc() string { return cmp.Or(f.Proc, "/proc") }

// mount returns where the hierarchy of a controller is mounted; empty: it is not.
func (f *Finder) mount(controller string) string {
	at, known := f.mounts[controller]
	if !known {
		at, _ = mountOf(f.proc(), controller) // without a mount there is no group to find
		if f.mounts == nil {
			f.mounts = map[string]string{}
		}
		f.mounts[controller] = at
	}
	return at
}

// Below reports whether one of the groups is the group dir or lies below it.
func Below(groups []string, dir string) bool {
	return slices.ContainsFunc(groups, func(g string) bool { return g == dir || strings.HasPrefix(g, dir+"/") })
}

// members lists the processes in and below a group, except this process, which has a thread in the group while it forks.
func members(path string) []int {
	var all []int
	self := os.Getpid()
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // a group that has just gone has no members
		}
		b, err := readBounded(filepath.Join(p, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		for word := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(word); err == nil && n > 0 && n != self {
				all = append(all, n)
			}
		}
		return nil
	})
	return all
}

// RemoveSoon removes a group that has no process and gets none. It waits for the kernel for at most removeTries times
// removePause.
func RemoveSoon(path string) {
	for range removeTries {
		removeAll(path)
		if _, err := os.Stat(path); err != nil {
			return
		}
		time.Sleep(removePause)
	}
}

// removeAll removes a group and its subgroups, as far as they are empty.
func removeAll(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeAll(filepath.Join(path, e.Name()))
		}
	}
	_ = unix.Rmdir(path) // fails if it has processes
}
