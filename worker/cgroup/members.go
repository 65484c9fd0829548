package cgroup

// The processes of a group, and how they are signalled and ended.

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
	// removeTries and removePause bound the wait for the kernel to be done with
	// groups that were removed from a group, before which it calls that busy.
	removeTries = 100
	removePause = 20 * time.Millisecond
	// frozenTries and frozenPause bound the wait for a group to be frozen: a
	// process that hangs in the kernel may never be.
	frozenTries = 20
	frozenPause = time.Millisecond
)

// Kill ends all processes in and below a group, also those that are being forked.
func Kill(path string) {
	if err := write(filepath.Join(path, "cgroup.kill"), "1"); err == nil {
		return
	}
	state := filepath.Join(path, "freezer.state")
	if write(state, "FROZEN") != nil {
		return // it is gone, and its processes with it
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

// Populated says whether a process is in or below a group.
func Populated(path string) bool {
	if n := count(filepath.Join(path, "cgroup.events"), "populated"); n >= 0 {
		return n > 0
	}
	return len(members(path)) > 0
}

// signalMembers signals each process that still is in the group once its
// number is held.
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
			_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it is gone
		}
		_ = unix.Close(fd) // nothing was written to it
	}
}

// members lists the processes in and below a group. The caller itself is never
// one: a thread of it is there while it forks.
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

// RemoveSoon removes a group that no process is in or will be in.
func RemoveSoon(path string) {
	for range removeTries {
		removeAll(path)
		if _, err := os.Stat(path); err != nil {
			return
		}
		time.Sleep(removePause)
	}
}

// removeAll removes a group and those below it, as far as they are empty.
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
	_ = unix.Rmdir(path) // one that has processes stays
}
