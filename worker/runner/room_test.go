package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestEndsAreSavedOnAFullDisk saves the ends of all started tasks on a disk that has become full. A task that starts then is
// refused.
func TestEndsAreSavedOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=16m,nr_inodes=64"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	dir := protocol.Dir(filepath.Join(at, "run"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	j := newJournal(t, dir, 1)
	if err := j.prepare(); err != nil {
		t.Fatal(err)
	}
	const n = 1500
	if err := j.room.hold(n); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(at, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(block)
	}
	f.Close()
	for i := 0; err == nil || i == 0; i++ {
		err = unix.Mknod(filepath.Join(at, fmt.Sprint(i)), unix.S_IFREG|0o600, 0)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want unix.ENOSPC", err)
	}
	if err := j.room.hold(100 * n); !diskFull(err) {
		t.Errorf("reserved space on a full disk: %v, want disk full", err)
	}
	for i := range n {
		k := deadTask(i)
		k.record.Exit.Tail = strings.Repeat("x", job.TailBytes)
		if err := j.save([]*task{k}); err != nil {
			t.Fatalf("end %d: %v", i, err)
		}
	}
	if all := saved(t, dir); len(all) != n {
		t.Errorf("%d ends are saved, want %d", len(all), n)
	}
}

// TestTaskIsRefusedOnADiskThatHangs starts a task while the disk space for its end is allocated, which does not return.
// The task is refused soon, and the next one at once.
func TestTaskIsRefusedOnADiskThatHangs(t *testing.T) {
	t.Parallel()
	r := openRoom(filepath.Join(t.TempDir(), "room"))
	r.mu.Lock()
	if err := r.hold(1); !errors.Is(err, errHangs) {
		t.Errorf("hold = %v, want errHangs", err)
	}
	before := time.Now()
	if err := r.hold(1); !errors.Is(err, errHangs) || time.Since(before) > holdTime/2 {
		t.Errorf("the next hold = %v after %v, want errHangs and at most %v", err, time.Since(before), holdTime/2)
	}
	r.mu.Unlock()
	if err := <-r.holding; err != nil {
		t.Fatal(err)
	}
	r.holding = nil
	if err := r.hold(1); err != nil {
		t.Errorf("once the disk works again: %v", err)
	}
}
