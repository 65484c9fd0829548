package main

// Memory use of the daemon: it keeps free memory while there is work, within a bound that follows the live heap, and
// returns it to the system when there is none, because GPU jobs need it.

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// gcPercent accepts a few MB more of a small heap, so that the garbage collector runs half as often.
	gcPercent = 200
	// startsWithin is how long the start of a daemon takes; what it allocates later counts as work.
	startsWithin = 5 * time.Second
	// restLook is how often the daemon checks whether it is idle.
	restLook = 30 * time.Second
	// restBytes bounds the bytes that an idle daemon allocates between two checks: some dozens of times what gossip
	// and the DHT need, and as much as a hundred tasks need.
	restBytes = 8 << 20
	// lowestLimit is the limit of the Go runtime's memory while the live heap is small: twice what a daemon needs that
	// runs an array of 10,000 tasks. With gcPercent alone, a few large answers at once make the heap three times as
	// large as the answers, and it stays so until the daemon rests.
	lowestLimit = 28 << 20
	// besideHeap is what the runtime needs beside the heap: stacks, its tables, and spans that are not full.
	besideHeap = 16 << 20
)

// limitFor returns the soft limit of the runtime's memory for a live heap of this size in bytes. A large live heap gets
// half as much again, so that the collector does not run all the time.
func limitFor(live uint64) int64 {
	return max(lowestLimit, besideHeap+int64(min(live, math.MaxInt64/4)/2*3)) //nolint:gosec // it is bounded
}

// limitHeap adjusts the memory limit after each garbage collection, until ctx ends. If GOMEMLIMIT is set, that stays.
func limitHeap(ctx context.Context) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	debug.SetMemoryLimit(lowestLimit)
	adjustAfterCollection(ctx)
}

// adjustAfterCollection allocates an unused object, adjusts the limit when that is collected, and then does the same
// again.
func adjustAfterCollection(ctx context.Context) {
	unused := &struct{ self *byte }{} // with a pointer, so that it is not allocated together with others
	runtime.AddCleanup(unused, func(ctx context.Context) {
		if ctx.Err() != nil {
			debug.SetMemoryLimit(math.MaxInt64)
			return
		}
		debug.SetMemoryLimit(limitFor(sample("/gc/heap/live:bytes")))
		adjustAfterCollection(ctx)
	}, ctx)
}

// rest frees unused memory once after the start and after each period of work, until ctx ends. The runtime itself would
// keep it.
func rest(ctx context.Context, free func()) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(startsWithin):
	}
	look := time.NewTicker(restLook)
	defer look.Stop()
	before, worked := allocated(), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := allocated()
		busy := now-before > restBytes
		if worked && !busy {
			free()
			now = allocated()
		}
		before, worked = now, busy
	}
}

// allocated returns the number of bytes that this process has ever allocated on its heap.
func allocated() uint64 { return sample("/gc/heap/allocs:bytes") }

// sample returns a figure of the runtime.
func sample(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// releaseFiles gives back the pages of mapped files that this process only reads, such as pages of its own program that
// it needed only at its start. If it needs pages again, they come back from the page cache, many with one fault.
func releaseFiles(which func(path string) bool) {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // then they stay
	}
	var from, to uint64 // the last mapping of such a file that cannot be written to
	for line := range strings.Lines(string(maps)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		start, end, isMapping := strings.Cut(key, "-")
		switch {
		case isMapping:
			from, to = 0, 0
			if _, path, ok := strings.Cut(value, " /"); ok && value[1] != 'w' && which("/"+path) {
				from, _ = strconv.ParseUint(start, 16, 64)
				to, _ = strconv.ParseUint(end, 16, 64)
			}
		case key == "Anonymous:" && strings.TrimSpace(value) == "0 kB": // else something was written before
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED) // else they stay
		}
	}
}

// releaseMemory gives back the memory that this process does not need at present: free parts of its heap, and pages of the
// program and its libraries.
func releaseMemory() {
	debug.FreeOSMemory()
	program, _ := os.Readlink("/proc/self/exe")
	releaseFiles(func(path string) bool { return path == program || strings.Contains(path, ".so") })
}
