package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var sink []byte

func TestMemoryIsGivenBackAfterWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var freed atomic.Int32
		done := make(chan struct{})
		go func() {
			rest(ctx, func() { freed.Add(1) })
			close(done)
		}()
		sink = make([]byte, 2*restBytes) // allocations at the start do not count as work
		time.Sleep(startsWithin)
		synctest.Wait()
		time.Sleep(restLook / 2) // from here on between two checks
		for i, c := range []struct {
			work bool
			want int32
		}{{false, 1}, {true, 1}, {true, 1}, {false, 2}, {false, 2}, {true, 2}, {false, 3}, {false, 3}} {
			if c.work {
				sink = make([]byte, 2*restBytes)
			}
			time.Sleep(restLook)
			synctest.Wait()
			if n := freed.Load(); n != c.want {
				t.Errorf("look %d: got memory given back %d times, want %d", i, n, c.want)
			}
		}
		stop()
		<-done
	})
}

func TestMemoryLimitGrowsWithTheLiveHeap(t *testing.T) {
	for live, want := range map[uint64]int64{
		0: lowestLimit, 8 << 20: lowestLimit, 16 << 20: 40 << 20, 32 << 20: 64 << 20, 1 << 30: 1536<<20 + besideHeap, math.MaxUint64: math.MaxInt64/4/2*3 + besideHeap,
	} {
		if got := limitFor(live); got != want {
			t.Errorf("%d live: got the limit %d, want %d", live, got, want)
		}
	}
}

// The limit follows the live heap up and down, and is removed when the daemon ends.
func TestMemoryLimitFollowsTheHeap(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64) // as without GOMEMLIMIT
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	ctx, stop := context.WithCancel(t.Context())
	limitHeap(ctx)
	until := func(what string, holds func(int64) bool) {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(20 * time.Second); ; <-tick.C {
			runtime.GC()
			if now := debug.SetMemoryLimit(-1); holds(now) {
				return
			} else if time.Now().After(end) {
				t.Fatalf("the limit is %d, want that it is %s", now, what)
			}
		}
	}
	sink = make([]byte, 256<<20)
	until("above the live heap", func(now int64) bool { return now > 256<<20 && now < math.MaxInt64 })
	sink = nil
	until("low again", func(now int64) bool { return now < 256<<20 })
	stop()
	until("gone", func(now int64) bool { return now == math.MaxInt64 })
}

// A limit that was set with GOMEMLIMIT stays, whatever the heap is.
func TestMemoryLimitOfTheUserStays(t *testing.T) {
	const set = 3 << 30
	before := debug.SetMemoryLimit(set)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitHeap(t.Context())
	for range 3 {
		runtime.GC()
		if now := debug.SetMemoryLimit(-1); now != set {
			t.Errorf("limit: got %d, want %d", now, int64(set))
		}
	}
}

// A part of a file is no longer in memory after its release, and reads as before.
func TestReleasedFileIsReadFromDiskAgain(t *testing.T) {
	page := os.Getpagesize()
	text := bytes.Repeat([]byte("muster "), 16*page)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	if !bytes.Equal(mapped, text) {
		t.Fatal("the file is not what was written")
	}
	if n := resident(t, path); n < len(text)/2 {
		t.Skipf("%d of %d bytes are in memory after they were read, too few for this test", n, len(text))
	}
	releaseFiles(func(p string) bool { return p == path+"r" }) // another file
	if n := resident(t, path); n < len(text)/2 {
		t.Errorf("got %d of %d bytes in memory after the release of another file, want at least half", n, len(text))
	}
	releaseFiles(func(p string) bool { return p == path })
	if n := resident(t, path); n != 0 {
		t.Errorf("got %d bytes in memory after the release, want 0", n)
	}
	if !bytes.Equal(mapped, text) {
		t.Error("the file reads differently after its release")
	}
}

// Data written to a private mapping stays, even if it can no longer be written to.
func TestReleaseFileKeepsWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	mapped[0] = 'm'
	if err := unix.Mprotect(mapped, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	releaseFiles(func(p string) bool { return p == path })
	if mapped[0] != 'm' {
		t.Error("a write to the mapping is lost")
	}
}

// The pages of the program itself are released, and it runs on.
func TestReleasedProgramRunsOn(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	before := resident(t, program)
	releaseMemory()
	if after := resident(t, program); after >= before {
		t.Errorf("got %d bytes of the program in memory, want fewer than the %d before", after, before)
	}
}

// resident returns how many bytes of a file this process has in memory.
func resident(t *testing.T, path string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, of, found := strings.Cut(string(maps), path)
	_, rss, more := strings.Cut(of, "Rss:")
	if !found || !more {
		t.Fatalf("%s is not mapped", path)
	}
	n, err := strconv.Atoi(strings.Fields(rss)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
