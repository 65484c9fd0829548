package cgroup

// The processes of a group: listing, signalling and killing them.

import (
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
	state := filepath.Join(path, "freezer.state")
	if write(state, "FROZEN") != nil {
		return // the group is gone, and its processes with it
	}
	for range frozenTries {
		if b, err := readBounded(state); err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			break
		}
		time.Sleep(frozenPause)
	}
	signalMembers(path, unix.SIGKILL)
	_ = write(state, "THAWED") // they die once they run
}

// Populated reports whether a process is in or below a group.
func Populated(path string) bool {
	if n := count(filepath.Join(path, "cgroup.events"), "populated"); n >= 0 {
		return n > 0
	}
	return len(members(path)) > 0
}

// signalMembers signals each process of a group. It opens the processes and lists them again, so that no process that
// reuses a pid is signalled.
func signalMembers(path string, sig unix.Signal) {
	held := map[int]int{}
	for _, pid := range members(path) {
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
	}
}

// members lists the processes in and below a group, except the caller, one of whose threads is there while it forks.
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
