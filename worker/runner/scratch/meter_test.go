package scratch

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// holds makes the directory of a task that holds so many MiB, and returns what is measured.
func holds(t *testing.T, parent, user string, n uint64, mib int) Bounded {
	t.Helper()
	a := job.Attempt{Job: job.NewID(1, n), N: 1}
	dir := filepath.Join(parent, a.String())
	if err := os.MkdirAll(filepath.Join(dir, "scratch"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "scratch", "x"), make([]byte, mib<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return Bounded{Attempt: a, User: user, Path: filepath.Join(dir, "scratch"), Log: dir}
}

// TestLargestTaskOfAUserOverTheLimitEnds checks that the largest task of a user who holds too much has to end, and no
// other one while it ends.
func TestLargestTaskOfAUserOverTheLimitEnds(t *testing.T) {
	dir := t.TempDir()
	all := []Bounded{holds(t, dir, "amy", 1, 3), holds(t, dir, "amy", 2, 5), holds(t, dir, "ben", 3, 6)}
	for i := range all {
		all[i].UserBound = 7 << 20
	}
	var m Meter
	now := time.Now()
	over, _ := m.Measure(dir, all, now)
	if len(over) != 1 || over[0].Attempt != all[1].Attempt || over[0].Full || !strings.Contains(over[0].Why, "user amy hold 8MiB of 7MiB") {
		t.Fatalf("got %+v, want the second task of amy, who holds 8MiB of 7MiB", over)
	}
	all[1].Ending = true
	if over, _ = m.Measure(dir, all, now.Add(time.Hour)); len(over) != 0 {
		t.Errorf("while the task ends: %+v, want none", over)
	}
	all[2].Bound = 1 << 20
	if over, _ = m.Measure(dir, all, now.Add(2*time.Hour)); len(over) != 1 || over[0].Attempt != all[2].Attempt {
		t.Errorf("task over its own quota: %+v, want 1 of them and [0].Attempt %v", over, all[2].Attempt)
	}
}

// TestOutputCountsForTheUserOnly checks that the log of a task counts for its user, and not for the quota of the task.
func TestOutputCountsForTheUserOnly(t *testing.T) {
	dir := t.TempDir()
	b := holds(t, dir, "amy", 1, 1)
	b.Bound, b.UserBound = 2<<20, 3<<20
	if err := os.WriteFile(filepath.Join(b.Log, "out"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var m Meter
	if over, _ := m.Measure(dir, []Bounded{b}, time.Now()); len(over) != 1 || !strings.Contains(over[0].Why, "hold 5MiB of 3MiB") {
		t.Errorf(`%+v, want 1 of them and [0].Why "hold 5MiB of 3MiB" in it`, over)
	}
}

// TestTmpCountsForTheTaskAndItsUser checks that the /tmp of a task counts for the quota of the task and for its user,
// and that no other task ends for a full disk while it is removed.
func TestTmpCountsForTheTaskAndItsUser(t *testing.T) {
	dir := t.TempDir()
	b, tmp := holds(t, dir, "amy", 1, 1), holds(t, dir, "", 2, 4)
	b.Bound, b.UserBound, b.Tmp = 8<<20, 3<<20, tmp.Path
	var m Meter
	if over, _ := m.Measure(dir, []Bounded{b}, time.Now()); len(over) != 1 || !strings.Contains(over[0].Why, "hold 5MiB of 3MiB") {
		t.Errorf(`%+v, want 1 of them and [0].Why "hold 5MiB of 3MiB" in it`, over)
	}
	b.Bound = 4 << 20
	if over, _ := new(Meter).Measure(dir, []Bounded{b}, time.Now()); len(over) != 1 || !strings.Contains(over[0].Why, "scratch quota of 4MiB exceeded: 5MiB used") {
		t.Errorf(`%+v, want 1 of them and [0].Why "scratch quota of 4MiB exceeded: 5MiB used" in it`, over)
	}
	m.end(&holding{most: &b}, time.Now(), "")
	if err := Remove(b.Path); err != nil {
		t.Fatal(err)
	}
	full := disk{avail: 1, floor: 2, files: 100, freeFiles: 100, total: 100}
	other := holds(t, dir, "amy", 3, 9)
	m.last[other.Attempt] = &measurement{used: 9 << 20}
	if over := m.overDisk([]Bounded{other}, time.Now(), full); over != nil {
		t.Errorf("while /tmp is removed: %+v, want none", over)
	}
	if err := os.Remove(filepath.Join(b.Tmp, "x")); err != nil { // another task may get the directory
		t.Fatal(err)
	}
	if over := m.overDisk([]Bounded{other}, time.Now(), full); over == nil {
		t.Error("no task ends although all is removed")
	}
}

// TestFullDiskEndsATaskOfTheUserWhoHoldsMost fills a small disk. The user who holds most has to end a task at once.
// That includes what is kept of earlier tasks. No other user has to, and nobody who holds little.
func TestFullDiskEndsATaskOfTheUserWhoHoldsMost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Skipf("no mounts here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	all := []Bounded{holds(t, dir, "amy", 1, 30), holds(t, dir, "amy", 2, 20), holds(t, dir, "ben", 3, 36)}
	var m Meter
	now := time.Now()
	over, pause := m.Measure(dir, all, now)
	if len(over) != 1 || over[0].Attempt != all[0].Attempt || !over[0].Full {
		t.Fatalf("got %+v, want the first task, because the disk is full", over)
	}
	if pause != lookLeast {
		t.Errorf("it looks again after %s, want %v", pause, lookLeast)
	}
	if over, _ = m.Measure(dir, all, now.Add(clearMost-time.Second)); len(over) != 0 {
		t.Errorf("while the first task is removed: %+v, want none", over)
	}
	if err := Remove(all[0].Path); err != nil {
		t.Fatal(err)
	}
	if over, pause = m.Measure(dir, all[1:], now.Add(clearMost)); len(over) != 0 || pause != lookLeast {
		t.Errorf("with free space: %+v, again after %s, want none and %v", over, pause, lookLeast)
	}
	// Amy keeps 31 MiB of a task that has ended, so that she holds most.
	kept := filepath.Join(all[0].Log, KeptFiles)
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{filepath.Join(kept, "x"): make([]byte, 31<<20), filepath.Join(all[0].Log, KeptAbout): []byte(`{"user":"amy"}`)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if over, _ = m.Measure(dir, all[1:], now.Add(2*clearMost)); len(over) != 1 || over[0].Attempt != all[1].Attempt {
		t.Errorf("with kept files: %+v, want 1 of them and [0].Attempt %v", over, all[1].Attempt)
	}
	var other Meter
	if over, _ = other.Measure(dir, []Bounded{holds(t, dir, "eve", 4, 1)}, now); len(over) != 0 {
		t.Errorf("who holds 1 MiB: %+v, want none", over)
	}
}

// TestPauseBetweenLooksFollowsTheDisk checks that the disk cannot fill up between two looks.
func TestPauseBetweenLooksFollowsTheDisk(t *testing.T) {
	for _, c := range []struct {
		d    disk
		want time.Duration
	}{
		{disk{avail: 1 << 40, floor: 1 << 30}, lookMost},
		{disk{avail: 3 << 30, floor: 1 << 30}, time.Second / 4},
		{disk{avail: 1 << 20, floor: 1 << 30}, lookLeast},
		{disk{avail: 1 << 40, files: 1 << 20, freeFiles: 1 << 18, floorFiles: 1 << 14}, time.Second * 15 / 64},
	} {
		if got := c.d.pause(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.d, got, c.want)
		}
	}
}

// TestDeletedOpenFilesCountForTheirUser checks that deleted files that a process still holds count for its user, and
// for nobody else: by a descriptor, by a map alone, and by a descriptor of one thread alone.
func TestDeletedOpenFilesCountForTheirUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: looks at maps")
	}
	dir := t.TempDir()
	b := holds(t, dir, "amy", 1, 1)
	b.UserBound = 9 << 20
	open := func() int {
		fd, err := unix.Open(b.Path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Skipf("no file without a name: %v", err)
		}
		if n, err := unix.Write(fd, make([]byte, 3<<20)); n != 3<<20 || err != nil {
			t.Fatalf("got %v, %v, want %v and no error", n, err, 3<<20)
		}
		return fd
	}
	m := Meter{Members: func(job.Attempt) []int { return []int{os.Getpid()} }}
	now := time.Now()
	holds := func(want int, what string) {
		t.Helper()
		now = now.Add(time.Hour)
		over, _ := m.Measure(dir, []Bounded{b}, now)
		if used := m.last[b.Attempt].bytes(); used < job.Size(want)<<20 || used >= job.Size(want+1)<<20 {
			t.Errorf("%s: %s are held, want %d MiB", what, used, want)
		}
		if is := len(over) == 1; is != (want >= 9) {
			t.Errorf("%s: over is %+v, want one from 9 MiB on", what, over)
		}
	}
	holds(1, "nothing deleted")
	fd := open()
	again, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	holds(4, "a descriptor, twice")
	mapped := open()
	text, err := unix.Mmap(mapped, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(mapped)
	holds(7, "a map")
	ready, end := make(chan error), make(chan struct{})
	var alone func()
	alone = func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			go alone() // the first thread would not end
			<-end
			runtime.UnlockOSThread()
			return
		}
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			open()
		}
		ready <- err
		<-end
		close(ready)
	}
	go alone()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	holds(10, "a thread's descriptor")
	close(end)
	<-ready
	unix.Close(fd)
	unix.Close(again)
	if err := unix.Munmap(text); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); heldBy([]int{os.Getpid()}, b.Path).files > 0; { // until the thread has ended
		if time.Now().After(deadline) {
			t.Fatal("the files are still held")
		}
		runtime.Gosched()
	}
	holds(1, "nothing any more")
	b.Path = t.TempDir()
	if h := heldBy(nil, b.Path); h != (held{}) {
		t.Errorf("nobody holds %+v, want %v", h, (held{}))
	}
}
